#include "launcher/coordinator/run_retention.hpp"

#include <utility>

#include <fmt/format.h>

#include "common/base/bytes.hpp"
#include "launcher/process/clock.hpp"

namespace sgd::coordinator {

RunRetention::RunRetention(boost::asio::io_context& io, CoordinatorShell& shell, storage::FileThread& files,
                           std::function<bool(const RunId& run)> is_over, Log log)
    : shell_(shell), files_(files), is_over_(std::move(is_over)), log_(std::move(log)), timer_(io) {}

void RunRetention::start() {
  look_later(kFirstLook);
}

void RunRetention::look_later(Duration delay) {
  timer_.expires_after(delay);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) look();
  });
}

/// An ended run's folder does not grow: its size is asked for once.
void RunRetention::look() {
  std::vector<storage::EndedRun> runs;
  for (const RunRow& row : shell_.runs()) {
    storage::EndedRun run{row.id, row.run_dir, is_over_(row.id) ? row.finished_s : 0, -1, false};
    if (const auto before = known_.find(row.id); before != known_.end() && before->second.finished_s > 0)
      run.bytes = before->second.bytes;
    runs.push_back(std::move(run));
  }
  const auto measure = [runs = std::move(runs)]() mutable {
    for (storage::EndedRun& run : runs) {
      if (run.bytes < 0) run.bytes = storage::bytes_below(run.directory);
      run.is_pinned = storage::is_pinned(run.directory);
    }
    return std::move(runs);
  };
  files_.ask(measure, [this](const std::vector<storage::EndedRun>& measured) { on_looked(measured); });
}

void RunRetention::on_looked(const std::vector<storage::EndedRun>& runs) {
  known_.clear();
  std::vector<storage::EndedRun> ended;
  for (const storage::EndedRun& run : runs) {
    known_[run.id] = run;
    if (run.finished_s > 0 && !going_.contains(run.id)) ended.push_back(run);
  }
  for (const storage::EndedRun& run : storage::beyond(std::move(ended), retention, process::unix_seconds()))
    remove_folder(run, [](const std::string&) {});
  look_later(kLook);
}

void RunRetention::remove(const RunId& run, Done done) {
  const auto row = shell_.run(run);
  if (!row || !is_over_(run)) return done(fmt::format("{} has not ended: sgd-launch stop ends it", run));
  if (going_.contains(run)) return done("");
  const auto known = known_.find(run);
  const std::int64_t bytes = known == known_.end() ? 0 : known->second.bytes;
  files_.ask([folder = row->run_dir] { return storage::is_pinned(folder); },
             [this, run, bytes, row = *row, done = std::move(done)](bool is_pinned) {
               if (is_pinned) return done(fmt::format("{} is pinned: sgd-launch runs unpin first", run));
               remove_folder({run, row.run_dir, row.finished_s, bytes, false}, done);
             });
}

void RunRetention::remove_folder(const storage::EndedRun& run, const Done& done) {
  if (!going_.insert(run.id).second) return done("");
  files_.ask([folder = run.directory] { return storage::remove_run_folder(folder); },
             [this, run, done](const Status& removed) {
               going_.erase(run.id);
               if (!removed) {
                 log_(fmt::format("run {}: {}", run.id, removed.error().message));
                 return done(removed.error().message);
               }
               known_.erase(run.id);
               shell_.forget_run(run.id);
               log_(fmt::format("run {}: removed, {}", run.id, format_bytes(run.bytes)));
               done("");
             });
}

void RunRetention::pin(const RunId& run, bool pinned, Done done) {
  const auto row = shell_.run(run);
  if (!row) return done("no run " + run);
  files_.ask([folder = row->run_dir, pinned] { return storage::set_pinned(folder, pinned); },
             [this, run, pinned, done = std::move(done)](const Status& set) {
               if (const auto known = known_.find(run); set.ok() && known != known_.end())
                 known->second.is_pinned = pinned;
               done(set.ok() ? "" : set.error().message);
             });
}

std::int64_t RunRetention::bytes_of(const std::string& owner) const {
  std::int64_t bytes = 0;
  for (const auto& [id, run] : known_)
    if (const auto row = shell_.owner_of(id); row && *row == owner) bytes += run.bytes;
  return bytes;
}

}  // namespace sgd::coordinator
