// What `sgd-launch doctor` says of machines and clusters as they should be, and of each one that is not.

#include <functional>

#include <catch2/catch.hpp>

#include "launcher/doctor/checks.hpp"
#include "launcher/doctor/read_facts.hpp"

using namespace sgd;
using doctor::Facts;
using doctor::Level;

namespace {

constexpr std::uint64_t kGiB = 1 << 30;
constexpr std::int64_t kDay_s = 86'400;

/// A machine and a cluster that lack nothing.
Facts good() {
  Facts facts;
  facts.version = "1.2.3";
  facts.account = "eva";
  facts.cores = 8;
  facts.files = {1 << 16, 1 << 20};
  facts.locked_bytes = {doctor::kUnlimited, doctor::kUnlimited};
  facts.processes = {60000, 60000};
  facts.core_bytes = {0, doctor::kUnlimited};
  facts.shared_memory = doctor::Disk{"shared memory", "/dev/shm", 8 * kGiB, 8 * kGiB, 100'000, true};
  facts.disks = {{"runs", "/home/eva", 100 * kGiB, 50 * kGiB, 1'000'000, true}};
  facts.has_cgroup2 = true;
  facts.can_make_cgroup = true;
  facts.cgroup = "/user.slice";
  facts.core_pattern = "|/usr/lib/systemd/systemd-coredump %P";
  facts.huge_pages = "madvise";
  facts.overcommit = 0;
  facts.panic_on_oom = 0;
  facts.oom_score_adjust = 0;
  facts.python = {"/usr/bin/python3", "3.11.2", "2.15.0", "12.4", ""};
  facts.worker = "/usr/bin/sgd-worker";
  facts.nvidia = {true, true, "570.1.2", 12080};
  facts.now_s = 1'800'000'000;
  facts.certificates = {{"your identity", "/home/eva/identity.pem", "join again", "", facts.now_s - kDay_s,
                         facts.now_s + 80 * kDay_s, false}};
  facts.cluster = doctor::Cluster{"head:7070", "", "1.2.3", 0.02, 0.05, {{"n1", "1.2.3", "connected", ""}}};
  return facts;
}

std::vector<doctor::Finding> not_ok(const Facts& facts) {
  std::vector<doctor::Finding> found = doctor::check(facts);
  std::erase_if(found, [](const doctor::Finding& one) { return one.level == Level::kOk; });
  return found;
}

struct DoctorRow {
  std::function<void(Facts&)> harm;
  Level level;
  const char* topic;
  const char* text;
  const char* fix;
};

void check_rows(const std::vector<DoctorRow>& rows) {
  for (const DoctorRow& row : rows) {
    Facts facts = good();
    row.harm(facts);
    const auto found = not_ok(facts);
    INFO(row.topic << ": " << row.text << "\n" << doctor::as_text(doctor::check(facts)));
    REQUIRE(found.size() == 1);
    CHECK(found[0].level == row.level);
    CHECK(found[0].topic == row.topic);
    CHECK(found[0].text.find(row.text) != std::string::npos);
    CHECK(found[0].fix.find(row.fix) != std::string::npos);
    CHECK(doctor::is_anything_missing(found) == (row.level == Level::kMissing));
  }
}

}  // namespace

TEST_CASE("doctor: a machine that lacks nothing is well, and says each topic") {
  const auto findings = doctor::check(good());
  CHECK(not_ok(good()).empty());
  CHECK_FALSE(doctor::is_anything_missing(findings));
  CHECK(findings.size() == 19);
  CHECK(doctor::as_text(findings).ends_with("19 ok, 0 with advice, 0 missing\n"));
  CHECK(doctor::as_json(findings).at("well") == true);
}

TEST_CASE("doctor: what is not as it should be on a machine is said with what fixes it") {
  check_rows({
      {[](Facts& f) {
         f.files = {256, 4096};
       },
       Level::kMissing, "open files", "256, and 1024 are needed", "echo 'eva - nofile 65536'"},
      {[](Facts& f) {
         f.files = {256, 1 << 20};
       },
       Level::kMissing, "open files", "256,", "ulimit -n 65536"},
      {[](Facts& f) {
         f.files = {1024, 4096};
       },
       Level::kAdvice, "open files", "at most 4096", "nofile 65536"},
      {[](Facts& f) {
         f.processes = {100, 100};
       },
       Level::kMissing, "processes", "8 cores may need 2048", "eva - nproc 8192"},
      {[](Facts& f) { f.group_processes = 64; }, Level::kMissing, "processes", "control group has 64", "--pids-limit"},
      {[](Facts& f) {
         f.locked_bytes = {8 << 20, 8 << 20};
       },
       Level::kAdvice, "locked memory", "8 MiB", "memlock unlimited"},
      {[](Facts& f) {
         f.locked_bytes = {8 << 20, doctor::kUnlimited};
       },
       Level::kAdvice, "locked memory", "8 MiB", "ulimit -l unlimited"},
      {[](Facts& f) { f.shared_memory->total_bytes = 64 << 20; }, Level::kMissing, "/dev/shm", "of 64 MiB",
       "docker run --shm-size=2g"},
      {[](Facts& f) { f.shared_memory->is_writable = false; }, Level::kMissing, "/dev/shm", "written", "mount"},
      {[](Facts& f) { f.shared_memory.reset(); }, Level::kMissing, "/dev/shm", "not there", "mount -t tmpfs"},
      {[](Facts& f) {
         f.system_trouble = process::SystemTrouble{"the system call pidfd_open is refused here", "use Linux 5.4"};
       },
       Level::kMissing, "system calls", "pidfd_open", "use Linux 5.4"},
      {[](Facts& f) { f.huge_pages = "never"; }, Level::kAdvice, "huge pages", "never", "echo madvise"},
      {[](Facts& f) { f.overcommit = 2; }, Level::kAdvice, "overcommit", "is 2", "sysctl vm.overcommit_memory=0"},
      {[](Facts& f) { f.panic_on_oom = 1; }, Level::kMissing, "out of memory", "panic_on_oom", "vm.panic_on_oom=0"},
      {[](Facts& f) { f.oom_score_adjust = 900; }, Level::kAdvice, "out of memory", "900", "oom_score_adj"},
      {[](Facts& f) { f.can_make_cgroup = false; }, Level::kAdvice, "control groups", "/user.slice", "Delegate=yes"},
      {[](Facts& f) { f.can_make_cgroup = f.has_cgroup2 = false; }, Level::kAdvice, "control groups", "not mounted",
       "unified_cgroup_hierarchy"},
      {[](Facts& f) {
         f.core_pattern = "core", f.core_bytes = {1, 1};
       },
       Level::kAdvice, "core dumps", "(core)", "ulimit -c 0"},
      {[](Facts& f) { f.disks[0].free_bytes = 5 << 20; }, Level::kMissing, "disk: runs", "5 MiB free in /home/eva",
       "sgd-launch runs remove"},
      {[](Facts& f) { f.disks[0].free_files = 12; }, Level::kMissing, "disk: runs", "only 12 more files",
       "runs remove"},
      {[](Facts& f) { f.disks[0].is_writable = false; }, Level::kMissing, "disk: runs", "eva cannot write",
       "--run-dir"},
      {[](Facts& f) {
         f.disks = {{"sockets", "/run/user/7", 100 * kGiB, 50 * kGiB, 1'000'000, false}};
       },
       Level::kMissing, "disk: sockets", "eva cannot write", "XDG_RUNTIME_DIR"},
      {[](Facts& f) {
         f.disks = {{"temporary files", "/tmp", 100 * kGiB, 50 * kGiB, 1'000'000, false}};
       },
       Level::kMissing, "disk: temporary files", "eva cannot write", "TMPDIR"},
      {[](Facts& f) {
         f.disks = {{"the agent", "/var/lib/sgd-launch", 100 * kGiB, 50 * kGiB, 1'000'000, false}};
       },
       Level::kMissing, "disk: the agent", "eva cannot write", "--state-dir"},
  });
}

TEST_CASE("doctor: what is wrong with programs, certificates and a cluster is said with what fixes it") {
  check_rows({
      {[](Facts& f) { f.worker_trouble = "x is not there"; }, Level::kAdvice, "sgd-worker", "x is not there: job files",
       "scripts/setup"},
      {[](Facts& f) { f.python = {}, f.nvidia = {}; }, Level::kAdvice, "Python", "no python3", "install python3"},
      {[](Facts& f) { f.python.trouble = "does not answer"; }, Level::kMissing, "Python", "does not answer", "-c"},
      {[](Facts& f) { f.python.torch.clear(), f.python.cuda.clear(); }, Level::kAdvice, "PyTorch", "not installed",
       "/usr/bin/python3 -m pip install torch"},
      {[](Facts& f) { f.python.torch.clear(), f.python.is_managed = true; }, Level::kAdvice, "PyTorch", "not installed",
       "/usr/bin/python3 -m venv ~/torch && ~/torch/bin/pip install torch, then put ~/torch/bin first in PATH"},
      {[](Facts& f) { f.python.cuda.clear(); }, Level::kAdvice, "NVIDIA", "without CUDA", "for CUDA"},
      {[](Facts& f) { f.python.cuda = "13.0"; }, Level::kMissing, "NVIDIA",
       "driver 570.1.2, runs CUDA up to 12.8, and PyTorch is built for CUDA 13.0", "newer driver"},
      {[](Facts& f) { f.nvidia.has_library = false; }, Level::kMissing, "NVIDIA", "libnvidia-ml.so.1", "--gpus all"},
      {[](Facts& f) { f.nvidia.has_devices = false; }, Level::kMissing, "NVIDIA", "no device", "modprobe nvidia"},
      {[](Facts& f) { f.certificates[0].expires_s = f.now_s - 3 * kDay_s; }, Level::kMissing, "certificate",
       "it ended 3 days ago", "join again"},
      {[](Facts& f) { f.certificates[0].expires_s = f.now_s + 5 * kDay_s; }, Level::kMissing, "certificate",
       "5 days left", "join again"},
      {[](Facts& f) { f.certificates[0].expires_s = f.now_s - kDay_s; }, Level::kMissing, "certificate",
       "it ended 24 hours ago", "join again"},
      {[](Facts& f) {
         f.certificates[0] = {"this node's identity", "",  "join again", "", f.now_s - 9 * kDay_s,
                              f.now_s + kDay_s,       true};
       },
       Level::kAdvice, "certificate", "24 hours left; its daemon should have renewed it", "join again"},
      {[](Facts& f) { f.certificates[0].issued_s = f.now_s + 60; }, Level::kMissing, "certificate", "not valid yet",
       "set-ntp"},
      {[](Facts& f) { f.certificates[0].trouble = "damaged"; }, Level::kMissing, "certificate", "damaged",
       "join again"},
      {[](Facts& f) { f.cluster->trouble = "no coordinator at head:7070"; }, Level::kMissing, "coordinator",
       "head:7070", "systemctl status sgd-launch-coordinator"},
      {[](Facts& f) { f.cluster->clock_ahead_s = -9; }, Level::kAdvice, "clock", "9.0 s ahead of the", "set-ntp"},
      {[](Facts& f) { f.cluster->clock_ahead_s = 400; }, Level::kMissing, "clock", "400.0 s behind the", "set-ntp"},
      {[](Facts& f) { f.cluster->nodes.clear(); }, Level::kMissing, "nodes", "none", "token create"},
      {[](Facts& f) {
         f.cluster->nodes.push_back({"n2", "1.2.0", "connected", ""});
       },
       Level::kMissing, "node", "n2 has version 1.2.0", "restart sgd-launch-agent"},
      {[](Facts& f) {
         f.cluster->nodes.push_back({"n2", "1.2.3", "lost", "silent"});
       },
       Level::kMissing, "node", "n2 is lost: silent", "systemctl status sgd-launch-agent, on n2"},
      {[](Facts& f) {
         f.cluster->nodes.push_back({"n2", "1.2.3", "drained", ""});
       },
       Level::kMissing, "node", "n2 is drained", "nodes undrain n2"},
  });
}

TEST_CASE("doctor: a coordinator and its nodes of another version than ours are told apart") {
  Facts facts = good();
  facts.cluster->version = "2.0.0";
  facts.cluster->nodes[0].version = "2.0.0";
  const auto found = not_ok(facts);
  REQUIRE(found.size() == 1);
  CHECK(found[0].text == "head:7070 has version 2.0.0, and this one is 1.2.3");
}

TEST_CASE("doctor: what cannot be read is not judged, and what nobody has is not missed") {
  Facts facts = good();
  facts.files.reset();
  facts.processes.reset();
  facts.locked_bytes.reset();
  facts.overcommit.reset();
  facts.panic_on_oom.reset();
  facts.huge_pages.clear();
  facts.core_pattern.clear();
  facts.cluster.reset();
  facts.certificates.clear();
  facts.nvidia = {};
  CHECK(not_ok(facts).empty());
  facts = good();
  facts.is_root = true;
  facts.processes = {1, 1};  // Of root the kernel does not ask.
  CHECK(not_ok(facts).empty());
}

TEST_CASE("doctor: a slow answer is no clock that is off") {
  Facts facts = good();
  facts.cluster->clock_ahead_s = 3;
  facts.cluster->round_trip_s = 5;
  CHECK(not_ok(facts).empty());
}

TEST_CASE("doctor: a certificate that its daemon renews is not late before two thirds of its life are over") {
  Facts facts = good();
  facts.certificates = {
      {"this node's identity", "", "join again", "", facts.now_s - kDay_s / 2, facts.now_s + kDay_s / 2, true}};
  CHECK(not_ok(facts).empty());
  CHECK(doctor::as_text(doctor::check(facts)).find("12 hours left; its daemon renews it") != std::string::npos);
}

TEST_CASE("doctor: text has a fix below each finding that needs one") {
  CHECK(doctor::as_text({{Level::kOk, "a", "good", ""}, {Level::kMissing, "b", "bad", "do it"}}) ==
        "ok       a                      good\n"
        "missing  b                      bad\n"
        "                                fix: do it\n"
        "1 ok, 0 with advice, 1 missing\n");
  const auto json = doctor::as_json({{Level::kMissing, "b", "bad", "do it"}});
  CHECK(json.dump() ==
        R"({"schema_version":1,"well":false,"findings":[{"level":"missing","topic":"b","text":"bad","fix":"do it"}]})");
}

TEST_CASE("doctor: files of the kernel and of the driver are read") {
  CHECK(doctor::chosen_of("always [madvise] never") == "madvise");
  CHECK(doctor::chosen_of("").empty());
  CHECK(doctor::chosen_of("[never").empty());
  CHECK(doctor::driver_version_of("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12") ==
        "535.183.01");
  CHECK(doctor::driver_version_of("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release") ==
        "570.133.20");
  CHECK(doctor::driver_version_of("").empty());
  bool has_library = false;
  CHECK(doctor::newest_cuda(FAKE_NVML, has_library) == 12040);
  CHECK(has_library);
  CHECK(doctor::newest_cuda("/no/such/library.so", has_library) == 0);
  CHECK_FALSE(has_library);
}
