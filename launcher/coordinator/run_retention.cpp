#include "launcher/coordinator/run_retention.hpp"

#include <utility>

#include <fmt/format.h>

#include "common/base/bytes.hpp"
#include "launcher/process/clock.hpp"

namespace sgd::coordinator {

/// What the folders say.
struct RunRetention::Look {
  std::vector<storage::EndedRun> runs;
  std::vector<storage::EndedRun> strays;
  storage::DiskRoom disk;
};

RunRetention::RunRetention(boost::asio::io_context& io, CoordinatorShell& shell, storage::FileThread& files,
                           std::string runs_dir, std::function<bool(const RunId& run)> is_over, Log log)
    : shell_(shell),
      files_(files),
      runs_dir_(std::move(runs_dir)),
      is_over_(std::move(is_over)),
      log_(std::move(log)),
      timer_(io) {}

void RunRetention::start() {
  look_later(kFirstLook);
}

void RunRetention::look_later(Duration delay) {
  timer_.after(delay, [this] { look(); });
}

void RunRetention::note_ended(const RunId& run) {
  if (!shell_.is_trial(run) && ++ended_ >= kEndedMax && !is_looking_) look_later(Duration::zero());
}

/// An ended run's folder does not grow: its size is asked for once. An experiment may have lived again since.
void RunRetention::look() {
  is_looking_ = true;
  ended_ = 0;
  std::vector<storage::EndedRun> runs;
  std::vector<std::shared_ptr<storage::OwnerRoom>> rooms;  // Of each of them.
  for (const CoordinatorShell::RunFolder& folder : shell_.folders()) {
    storage::EndedRun run{folder.id, folder.run_dir, is_over_(folder.id) ? folder.finished_s : 0, -1, false};
    if (const auto before = known_.find(folder.id);
        before != known_.end() && run.finished_s > 0 && before->second.finished_s == run.finished_s)
      run.bytes = before->second.bytes;
    rooms.push_back(room_of(shell_.owner_of(run.id).value_or("")));
    runs.push_back(std::move(run));
  }
  const double now_s = clock_.read(process::unix_seconds(), process::monotonic_now());
  const auto measure = [runs = std::move(runs), rooms = std::move(rooms), runs_dir = runs_dir_, now_s]() mutable {
    std::set<RunId> ids;
    for (std::size_t number = 0; number < runs.size(); ++number) {
      storage::EndedRun& run = runs[number];
      ids.insert(run.id);
      if (run.bytes < 0) run.bytes = rooms[number]->measure(run.directory);
      run.is_pinned = storage::is_pinned(run.directory);
    }
    auto strays = storage::strays_below(runs_dir, ids, now_s);
    rooms.clear();
    return Look{std::move(runs), std::move(strays), storage::disk_room(runs_dir)};
  };
  files_.ask(measure, [this](const Look& looked) { on_looked(looked); });
}

void RunRetention::on_looked(const Look& look) {
  known_.clear();
  strays_.clear();
  disk_ = look.disk;
  std::erase_if(rooms_, [](const auto& one) { return one.second.use_count() == 1 && one.second->bytes() == 0; });
  std::vector<storage::EndedRun> ended;
  const auto note = [&](const storage::EndedRun& run, std::map<RunId, storage::EndedRun>& runs) {
    runs[run.id] = run;
    if (run.finished_s > 0 && !going_.contains(run.id)) ended.push_back(run);
  };
  for (const storage::EndedRun& run : look.runs) note(run, known_);
  for (const storage::EndedRun& run : look.strays)
    if (!shell_.directory_of(run.id)) note(run, strays_);
  const double now_s = clock_.read(process::unix_seconds(), process::monotonic_now());
  for (const storage::EndedRun& run : storage::beyond(std::move(ended), retention, now_s))
    remove_folder(run, [](const std::string&) {});
  is_looking_ = false;
  look_later(ended_ >= kEndedMax ? Duration::zero() : kLook);
}

std::optional<std::string> RunRetention::folder_of(const RunId& run) const {
  if (auto directory = shell_.directory_of(run)) return directory;
  const auto stray = strays_.find(run);
  return stray == strays_.end() ? std::nullopt : std::optional(stray->second.directory);
}

void RunRetention::remove(const RunId& run, Done done) {
  const auto folder = folder_of(run);
  if (!folder) return done("no run " + run);
  if (!strays_.contains(run) && !is_over_(run))
    return done(fmt::format("{} has not ended: sgd-launch stop ends it", run));
  if (going_.contains(run)) return done("");
  const auto known = known_.find(run);
  const std::int64_t bytes = known == known_.end() ? 0 : known->second.bytes;
  const auto ask_pinned = [folder = *folder]() -> Result<bool> { return storage::is_pinned(folder); };
  files_.ask_within(kDiskLimit, ask_pinned, [this, run, bytes, folder = *folder, done](const Result<bool>& is_pinned) {
    if (!is_pinned) return done(is_pinned.error().message);
    if (is_pinned.value()) return done(fmt::format("{0} is pinned: sgd-launch runs unpin {0} ends that", run));
    remove_folder({run, folder, 0, bytes, false}, done);
  });
}

/// While the disk was asked, an experiment may have been made to go on.
void RunRetention::remove_folder(const storage::EndedRun& run, const Done& done) {
  if (!strays_.contains(run.id) && !is_over_(run.id)) return done(fmt::format("{} goes on", run.id));
  if (!going_.insert(run.id).second) return done("");
  // Who has pinned it meanwhile, in front of this, keeps it.
  const auto remove = [id = run.id, folder = run.directory]() -> Status {
    if (storage::is_pinned(folder)) return Error{fmt::format("{0} is pinned: sgd-launch runs unpin {0} ends that", id)};
    return storage::remove_run_folder(folder);
  };
  files_.ask(remove, [this, run, done](const Status& removed) {
    going_.erase(run.id);
    if (!removed) {
      log_(fmt::format("run {}: {}", run.id, removed.error().message));
      return done(removed.error().message);
    }
    known_.erase(run.id);
    if (const auto owner = shell_.owner_of(run.id)) room_of(*owner)->remove(run.directory);
    strays_.erase(run.id);
    shell_.forget_run(run.id);
    log_(fmt::format("run {}: removed, {}", run.id, format_bytes(run.bytes)));
    done("");
  });
}

void RunRetention::pin(const RunId& run, bool pinned, Done done) {
  const auto folder = folder_of(run);
  if (!folder) return done("no run " + run);
  if (pinned && going_.contains(run)) return done(fmt::format("{} is being removed", run));
  const auto set = [folder = *folder, pinned] { return storage::set_pinned(folder, pinned); };
  files_.ask_within(kDiskLimit, set, [this, run, pinned, done](const Status& is_set) {
    for (auto* runs : {&known_, &strays_})
      if (const auto found = runs->find(run); is_set.ok() && found != runs->end()) found->second.is_pinned = pinned;
    done(is_set.ok() ? "" : is_set.error().message);
  });
}

std::shared_ptr<storage::OwnerRoom> RunRetention::room_of(const std::string& owner) {
  std::shared_ptr<storage::OwnerRoom>& room = rooms_[owner];
  if (!room) room = std::make_shared<storage::OwnerRoom>(owner, owner_bytes_max);
  return room;
}

std::int64_t RunRetention::bytes_of(const std::string& owner) const {
  const auto found = rooms_.find(owner);
  return found == rooms_.end() ? 0 : found->second->bytes();
}

std::int64_t RunRetention::bytes_most_of(const std::string& owner) const {
  return disk_ && owner_bytes_max == 0 ? storage::share_of_disk(*disk_, bytes_of(owner)) : 0;
}

}  // namespace sgd::coordinator
