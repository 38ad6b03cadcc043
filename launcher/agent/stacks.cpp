#include "launcher/agent/stacks.hpp"

#include <fmt/format.h>

#include "common/json/json_file.hpp"
#include "launcher/process/account.hpp"
#include "launcher/storage/beneath.hpp"
#include "launcher/storage/file_owner.hpp"

namespace sgd::agent {
namespace {

/// Files of /proc have no size of their own to trust.
std::string read_proc(int pid, const char* name) {
  const Result<std::string> read = json::text_of_file(fmt::format("/proc/{}/{}", pid, name));
  std::string text = read ? read.value() : std::string();
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

void append(const storage::Beneath& folder, const std::string& name, const std::string& text) {
  const auto file = folder.write(name);
  const auto size = file ? file.value().size() : Result<std::uint64_t>(file.error());
  if (size) (void)file.value().write_at(size.value(), text);  // Ignoring: best effort.
}

}  // namespace

void keep_stacks(const std::string& run_dir, Generation generation, const std::map<Rank, int>& pids) {
  const auto owner = storage::other_owner(run_dir);
  const storage::ScopedFileOwner as(owner);
  const auto folder = storage::Beneath::open(run_dir);
  if (!folder) return;
  for (const auto& [rank, pid] : pids) {
    // The numbers come from the run's own keeper: it may not make us look at processes of others.
    const auto user = process::user_of_process(pid);
    if (!user || (owner && user.value() != owner->uid)) continue;
    const std::string status = read_proc(pid, "status");
    if (status.empty()) continue;
    append(folder.value(), fmt::format("errors/gen-{:04d}-rank-{:04d}.stack", generation, rank),
           fmt::format("rank {} pid {}: state {}, in {}, system call {}\n", rank, pid, state_of(status),
                       read_proc(pid, "wchan"), read_proc(pid, "syscall")));
  }
}

}  // namespace sgd::agent
