#include "launcher/agent/stacks.hpp"

#include <fstream>
#include <iterator>

#include <fmt/format.h>

namespace sgd::agent {
namespace {

/// Files of /proc have no size of their own to trust.
std::string read_proc(int pid, const char* name) {
  std::ifstream file(fmt::format("/proc/{}/{}", pid, name));
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  while (!text.empty() && (text.back() == '\n' || text.back() == '\0')) text.pop_back();
  return text;
}

/// "State:\tT (stopped)" of /proc/PID/status: "T (stopped)".
std::string state_of(const std::string& status) {
  const std::size_t at = status.find("State:");
  if (at == std::string::npos) return "unknown";
  const std::size_t begin = status.find_first_not_of("\t ", at + 6);
  return status.substr(begin, status.find('\n', begin) - begin);
}

}  // namespace

void keep_stacks(const std::string& run_dir, Generation generation, const std::map<Rank, int>& pids) {
  for (const auto& [rank, pid] : pids) {
    const std::string status = read_proc(pid, "status");
    if (status.empty()) continue;
    std::ofstream file(fmt::format("{}/errors/gen-{:04d}-rank-{:04d}.stack", run_dir, generation, rank), std::ios::app);
    file << fmt::format("rank {} pid {}: state {}, in {}, system call {}\n", rank, pid, state_of(status),
                        read_proc(pid, "wchan"), read_proc(pid, "syscall"));
  }
}

}  // namespace sgd::agent
