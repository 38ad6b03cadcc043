#include "launcher/warm/memory_of.hpp"

#include <cstdlib>
#include <fstream>
#include <string>

#include <fmt/format.h>

#include "launcher/process/process_tree.hpp"

namespace sgd::warm {
namespace {

constexpr std::int64_t kKibibyte = 1024;

std::int64_t memory_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/smaps_rollup", pid));
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("Pss:")) return std::strtoll(line.c_str() + 4, nullptr, 10) * kKibibyte;
  return 0;
}

}  // namespace

std::int64_t memory_of_tree(pid_t root) {
  std::int64_t bytes = memory_of(root);
  for (const process::ProcessEntry& entry : process::descendants(root)) bytes += memory_of(entry.pid);
  return bytes;
}

}  // namespace sgd::warm
