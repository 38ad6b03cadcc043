#include "launcher/process/clock.hpp"

#include <algorithm>
#include <chrono>

namespace sgd::process {

TimePoint monotonic_now() {
  return std::chrono::steady_clock::now();
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

int poll_timeout_ms(TimePoint now, TimePoint deadline) {
  if (deadline <= now) return 0;
  const auto wait = std::min<Duration>(deadline - now, std::chrono::hours(1));
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(wait).count());
}

}  // namespace sgd::process
