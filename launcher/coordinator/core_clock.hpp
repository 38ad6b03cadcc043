#pragma once
// Core time: the clock of a machine whose events outlive the process, and even the boot, that it ran in. It is the
// machine's monotonic clock and an offset: 0 for a run without a store; after a restart such that core time never goes
// back. While the machine itself was down, core time stood still.

#include <optional>

#include "common/base/time.hpp"

namespace sgd::coordinator {

/// Of a coordinator that goes on after `last`, the core time of its last stored event. `former` was in use since this
/// machine was started: then time went on while there was no coordinator.
[[nodiscard]] Duration clock_offset(TimePoint machine_now, TimePoint last, std::optional<Duration> former);

class CoreClock {
 public:
  explicit CoreClock(Duration offset = Duration{0}) : offset_(offset) {}

  [[nodiscard]] TimePoint now() const;
  /// On the machine's clock, for timers.
  [[nodiscard]] TimePoint machine_time(TimePoint at) const { return at - offset_; }

 private:
  Duration offset_;
};

}  // namespace sgd::coordinator
