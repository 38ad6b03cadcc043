#include "launcher/coordinator/run_follower.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <utility>

#include "launcher/process/unique_fd.hpp"

namespace sgd::coordinator {
namespace fs = std::filesystem;
namespace {

constexpr const char* kEvents = "events.jsonl";
constexpr const char* kMetrics = "metrics.jsonl";

/// "rank-0003.log" behind "rank-": 3; nothing for another name.
std::optional<std::uint64_t> number_in(std::string_view name, std::string_view before) {
  if (!name.starts_with(before)) return std::nullopt;
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(name.data() + before.size(), name.data() + name.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

}  // namespace

bool FollowSelection::takes(const std::string& file) const {
  if (file == kEvents) return events;
  if (file == kMetrics) return metrics;
  const fs::path path(file);
  if (!checkpoint.empty() && path.parent_path() == checkpoint) return path.has_filename() && path.filename() != "..";
  if (!logs || path.parent_path().parent_path() != "logs") return false;
  const auto generation_here = number_in(path.parent_path().filename().string(), "gen-");
  const auto rank_here = number_in(path.filename().string(), "rank-");
  if (!generation_here || !rank_here) return false;
  return (!generation || *generation == *generation_here) && (!rank || static_cast<std::uint64_t>(*rank) == *rank_here);
}

RunFollower::RunFollower(std::string run_dir, FollowSelection selection, std::map<std::string, std::uint64_t> offsets,
                         Send send)
    : run_dir_(std::move(run_dir)), selection_(std::move(selection)), send_(std::move(send)) {
  for (const auto& [file, offset] : offsets)
    if (selection_.takes(file)) tails_[file] = {offset, offset};
}

void RunFollower::begin() {
  for (const char* file : {kEvents, kMetrics})
    if (selection_.takes(file)) grown_.insert(file);
  look_for_logs();
  look_for_checkpoint();
  pump();
}

void RunFollower::look_for_logs() {
  if (!selection_.logs) return;
  std::error_code error;
  for (const auto& folder : fs::directory_iterator(run_dir_ + "/logs", error)) {
    for (const auto& entry : fs::directory_iterator(folder.path(), error)) {
      const std::string file = "logs/" + folder.path().filename().string() + "/" + entry.path().filename().string();
      if (selection_.takes(file)) grown_.insert(file);
    }
  }
}

/// It does not grow: a checkpoint that has its name is whole.
void RunFollower::look_for_checkpoint() {
  if (selection_.checkpoint.empty()) return;
  std::error_code error;
  for (fs::directory_iterator at(run_dir_ + "/" + selection_.checkpoint, error), end; !error && at != end;
       at.increment(error))
    grown_.insert(selection_.checkpoint + "/" + at->path().filename().string());
}

void RunFollower::on_grown(const std::string& file) {
  if (!selection_.takes(file)) return;
  grown_.insert(file);
  pump();
}

void RunFollower::settle() {
  is_settled_ = true;
  begin();
}

void RunFollower::acknowledge(const std::string& file, std::uint64_t offset) {
  const auto tail = tails_.find(file);
  if (tail == tails_.end() || offset <= tail->second.acknowledged || offset > tail->second.sent) return;
  under_way_ -= offset - tail->second.acknowledged;
  tail->second.acknowledged = offset;
  pump();
}

bool RunFollower::is_done() const {
  return is_settled_ && grown_.empty() && under_way_ == 0;
}

void RunFollower::pump() {
  while (!grown_.empty() && under_way_ < kWindow) {
    const std::string file = *grown_.begin();
    if (pump(file, tails_[file])) grown_.erase(file);
  }
}

bool RunFollower::pump(const std::string& file, Tail& tail) {
  const process::UniqueFd fd(::open((run_dir_ + "/" + file).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return true;
  std::string bytes(kPartBytesMax, '\0');
  while (under_way_ < kWindow) {
    const ssize_t count = ::pread(fd.get(), bytes.data(), bytes.size(), static_cast<off_t>(tail.sent));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;
    const auto size = static_cast<std::size_t>(count);
    send_(file, tail.sent, bytes.substr(0, size));
    tail.sent += size;
    under_way_ += size;
  }
  return false;
}

}  // namespace sgd::coordinator
