#include "launcher/process/setting.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "launcher/process/process_tree.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::process {
namespace {

/// Of /proc/PID/status, and what people call them.
const std::map<std::string, std::string> kStatusLines = {{"Umask", "the umask"},
                                                         {"Uid", "the user"},
                                                         {"Gid", "the group"},
                                                         {"Groups", "the groups"},
                                                         {"CapInh", "capabilities"},
                                                         {"CapPrm", "capabilities"},
                                                         {"CapEff", "capabilities"},
                                                         {"CapBnd", "capabilities"},
                                                         {"CapAmb", "capabilities"},
                                                         {"NoNewPrivs", "no_new_privs"},
                                                         {"Seccomp", "seccomp"},
                                                         {"Seccomp_filters", "seccomp"},
                                                         {"Cpus_allowed", "the allowed cores"},
                                                         {"Mems_allowed", "the allowed memory nodes"}};

/// Empty where the kernel has none: a stream would throw where there is no security module to ask.
std::string text_of(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 4096> buffer{};
  for (ssize_t count = 0; file && (count = ::read(file.get(), buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<std::size_t>(count));
  return text;
}

void add_status(const std::string& folder, std::map<std::string, std::string>& found) {
  std::ifstream file(folder + "/status");
  for (std::string line; std::getline(file, line);) {
    const auto known = kStatusLines.find(line.substr(0, line.find(':')));
    if (known != kStatusLines.end()) found[known->second] += line + "\n";
  }
}

}  // namespace

warm::Setting own_setting() {
  warm::Setting setting;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos && equals > 0)
      setting.environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  std::error_code error;
  setting.workdir = std::filesystem::current_path(error).string();
  return setting;
}

Result<std::map<std::string, std::string>> inherited_from(pid_t pid) {
  const std::string folder = fmt::format("/proc/{}", pid);
  std::map<std::string, std::string> found;
  add_status(folder, found);
  found["a limit (ulimit)"] = text_of(folder + "/limits");
  found["the control group"] = text_of(folder + "/cgroup");
  found["the security label"] = text_of(folder + "/attr/current");
  found["the personality"] = text_of(folder + "/personality");
  found["oom_score_adj"] = text_of(folder + "/oom_score_adj");
  found["the priority (nice)"] = fmt::format("{}", ::getpriority(PRIO_PROCESS, static_cast<id_t>(pid)));
  struct stat program {};
  if (::stat((folder + "/exe").c_str(), &program) == 0)
    found["the build of sgd-launch"] = fmt::format("{} {} {}", program.st_dev, program.st_ino, program.st_mtim.tv_sec);
  std::error_code error;
  for (const char* space : {"cgroup", "ipc", "mnt", "net", "pid", "user", "uts"})
    found["the namespace " + std::string(space)] =
        std::filesystem::read_symlink(folder + "/ns/" + space, error).string();
  found["the root folder"] = std::filesystem::read_symlink(folder + "/" + "root", error).string();
  if (error || !read_process(pid)) return Error{fmt::format("process {} cannot be looked at", pid)};
  return found;
}

}  // namespace sgd::process
