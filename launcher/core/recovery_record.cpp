#include "launcher/core/recovery_record.hpp"

#include <algorithm>

namespace sgd::core {

void RecoveryRecord::begin(TimePoint now, const Failure& cause) {
  // A restart that fails on its way is one recovery with the later cause; the clock runs on from the first.
  if (cause_) {
    const double notice_s = cause_->notice_s;
    cause_ = cause;
    cause_->notice_s = notice_s;
    start_ += now - mark_;
  } else {
    cause_ = cause;
    clear_ = wait_ = start_ = Duration{0};
  }
  mark_ = ready_at_ = now;
}

void RecoveryRecord::cleared(TimePoint now) {
  clear_ += now - mark_;
  mark_ = ready_at_ = now;
}

void RecoveryRecord::started(TimePoint now) {
  wait_ += now - mark_;
  mark_ = ready_at_ = now;
  restore_s_ = 0;
  ready_ = {};
}

void RecoveryRecord::ready(TimePoint now, const link::Ready& ready) {
  ready_at_ = now;
  restore_s_ = std::max(restore_s_, ready.restore_s);
  const std::int64_t redone = std::max(ready_.redone, ready.redone);
  ready_ = ready;
  ready_.redone = redone;
}

nlohmann::ordered_json RecoveryRecord::started_again(TimePoint now, Generation generation, int world_size) const {
  nlohmann::ordered_json event = {{"event", "restarted"}, {"generation", generation}, {"from", what(*cause_)}};
  event["subject"] = cause_->subject;
  event["total_s"] = cause_->notice_s + to_seconds(clear_ + wait_ + start_ + (now - mark_));
  event["notice_s"] = cause_->notice_s;
  event["clear_s"] = to_seconds(clear_);
  event["wait_s"] = to_seconds(wait_);
  event["start_s"] = to_seconds(start_ + (now - mark_));
  event["world_size"] = world_size;
  return event;
}

nlohmann::ordered_json RecoveryRecord::finish(TimePoint now, Generation generation, int world_size, bool bit_exact) {
  const Failure cause = *cause_;
  cause_.reset();
  const Duration begun = ready_at_ - mark_;
  const double restore_s = std::min(restore_s_, to_seconds(begun));
  nlohmann::ordered_json event = {{"event", "recovered"}, {"generation", generation}, {"from", what(cause)}};
  event["subject"] = cause.subject;
  event["total_s"] = cause.notice_s + to_seconds(clear_ + wait_ + start_ + (now - mark_));
  event["notice_s"] = cause.notice_s;
  event["clear_s"] = to_seconds(clear_);
  event["wait_s"] = to_seconds(wait_);
  event["start_s"] = to_seconds(start_ + begun) - restore_s;
  event["restore_s"] = restore_s;
  event["first_step_s"] = to_seconds(now - ready_at_);
  event["step"] = ready_.step;
  event["source"] = ready_.source;
  if (ready_.redone >= 0) event["redone"] = ready_.redone;
  event["world_size"] = world_size;
  event["bit_exact"] = bit_exact;
  ready_ = {};
  return event;
}

}  // namespace sgd::core
