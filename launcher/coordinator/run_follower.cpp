#include "launcher/coordinator/run_follower.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "launcher/process/accept_loop.hpp"
#include "launcher/process/clock.hpp"
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

/// Generation, rank and name of a log; of another file the name alone.
std::tuple<std::optional<std::uint64_t>, std::optional<std::uint64_t>, std::string_view> place_of(
    std::string_view file) {
  constexpr std::string_view kLogs = "logs/";
  if (!file.starts_with(kLogs)) return {std::nullopt, std::nullopt, file};
  return {number_in(file.substr(kLogs.size()), "gen-"), number_in(file.substr(file.rfind('/') + 1), "rank-"), file};
}

/// Of a lack of descriptors, and of a disk with errors, nothing follows about what is there.
bool tells_nothing(const std::error_code& error) {
  return process::is_shortage(error.value()) || error.value() == EIO;
}

}  // namespace

/// What has come of one look.
struct FoundFiles {
  std::vector<std::string> files;
  std::string trouble;  ///< Why not everything could be looked at.

  void note(const std::string& path, const std::error_code& error) {
    if (tells_nothing(error)) trouble = fmt::format("cannot read {}: {}", path, error.message());
  }
};

namespace {

/// Calls `visit(name)`; what a folder loses meanwhile ends it.
template <class Visit>
void for_each_in(const std::string& folder, FoundFiles& found, Visit visit) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    visit(at->path().filename().string());
  found.note(folder, error);
}

void look_for_logs(const std::string& run_dir, const FollowSelection& selection, FoundFiles& found) {
  for_each_in(run_dir + "/logs", found, [&](const std::string& generation) {
    for_each_in(run_dir + "/logs/" + generation, found, [&](const std::string& name) {
      std::string file = "logs/" + generation + "/" + name;
      if (selection.takes(file)) found.files.push_back(std::move(file));
    });
  });
}

/// It does not grow: a checkpoint that has its name is whole.
void look_for_checkpoint(const std::string& run_dir, const std::string& checkpoint, FoundFiles& found) {
  for_each_in(run_dir + "/" + checkpoint, found,
              [&](const std::string& name) { found.files.push_back(checkpoint + "/" + name); });
}

}  // namespace

bool FollowOrder::operator()(const std::string& one, const std::string& other) const {
  return place_of(one) < place_of(other);
}

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

/// One piece of work: what is asked of the thread, and what has come of it.
struct RunFollower::Reading {
  struct File {
    std::string name;
    std::uint64_t from = 0;
    std::vector<std::string> parts;
    bool is_at_end = false;
  };
  std::string run_dir;
  FollowSelection selection;
  bool looks = false;
  std::uint64_t room = 0;
  std::vector<File> files;
  FoundFiles found;

  void carry_out() {
    if (looks && selection.logs) look_for_logs(run_dir, selection, found);
    if (looks && !selection.checkpoint.empty()) look_for_checkpoint(run_dir, selection.checkpoint, found);
    for (File& file : files) read(file);
  }
  void read(File& file) {
    const process::UniqueFd fd(::open((run_dir + "/" + file.name).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!fd) return give_up(file);
    for (std::uint64_t at = file.from; room > 0;) {
      std::string bytes(std::min<std::uint64_t>(kPartBytesMax, room), '\0');
      const ssize_t count = ::pread(fd.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return give_up(file);
      file.is_at_end = count == 0;
      if (file.is_at_end) return;
      bytes.resize(static_cast<std::size_t>(count));
      at += bytes.size();
      room -= bytes.size();
      file.parts.push_back(std::move(bytes));
    }
  }
  /// For now, or for good.
  void give_up(File& file) {
    const std::error_code error(errno, std::generic_category());
    file.is_at_end = !tells_nothing(error);
    found.note(run_dir + "/" + file.name, error);
  }
};

RunFollower::RunFollower(storage::FileThread& files, std::string run_dir, FollowSelection selection,
                         std::map<std::string, std::uint64_t> offsets, Send send, std::function<void()> on_change)
    : files_(files),
      run_dir_(std::move(run_dir)),
      selection_(std::move(selection)),
      send_(std::move(send)),
      on_change_(std::move(on_change)) {
  for (const auto& [file, offset] : offsets)
    if (selection_.takes(file)) tails_[file] = {offset, offset};
}

RunFollower::~RunFollower() {
  *is_here_ = false;
}

void RunFollower::begin() {
  for (const char* file : {kEvents, kMetrics})
    if (selection_.takes(file)) grown_.insert(file);
  looks_ = selection_.logs || !selection_.checkpoint.empty();
  pump();
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
  return is_settled_ && grown_.empty() && !looks_ && !asked_at_ && under_way_ == 0;
}

void RunFollower::try_again() {
  if (!trouble_.empty()) pump();
}

Duration RunFollower::unanswered_for(TimePoint now) const {
  const auto since = troubled_at_ ? troubled_at_ : asked_at_;
  return since ? now - *since : Duration{0};
}

/// What grows while it is read is read once more.
void RunFollower::pump() {
  if (asked_at_ || (!looks_ && (grown_.empty() || under_way_ >= kWindow))) return;
  const auto reading = std::make_shared<Reading>();
  reading->run_dir = run_dir_;
  reading->selection = selection_;
  reading->looks = std::exchange(looks_, false);
  reading->room = under_way_ >= kWindow ? 0 : std::min<std::uint64_t>(kWindow - under_way_, kReadBytesMax);
  while (reading->room > 0 && !grown_.empty() && reading->files.size() < kReadFilesMax) {
    const std::string file = *grown_.begin();
    grown_.erase(grown_.begin());
    reading->files.push_back({file, tails_[file].sent, {}, false});
  }
  asked_at_ = process::monotonic_now();
  files_.run([reading] { reading->carry_out(); },
             [this, reading, is_here = is_here_] {
               if (!*is_here) return;
               on_read(*reading);
               if (const auto tell = on_change_) tell();
             });
}

void RunFollower::on_read(const Reading& reading) {
  trouble_ = reading.found.trouble;
  if (trouble_.empty())
    troubled_at_.reset();
  else if (!troubled_at_)
    troubled_at_ = asked_at_;
  asked_at_.reset();
  looks_ = looks_ || (reading.looks && !trouble_.empty());
  for (const std::string& file : reading.found.files)
    if (selection_.takes(file)) grown_.insert(file);
  const auto is_here = is_here_;
  for (const Reading::File& file : reading.files) {
    Tail& tail = tails_[file.name];
    for (const std::string& part : file.parts) {
      const std::uint64_t offset = tail.sent;
      tail.sent += part.size();
      under_way_ += part.size();
      send_(file.name, offset, part);
      if (!*is_here) return;  // Its client is gone.
    }
    if (!file.is_at_end) grown_.insert(file.name);
  }
  if (trouble_.empty()) pump();
}

}  // namespace sgd::coordinator
