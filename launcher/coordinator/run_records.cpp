#include "launcher/coordinator/run_records.hpp"

#include <utility>

#include <fmt/format.h>

#include "launcher/process/clock.hpp"

namespace sgd::coordinator {

/// What the disk is asked to write together.
struct RunRecords::Batch {
  std::vector<Record> records;
  TimePoint since;
  std::size_t written = 0;  ///< The others have not been tried, but for the first of them.
  Status status;
};

RunRecords::RunRecords(std::shared_ptr<storage::RunDirectory> directory, RunObserver observer, bool has_store,
                       Disk disk)
    : directory_(std::move(directory)),
      observer_(std::move(observer)),
      has_store_(has_store),
      disk_(std::move(disk)),
      leaves_out_(directory_ == nullptr) {}

RunRecords::~RunRecords() {
  *is_here_ = false;
}

storage::LineCounts RunRecords::end_skipping() {
  return std::exchange(skip_, {});
}

void RunRecords::event(const nlohmann::ordered_json& event, std::uint64_t after) {
  if (skip_.events > 0) {
    --skip_.events;
    return;
  }
  const auto line = std::make_shared<const nlohmann::ordered_json>(event);
  add({[directory = directory_.get(), line, at = process::unix_seconds()] {
         return directory->append_event(*line, at);
       },
       [this, line] {
         if (observer_.on_event) observer_.on_event(*line);
       },
       after});
}

void RunRecords::metrics(const nlohmann::ordered_json& metrics, std::uint64_t after) {
  if (skip_.metrics > 0) {
    --skip_.metrics;
    return;
  }
  const auto line = std::make_shared<const nlohmann::ordered_json>(metrics);
  add({[directory = directory_.get(), line, at = process::unix_seconds()] {
         return directory->append_metrics(*line, at);
       },
       [this, line] {
         if (observer_.on_metrics) observer_.on_metrics(*line);
       },
       after});
}

void RunRecords::best(const nlohmann::ordered_json& best, std::uint64_t after) {
  const auto text = std::make_shared<const nlohmann::ordered_json>(best);
  add([directory = directory_.get(), text] { return directory->write_best(*text); }, after);
}

void RunRecords::finish(const core::RunOutcome& outcome, std::uint64_t after) {
  is_finished_ = true;
  if (observer_.is_settled_later) unsettled_after_ = after;
  const auto summary = std::make_shared<const core::RunOutcome>(outcome);
  add({[directory = directory_.get(), summary] {
         const Status written = directory->write_summary(*summary);
         directory->unlink_control_socket();
         return written;
       },
       [this, summary, life = life_] {
         if (life != life_) return;  // It has gone on since.
         is_finish_told_ = true;
         if (observer_.on_finished) observer_.on_finished(*summary);
       },
       after});
}

void RunRecords::change_job(const nlohmann::json& job, std::uint64_t after) {
  const auto text = std::make_shared<const nlohmann::json>(job);
  add([directory = directory_.get(), text] { return directory->change_job(*text); }, after);
}

void RunRecords::take_checkpoint(const std::string& from, const std::string& to) {
  if (!directory_) return;
  if (const Status taken = directory_->take_checkpoint(from, to); !taken) warn(taken.error().message);
}

void RunRecords::begin_again(std::uint64_t after) {
  is_finished_ = is_finish_told_ = false;
  unsettled_after_.reset();
  ++life_;
  add([directory = directory_.get()] { return directory->remove_summary(); }, after);
}

void RunRecords::settle() {
  if (is_finish_told_) unsettled_after_.reset();
}

void RunRecords::add(std::function<Status()> write, std::uint64_t after) {
  add({std::move(write), {}, after});
}

void RunRecords::rewrite_summary(const core::RunOutcome& outcome) {
  add([directory = directory_, outcome] { return directory->write_summary(outcome); });
}

void RunRecords::keep_checkpoints(const std::vector<std::string>& paths) {
  if (directory_) directory_->keep_checkpoints(paths);
  if (observer_.on_keep) observer_.on_keep(paths);
}

void RunRecords::spare_checkpoints(const std::vector<std::string>& paths) {
  if (directory_) directory_->spare_checkpoints(paths);
}

void RunRecords::warn(const std::string& message) {
  if (observer_.on_warning) observer_.on_warning(message);
}

/// Who watches hears of a line when it is in its file, or when it is known that it has to wait.
void RunRecords::add(Record record) {
  const auto tell = [&record] {
    if (record.tell) std::exchange(record.tell, {})();
  };
  if (leaves_out_) return tell();
  if (is_troubled_ && has_store_) tell();
  waiting_.push_back(std::move(record));
  if (waiting_.size() > kWaitingMax) return give_up();
  if (!is_troubled_ || !has_store_) write();
}

void RunRecords::write() {
  if (in_work_ || waiting_.empty()) return;
  const auto batch = std::make_shared<Batch>();
  in_work_ = batch;
  batch->since = process::monotonic_now();
  batch->records.assign(std::make_move_iterator(waiting_.begin()), std::make_move_iterator(waiting_.end()));
  waiting_.clear();
  // With the folder's lock, which is let go of as soon as this is carried out or dropped.
  auto work = [batch, directory = directory_] {
    for (; batch->written < batch->records.size(); ++batch->written) {
      batch->status = batch->records[batch->written].write();
      if (!batch->status) return;
    }
  };
  if (!disk_) {
    work();
    return on_done(*batch);
  }
  disk_(std::move(work), [this, batch, is_here = is_here_] {
    if (!*is_here) return;
    on_done(*batch);
    if (const auto tell = on_change) tell();  // A copy: this may end with it.
  });
}

void RunRecords::on_done(Batch& batch) {
  const auto done = std::exchange(in_work_, nullptr);  // It holds the batch.
  if (std::exchange(is_hanging_, false)) warn("the disk answers again");
  for (std::size_t index = 0; index < batch.written; ++index)
    if (batch.records[index].tell) std::exchange(batch.records[index].tell, {})();
  if (batch.status.ok()) {
    if (has_store_) is_troubled_ = false;
    return write();
  }
  on_trouble(batch.status.error().message);
  for (std::size_t index = batch.records.size(); index > batch.written; --index)
    waiting_.push_front(std::move(batch.records[index - 1]));
  tell_all();
  if (!has_store_ || leaves_out_) waiting_.clear();
}

void RunRecords::on_trouble(const std::string& message) {
  const char* rest = has_store_ ? "; it is written as soon as that is possible" : "; the run goes on without";
  if (!std::exchange(is_troubled_, true)) warn(message + rest);
}

void RunRecords::tell_all() {
  for (std::size_t index = 0; index < waiting_.size(); ++index)
    if (waiting_[index].tell) std::exchange(waiting_[index].tell, {})();
}

void RunRecords::give_up() {
  leaves_out_ = true;
  warn("too many lines wait to be written to the run directory; the next start of the coordinator makes up for them");
  tell_all();
  waiting_.clear();
}

void RunRecords::retry() {
  write();
}

std::optional<std::uint64_t> RunRecords::written_up_to() const {
  if (in_work_) return in_work_->records.front().after;
  return waiting_.empty() ? std::nullopt : std::optional(waiting_.front().after);
}

Duration RunRecords::unanswered_for(TimePoint now) const {
  return in_work_ ? now - in_work_->since : Duration{0};
}

void RunRecords::watch(TimePoint now) {
  if (is_hanging_ || unanswered_for(now) < kPatience) return;
  is_hanging_ = true;
  warn(fmt::format("the disk has not answered for {}: what is to be recorded waits", format_duration(kPatience)));
}

}  // namespace sgd::coordinator
