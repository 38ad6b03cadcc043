#include "launcher/coordinator/age_clock.hpp"

namespace sgd::coordinator {

double AgeClock::read(double unix_s, TimePoint now) {
  if (!at_) return believe(unix_s, now);
  const double expected_s = unix_s_ + to_seconds(now - *at_);
  if (unix_s <= expected_s + to_seconds(kStep)) return believe(unix_s, now);
  if (!ahead_since_) ahead_since_ = now;
  return now - *ahead_since_ < kDoubt ? expected_s : believe(unix_s, now);
}

double AgeClock::believe(double unix_s, TimePoint now) {
  unix_s_ = unix_s;
  at_ = now;
  ahead_since_.reset();
  return unix_s;
}

}  // namespace sgd::coordinator
