#include "launcher/doctor/read_facts.hpp"

#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include <fmt/format.h>

#include "common/json/lenient.hpp"
#include "launcher/process/capture_output.hpp"
#include "launcher/process/cgroup_leaf.hpp"
#include "launcher/process/cpu_set.hpp"
#include "launcher/process/library_folders.hpp"
#include "launcher/process/spawn.hpp"

namespace sgd::doctor {
namespace {

namespace fs = std::filesystem;

constexpr Duration kPythonPatience = std::chrono::seconds(20);

/// PyTorch is not imported, which takes seconds: its version and its CUDA stand in a small file of it.
constexpr const char* kAskPython =
    "import importlib.util, json, os, platform, runpy, sys, sysconfig\n"
    "mark = os.path.join(sysconfig.get_path('stdlib'), 'EXTERNALLY-MANAGED')\n"
    "managed = sys.prefix == sys.base_prefix and os.path.exists(mark)\n"
    "said = {'version': platform.python_version(), 'managed': managed}\n"
    "spec = importlib.util.find_spec('torch')\n"
    "if spec and spec.origin:\n"
    "    torch = runpy.run_path(os.path.join(os.path.dirname(spec.origin), 'version.py'))\n"
    "    said |= {'torch': str(torch.get('__version__', '')), 'cuda': str(torch.get('cuda') or '')}\n"
    "print(json.dumps(said))\n";

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<int> number_in(const std::string& path) {
  const std::string text = first_line(path);
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end != text.data() ? std::optional(number) : std::nullopt;
}

std::optional<Limit> limit_of(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return std::nullopt;
  static_assert(RLIM_INFINITY == kUnlimited);
  return Limit{limit.rlim_cur, limit.rlim_max};
}

/// The folder itself or the nearest one above it that exists.
std::optional<Disk> disk_of(const std::string& what, const std::string& path) {
  std::error_code error;
  fs::path existing = fs::absolute(path, error).lexically_normal();
  while (!fs::is_directory(existing, error) && existing.has_relative_path()) existing = existing.parent_path();
  struct statvfs info {};
  if (::statvfs(existing.c_str(), &info) != 0) return std::nullopt;
  Disk disk;
  disk.what = what;
  disk.path = existing.string();
  disk.total_bytes = std::uint64_t{info.f_blocks} * info.f_frsize;
  disk.free_bytes = std::uint64_t{info.f_bavail} * info.f_frsize;
  if (info.f_files > 0) disk.free_files = info.f_favail;
  disk.is_writable = ::access(existing.c_str(), W_OK | X_OK) == 0;
  return disk;
}

/// That of `CgroupLeaf`, whose groups lie below ours.
std::string own_cgroup() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("0::")) return line.substr(3);
  return {};
}

Python python_on(const std::string& search_path) {
  Python python;
  const auto program = process::find_program("python3", search_path);
  if (!program) return python;
  python.program = program.value();
  const auto said = process::capture_output({python.program, "-c", kAskPython}, kPythonPatience);
  if (!said || said.value().is_late) {
    python.trouble = said ? "does not answer" : said.error().message;
    return python;
  }
  const auto json = nlohmann::json::parse(said.value().text, nullptr, false);
  if (said.value().exit_code != 0 || !json.is_object()) {
    const std::string& text = said.value().text;
    python.trouble = text.empty() ? "does not answer" : text.substr(text.rfind('\n') + 1);
    return python;
  }
  python.version = read_or(json, "version", "");
  python.torch = read_or(json, "torch", "");
  python.cuda = read_or(json, "cuda", "");
  python.is_managed = read_or(json, "managed", false);
  return python;
}

std::string trouble_of_worker(const std::string& path) {
  if (::access(path.c_str(), X_OK) != 0) return path + " is not there";
  const auto found = process::check_library_folders(path);
  return found ? std::string() : found.error().message;
}

Nvidia nvidia_here() {
  Nvidia found;
  std::error_code error;
  for (fs::directory_iterator at("/dev", error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with("nvidia") && name.find_first_not_of("0123456789", 6) == std::string::npos && name.size() > 6)
      found.has_devices = true;
  }
  found.driver = driver_version_of(first_line("/proc/driver/nvidia/version"));
  found.cuda = newest_cuda("libnvidia-ml.so.1", found.has_library);
  return found;
}

}  // namespace

std::string chosen_of(const std::string& text) {
  const std::size_t begin = text.find('[');
  const std::size_t end = text.find(']', begin);
  return begin == std::string::npos || end == std::string::npos ? "" : text.substr(begin + 1, end - begin - 1);
}

std::string driver_version_of(const std::string& text) {
  std::istringstream words(text);
  for (std::string word; words >> word;)
    if (word.find('.') != std::string::npos && word.find_first_not_of("0123456789.") == std::string::npos) return word;
  return {};
}

int newest_cuda(const std::string& library, bool& has_library) {
  const std::unique_ptr<void, int (*)(void*)> handle(::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL),
                                                     [](void* open) { return open == nullptr ? 0 : ::dlclose(open); });
  has_library = handle != nullptr;
  if (!handle) return 0;
  const auto init = reinterpret_cast<int (*)()>(::dlsym(handle.get(), "nvmlInit_v2"));
  const auto ask = reinterpret_cast<int (*)(int*)>(::dlsym(handle.get(), "nvmlSystemGetCudaDriverVersion_v2"));
  const auto shut_down = reinterpret_cast<int (*)()>(::dlsym(handle.get(), "nvmlShutdown"));
  if (init == nullptr || ask == nullptr || shut_down == nullptr || init() != 0) return 0;
  int version = 0;
  const bool is_told = ask(&version) == 0;
  (void)shut_down();
  return is_told ? version : 0;
}

Facts read_facts(const FactSources& sources) {
  Facts facts;
  facts.account = sources.account;
  facts.is_root = ::geteuid() == 0;
  facts.cores = static_cast<int>(process::allowed_cores().size());
  facts.files = limit_of(RLIMIT_NOFILE);
  facts.locked_bytes = limit_of(RLIMIT_MEMLOCK);
  facts.processes = limit_of(RLIMIT_NPROC);
  facts.core_bytes = limit_of(RLIMIT_CORE);
  if (std::error_code error; fs::is_directory("/dev/shm", error))
    facts.shared_memory = disk_of("shared memory", "/dev/shm");
  for (const auto& [what, path] : sources.folders)
    if (auto disk = disk_of(what, path)) facts.disks.push_back(std::move(*disk));
  facts.cgroup = own_cgroup();
  facts.group_processes = number_in("/sys/fs/cgroup" + facts.cgroup + "/pids.max");
  facts.has_cgroup2 = !facts.cgroup.empty();
  if (const auto leaf = process::CgroupLeaf::make(fmt::format("sgd-doctor-{}", ::getpid()))) {
    facts.can_make_cgroup = true;
    leaf->remove();
  }
  facts.system_trouble = process::system_trouble();
  facts.core_pattern = first_line("/proc/sys/kernel/core_pattern");
  facts.huge_pages = chosen_of(first_line("/sys/kernel/mm/transparent_hugepage/enabled"));
  facts.overcommit = number_in("/proc/sys/vm/overcommit_memory");
  facts.panic_on_oom = number_in("/proc/sys/vm/panic_on_oom");
  facts.oom_score_adjust = number_in("/proc/self/oom_score_adj");
  facts.python = python_on(sources.search_path);
  facts.worker = sources.worker;
  facts.worker_trouble = trouble_of_worker(sources.worker);
  facts.nvidia = nvidia_here();
  return facts;
}

}  // namespace sgd::doctor
