#include "launcher/process/own_cgroups.hpp"

#include <fstream>

namespace sgd::process {
namespace {

std::vector<std::string> up_from(const std::string& root, std::string path) {
  std::vector<std::string> folders;
  for (;; path = path.substr(0, path.rfind('/'))) {
    if (path == "/") path.clear();
    folders.push_back(root + path);
    if (path.find('/') == std::string::npos) return folders;
  }
}

}  // namespace

/// Lines are "0::/path" for version 2 and "4:cpu,cpuacct:/path" for version 1.
OwnCgroups own_cgroups(const std::string& proc, const std::string& cgroup, const std::string& controller) {
  std::ifstream file(proc + "/self/cgroup");
  OwnCgroups found;
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") found.version_2 = up_from(cgroup, path);
    if (controllers.find("," + controller + ",") != std::string::npos)
      found.version_1 = up_from(cgroup + "/" + controller, path);
  }
  return found;
}

}  // namespace sgd::process
