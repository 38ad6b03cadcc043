#include "launcher/doctor/checks.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

namespace sgd::doctor {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kGiB = 1 << 30;

constexpr std::uint64_t kFilesNeeded = 1024;      ///< A run of 240 workers on one machine.
constexpr std::uint64_t kFilesWanted = 65536;     ///< A coordinator of some thousand nodes.
constexpr std::uint64_t kProcessesPerCore = 256;  ///< Threads of ranks, their data loaders and libraries count, too.
constexpr std::uint64_t kLockedWanted = 64 * kMiB;
constexpr std::uint64_t kSharedNeeded = 64 * kMiB;  ///< A container's default, which DataLoaders of PyTorch outgrow.
constexpr std::uint64_t kDiskNeeded = kGiB;
constexpr std::uint64_t kDiskFilesNeeded = 10'000;
constexpr double kClockOff_s = 1.0;
constexpr double kClockBroken_s = 240.0;  ///< Certificates are valid from 300 s before they are made.
constexpr std::int64_t kHour_s = 3'600;
constexpr std::int64_t kDay_s = 86'400;
constexpr std::int64_t kCertificateSoon_s = 14 * kDay_s;
constexpr int kOomAdjustHigh = 500;

using Findings = std::vector<Finding>;

void ok(Findings& out, const char* topic, std::string text) {
  out.push_back({Level::kOk, topic, std::move(text), {}});
}
void advise(Findings& out, const char* topic, std::string text, std::string fix) {
  out.push_back({Level::kAdvice, topic, std::move(text), std::move(fix)});
}
void miss(Findings& out, const char* topic, std::string text, std::string fix) {
  out.push_back({Level::kMissing, topic, std::move(text), std::move(fix)});
}

std::string bytes_text(std::uint64_t bytes) {
  if (bytes == kUnlimited) return "unlimited";
  if (bytes >= kGiB) return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / static_cast<double>(kGiB));
  return fmt::format("{:.0f} MiB", static_cast<double>(bytes) / static_cast<double>(kMiB));
}

std::string count_text(std::uint64_t count) {
  return count == kUnlimited ? "unlimited" : fmt::format("{}", count);
}

/// As far as the shell may raise it itself, else what an administrator writes for good.
std::string raise_limit(const Facts& facts, const Limit& limit, char letter, const char* item, std::uint64_t to) {
  if (limit.hard >= to) return fmt::format("ulimit -{} {}", letter, count_text(to));
  return fmt::format("echo '{} - {} {}' | sudo tee -a /etc/security/limits.d/sgd-launch.conf, then log in again",
                     facts.account, item, count_text(to));
}

void check_limits(const Facts& facts, Findings& out) {
  if (const auto& files = facts.files) {
    const std::string text = count_text(files->soft);
    if (files->soft < kFilesNeeded)
      miss(out, "open files", fmt::format("{}, and {} are needed", text, kFilesNeeded),
           raise_limit(facts, *files, 'n', "nofile", kFilesWanted));
    else if (files->hard < kFilesWanted)
      advise(
          out, "open files",
          fmt::format("{}, at most {}: a coordinator of thousands of nodes needs more", text, count_text(files->hard)),
          raise_limit(facts, *files, 'n', "nofile", kFilesWanted));
    else
      ok(out, "open files", text);
  }
  const std::uint64_t needed = kProcessesPerCore * static_cast<std::uint64_t>(std::max(facts.cores, 1));
  if (facts.group_processes && static_cast<std::uint64_t>(*facts.group_processes) < needed)
    miss(out, "processes",
         fmt::format("the control group has {} at most, and {} cores may need {}, threads counted",
                     *facts.group_processes, facts.cores, needed),
         fmt::format("docker run --pids-limit={}, or TasksMax= of the unit or the slice", needed * 4));
  else if (const auto& processes = facts.processes) {
    if (!facts.is_root && processes->soft < needed)  // Of root it is not asked.
      miss(out, "processes",
           fmt::format("{}, and {} cores may need {}, threads counted", processes->soft, facts.cores, needed),
           raise_limit(facts, *processes, 'u', "nproc", needed * 4));
    else
      ok(out, "processes", count_text(processes->soft));
  }
  if (const auto& locked = facts.locked_bytes) {
    const bool has_gpu = facts.nvidia.has_devices;
    if (has_gpu && locked->soft < kLockedWanted)
      advise(out, "locked memory", fmt::format("{}: NCCL over InfiniBand needs more", bytes_text(locked->soft)),
             raise_limit(facts, *locked, 'l', "memlock", kUnlimited));
    else
      ok(out, "locked memory", bytes_text(locked->soft));
  }
}

void check_memory(const Facts& facts, Findings& out) {
  if (const auto& shared = facts.shared_memory) {
    const std::string text =
        fmt::format("{} free of {}", bytes_text(shared->free_bytes), bytes_text(shared->total_bytes));
    if (!shared->is_writable)
      miss(out, "/dev/shm", "it cannot be written to", "sudo mount -t tmpfs -o mode=1777 tmpfs /dev/shm");
    else if (shared->total_bytes <= kSharedNeeded || shared->free_bytes < kSharedNeeded)
      miss(out, "/dev/shm", text + ": data loaders of PyTorch need more",
           "sudo mount -o remount,size=2g /dev/shm (a container: docker run --shm-size=2g)");
    else
      ok(out, "/dev/shm", text);
  } else {
    miss(out, "/dev/shm", "it is not there", "sudo mount -t tmpfs -o mode=1777 tmpfs /dev/shm");
  }
  if (facts.huge_pages == "never")
    advise(out, "huge pages", "never: large tensors cost more page faults",
           "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled");
  else if (!facts.huge_pages.empty())
    ok(out, "huge pages", facts.huge_pages);
  if (facts.overcommit == 2)
    advise(out, "overcommit", "vm.overcommit_memory is 2: forks of a large Python fail long before memory is used",
           "sudo sysctl vm.overcommit_memory=0");
  else if (facts.overcommit)
    ok(out, "overcommit", fmt::format("vm.overcommit_memory is {}", *facts.overcommit));
  if (facts.panic_on_oom.value_or(0) != 0)
    miss(out, "out of memory", "vm.panic_on_oom is set: the machine stops where a worker could be ended",
         "sudo sysctl vm.panic_on_oom=0");
  else if (facts.oom_score_adjust.value_or(0) >= kOomAdjustHigh)
    advise(out, "out of memory",
           fmt::format("oom_score_adj is {}: the launcher is ended before its workers", *facts.oom_score_adjust),
           "echo 0 > /proc/self/oom_score_adj in the shell that starts it");
  else if (facts.panic_on_oom)
    ok(out, "out of memory", "the kernel ends the largest process, and the run says which");
}

void check_kernel(const Facts& facts, Findings& out) {
  if (facts.system_trouble)
    miss(out, "system calls", facts.system_trouble->text, facts.system_trouble->fix);
  else
    ok(out, "system calls", "all that runs need are allowed");
  if (facts.can_make_cgroup)
    ok(out, "control groups", "version 2, groups can be made in " + facts.cgroup);
  else if (!facts.has_cgroup2)
    advise(out, "control groups", "version 2 is not mounted: a run's processes are found by their parents instead",
           "boot with systemd.unified_cgroup_hierarchy=1");
  else
    advise(
        out, "control groups",
        fmt::format("no group can be made in {}: a run's processes are found by their parents instead", facts.cgroup),
        "systemd-run --user --scope -p Delegate=yes sgd-launch ... (the agent's unit has Delegate=yes)");
  if (facts.core_pattern.empty()) return;
  const bool is_piped = facts.core_pattern.starts_with('|');
  const bool dumps = facts.core_bytes && facts.core_bytes->soft > 0;
  if (!is_piped && dumps)
    advise(out, "core dumps",
           fmt::format("{}: a worker that crashes leaves a file of its whole memory ({})",
                       bytes_text(facts.core_bytes->soft), facts.core_pattern),
           "ulimit -c 0, or sudo apt-get install systemd-coredump");
  else
    ok(out, "core dumps",
       is_piped ? "they go to " + facts.core_pattern.substr(1, facts.core_pattern.find(' ') - 1)
                : "switched off (ulimit -c 0)");
}

/// How another folder is named in its place.
std::string other_place_of(const std::string& what, const std::string& account) {
  if (what == "runs") return fmt::format("work in a folder of {}'s own, or name one with --run-dir", account);
  if (what == "sockets") return fmt::format("export XDG_RUNTIME_DIR=DIR, a folder of {}'s own", account);
  if (what == "temporary files") return fmt::format("export TMPDIR=DIR, a folder of {}'s own", account);
  return fmt::format("name a folder of {}'s own with --state-dir", account);
}

void check_disks(const Facts& facts, Findings& out) {
  for (const Disk& disk : facts.disks) {
    const std::string topic = "disk: " + disk.what;
    const std::string text = fmt::format("{} free in {}", bytes_text(disk.free_bytes), disk.path);
    const bool is_of_runs = disk.what != "temporary files" && disk.what != "sockets";
    const std::string room =
        is_of_runs ? "sgd-launch runs list, then sgd-launch runs remove RUN" : "du -xsh " + disk.path + "/*";
    if (!disk.is_writable)
      miss(out, topic.c_str(), fmt::format("{} cannot write to {}", facts.account, disk.path),
           other_place_of(disk.what, facts.account));
    else if (disk.free_bytes < kDiskNeeded)
      miss(out, topic.c_str(), text, room);
    else if (disk.free_files.value_or(kUnlimited) < kDiskFilesNeeded)
      miss(out, topic.c_str(), fmt::format("only {} more files in {}", *disk.free_files, disk.path), room);
    else
      ok(out, topic.c_str(), text);
  }
}

/// What installs PyTorch for a script; a system's own Python has none but its packages.
std::string install_torch(const Python& python) {
  if (!python.is_managed) return python.program + " -m pip install torch";
  return python.program + " -m venv ~/torch && ~/torch/bin/pip install torch, then put ~/torch/bin first in PATH";
}

void check_programs(const Facts& facts, Findings& out) {
  if (facts.worker_trouble.empty())
    ok(out, "sgd-worker", facts.worker);
  else
    advise(out, "sgd-worker", facts.worker_trouble + ": job files with \"training\" cannot run; commands can",
           "scripts/setup, then build; of a package: ln -s LIBTORCH /usr/lib/sgd-launch/torch");
  const Python& python = facts.python;
  if (python.program.empty())
    return advise(out, "Python", "no python3 on the PATH: Python scripts cannot run", "sudo apt-get install python3");
  if (!python.trouble.empty())
    return miss(out, "Python", fmt::format("{}: {}", python.program, python.trouble),
                python.program + " -c 'print(1)'   says what is wrong with it");
  ok(out, "Python", fmt::format("{} ({})", python.version, python.program));
  if (python.torch.empty())
    advise(out, "PyTorch", "not installed for " + python.program, install_torch(python));
  else
    ok(out, "PyTorch", python.torch + (python.cuda.empty() ? " without CUDA" : " for CUDA " + python.cuda));
}

/// "12.8" is 12.
int major_of(const std::string& version) {
  int number = 0;
  (void)std::from_chars(version.data(), version.data() + version.size(),
                        number);  // Ignoring: 0 says that there is none.
  return number;
}

void check_gpus(const Facts& facts, Findings& out) {
  const Nvidia& nvidia = facts.nvidia;
  if (!nvidia.has_devices && !nvidia.has_library) return;
  if (!nvidia.has_devices)
    return miss(out, "NVIDIA", "the driver's library is here, and no device (/dev/nvidia*)",
                "sudo modprobe nvidia (a container: docker run --gpus all)");
  if (!nvidia.has_library)
    return miss(out, "NVIDIA", "devices are here, and the driver's library (libnvidia-ml.so.1) is not",
                "sudo apt-get install nvidia-driver (a container: docker run --gpus all)");
  const std::string driver = nvidia.driver.empty() ? "driver" : "driver " + nvidia.driver;
  const int newest = nvidia.cuda / 1000;
  const std::string runs = newest == 0 ? "" : fmt::format(", runs CUDA up to {}.{}", newest, nvidia.cuda % 1000 / 10);
  const int built_for = major_of(facts.python.cuda);
  if (newest > 0 && built_for > newest)
    return miss(out, "NVIDIA", fmt::format("{}{}, and PyTorch is built for CUDA {}", driver, runs, facts.python.cuda),
                fmt::format("install a newer driver, or a PyTorch that is built for CUDA {}", newest));
  if (!facts.python.torch.empty() && facts.python.cuda.empty())
    return advise(out, "NVIDIA", driver + runs + ", and PyTorch is built without CUDA",
                  "install a PyTorch that is built for CUDA");
  ok(out, "NVIDIA", driver + runs);
}

/// "12 days", "23 hours".
std::string days_text(std::int64_t seconds) {
  return seconds < 2 * kDay_s ? fmt::format("{} hours", seconds / kHour_s) : fmt::format("{} days", seconds / kDay_s);
}

/// A daemon renews its certificate when a third of its life is left: with half of that it is late.
bool ends_soon(const Certificate& one, std::int64_t left_s) {
  return left_s < (one.is_renewed ? (one.expires_s - one.issued_s) / 6 : kCertificateSoon_s);
}

void check_certificates(const Facts& facts, Findings& out) {
  for (const Certificate& one : facts.certificates) {
    if (!one.trouble.empty()) {
      miss(out, "certificate", fmt::format("{}: {}", one.whose, one.trouble), one.fix);
      continue;
    }
    const std::int64_t left_s = one.expires_s - facts.now_s;
    const std::string left = fmt::format("{}: {} left", one.whose, days_text(left_s));
    if (left_s <= 0)
      miss(out, "certificate", fmt::format("{}: it ended {} ago", one.whose, days_text(-left_s)), one.fix);
    else if (facts.now_s < one.issued_s)
      miss(out, "certificate", fmt::format("{}: it is not valid yet; is the clock right?", one.whose),
           "timedatectl set-ntp true");
    else if (ends_soon(one, left_s))
      (one.is_renewed ? advise : miss)(out, "certificate",
                                       one.is_renewed ? left + "; its daemon should have renewed it" : left, one.fix);
    else
      ok(out, "certificate", one.is_renewed ? left + "; its daemon renews it" : left);
  }
}

void check_clock(const Cluster& cluster, Findings& out) {
  if (!cluster.clock_ahead_s) return;
  const double off_s = std::abs(*cluster.clock_ahead_s) - cluster.round_trip_s / 2;
  const std::string text = fmt::format("{:.1f} s {} the coordinator's", std::abs(*cluster.clock_ahead_s),
                                       *cluster.clock_ahead_s > 0 ? "behind" : "ahead of");
  if (off_s > kClockBroken_s)
    miss(out, "clock", text + ": certificates are refused", "timedatectl set-ntp true, on both");
  else if (off_s > kClockOff_s)
    advise(out, "clock", text + ": times in logs do not fit together", "timedatectl set-ntp true, on both");
  else
    ok(out, "clock", "as the coordinator's");
}

void check_cluster(const Facts& facts, Findings& out) {
  if (!facts.cluster) return;
  const Cluster& cluster = *facts.cluster;
  if (!cluster.trouble.empty())
    return miss(out, "coordinator", cluster.trouble, "systemctl status sgd-launch-coordinator, on its machine");
  if (cluster.version != facts.version)
    miss(out, "coordinator",
         fmt::format("{} has version {}, and this one is {}", cluster.address, cluster.version, facts.version),
         "install the same version on both");
  else
    ok(out, "coordinator", fmt::format("{}, version {}", cluster.address, cluster.version));
  check_clock(cluster, out);
  std::size_t good = 0;
  for (const Node& node : cluster.nodes) {
    const bool is_in = node.state == "connected";
    if (!is_in)
      miss(out, "node", fmt::format("{} is {}{}", node.name, node.state, node.reason.empty() ? "" : ": " + node.reason),
           node.state == "drained" ? "sgd-launch nodes undrain " + node.name
                                   : "systemctl status sgd-launch-agent, on " + node.name);
    else if (node.version != cluster.version)
      miss(out, "node", fmt::format("{} has version {}, the coordinator {}", node.name, node.version, cluster.version),
           "install the same version there, then systemctl restart sgd-launch-agent");
    else
      ++good;
  }
  if (cluster.nodes.empty())
    miss(out, "nodes", "the cluster has none", "sgd-launch token create, then join and agent on a machine");
  else if (good > 0)
    ok(out, "nodes", fmt::format("{} of {} connected, with the coordinator's version", good, cluster.nodes.size()));
}

}  // namespace

std::vector<Finding> check(const Facts& facts) {
  Findings found;
  check_limits(facts, found);
  check_memory(facts, found);
  check_kernel(facts, found);
  check_disks(facts, found);
  check_programs(facts, found);
  check_gpus(facts, found);
  check_certificates(facts, found);
  check_cluster(facts, found);
  return found;
}

const char* name(Level level) {
  switch (level) {
    case Level::kOk:
      return "ok";
    case Level::kAdvice:
      return "advice";
    case Level::kMissing:
      return "missing";
  }
  return "missing";
}

bool is_anything_missing(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(), [](const Finding& one) { return one.level == Level::kMissing; });
}

std::string as_text(const std::vector<Finding>& findings) {
  std::string text;
  std::size_t counts[3] = {};
  for (const Finding& one : findings) {
    ++counts[static_cast<std::size_t>(one.level)];
    text += fmt::format("{:<8} {:<22} {}\n", name(one.level), one.topic, one.text);
    if (!one.fix.empty()) text += fmt::format("{:31} fix: {}\n", "", one.fix);
  }
  return text + fmt::format("{} ok, {} with advice, {} missing\n", counts[0], counts[1], counts[2]);
}

nlohmann::ordered_json as_json(const std::vector<Finding>& findings) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Finding& one : findings) {
    nlohmann::ordered_json row = {{"level", name(one.level)}, {"topic", one.topic}, {"text", one.text}};
    if (!one.fix.empty()) row["fix"] = one.fix;
    rows.push_back(std::move(row));
  }
  return {{"schema_version", 1}, {"well", !is_anything_missing(findings)}, {"findings", std::move(rows)}};
}

}  // namespace sgd::doctor
