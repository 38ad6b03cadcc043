#pragma once
// What time it is for those who remove what is old. A clock that is set forward makes everything old at once, and what
// was removed then does not come back when the clock is set right. So wall time that runs ahead of the time that has
// passed is believed only after a while; until then this clock goes on as before. One that is set back is believed at
// once: nothing grows older by that.

#include <optional>

#include "common/base/time.hpp"

namespace sgd::coordinator {

class AgeClock {
 public:
  static constexpr Duration kDoubt = std::chrono::hours(24);
  /// A clock that is kept right is moved by less than that between two looks.
  static constexpr Duration kStep = std::chrono::minutes(1);

  /// Unix time. `unix_s`: as the system says at `now`; the first one is believed.
  [[nodiscard]] double read(double unix_s, TimePoint now);

 private:
  [[nodiscard]] double believe(double unix_s, TimePoint now);

  double unix_s_ = 0;  ///< Believed at `at_`.
  std::optional<TimePoint> at_;
  std::optional<TimePoint> ahead_since_;
};

}  // namespace sgd::coordinator
