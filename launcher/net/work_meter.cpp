#include "launcher/net/work_meter.hpp"

#include <algorithm>

namespace sgd::net {

Duration WorkMeter::owed(TimePoint now) const {
  const Duration made_up = from_seconds(to_seconds(now - at_) * share_.share);
  return std::max(Duration::zero(), owed_ - made_up);
}

void WorkMeter::charge(TimePoint now, Duration work) {
  owed_ = owed(now) + work;
  at_ = now;
}

Duration WorkMeter::wait(TimePoint now) const {
  const Duration over = owed(now) - share_.burst;
  if (over <= Duration::zero()) return Duration::zero();
  return std::min(kRestMax, from_seconds(to_seconds(over) / share_.share));
}

}  // namespace sgd::net
