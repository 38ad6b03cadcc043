#include "launcher/coordinator/core_clock.hpp"

#include <algorithm>

#include "launcher/process/clock.hpp"

namespace sgd::coordinator {

Duration clock_offset(TimePoint machine_now, TimePoint last, std::optional<Duration> former) {
  const Duration at_last = last - machine_now;  // Below 0 where this machine has been up for longer.
  return former ? std::max(*former, at_last) : at_last;
}

TimePoint CoreClock::now() const {
  return process::monotonic_now() + offset_;
}

}  // namespace sgd::coordinator
