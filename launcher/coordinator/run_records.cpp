#include "launcher/coordinator/run_records.hpp"

#include <utility>

namespace sgd::coordinator {

RunRecords::RunRecords(std::unique_ptr<storage::RunDirectory> directory, RunObserver observer, bool has_store)
    : directory_(std::move(directory)),
      observer_(std::move(observer)),
      has_store_(has_store),
      leaves_out_(directory_ == nullptr) {}

storage::LineCounts RunRecords::end_skipping() {
  return std::exchange(skip_, {});
}

void RunRecords::event(const nlohmann::ordered_json& event) {
  if (skip_.events > 0) {
    --skip_.events;
    return;
  }
  if (!may_write() || !is_written(directory_->append_event(event)))
    defer([this, event] { return directory_->append_event(event); });
  if (observer_.on_event) observer_.on_event(event);
}

void RunRecords::metrics(const nlohmann::ordered_json& metrics) {
  if (skip_.metrics > 0) {
    --skip_.metrics;
    return;
  }
  if (!may_write() || !is_written(directory_->append_metrics(metrics)))
    defer([this, metrics] { return directory_->append_metrics(metrics); });
  if (observer_.on_metrics) observer_.on_metrics(metrics);
}

void RunRecords::finish(const core::RunOutcome& outcome) {
  is_finished_ = true;
  if (!may_write() || !is_written(directory_->write_summary(outcome)))
    defer([this, outcome] { return directory_->write_summary(outcome); });
  if (directory_) directory_->unlink_control_socket();
  if (observer_.on_finished) observer_.on_finished(outcome);
}

void RunRecords::keep_checkpoints(const std::vector<std::string>& paths) {
  if (directory_) directory_->keep_checkpoints(paths);
  if (observer_.on_keep) observer_.on_keep(paths);
}

void RunRecords::warn(const std::string& message) {
  if (observer_.on_warning) observer_.on_warning(message);
}

void RunRecords::retry() {
  while (!waiting_.empty()) {
    if (!is_written(waiting_.front()())) return;
    waiting_.pop_front();
  }
  is_troubled_ = false;
}

bool RunRecords::is_written(const Status& status) {
  if (status) return true;
  const char* rest = has_store_ ? "; it is written as soon as that is possible" : "; the run goes on without";
  if (!is_troubled_) warn(status.error().message + rest);
  is_troubled_ = true;
  return false;
}

void RunRecords::defer(Write write) {
  if (!has_store_ || leaves_out_) return;
  if (waiting_.size() < kWaitingMax) return waiting_.push_back(std::move(write));
  leaves_out_ = true;
  waiting_.clear();
  warn("too many lines wait to be written to the run directory; the next start of the coordinator makes up for them");
}

}  // namespace sgd::coordinator
