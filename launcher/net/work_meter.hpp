#pragma once
// How much of an event loop's time one peer may take: what it sends costs work, and who has it done faster than its
// share is not read until it is within it again. So nobody's messages, whatever they say, hold up those of others for
// long. Pure: the time is an argument.

#include "common/base/time.hpp"

namespace sgd::net {

struct WorkShare {
  Duration burst = std::chrono::seconds(1);  ///< Of work, at once.
  double share = 0.1;                        ///< Of one core, for longer.
};

class WorkMeter {
 public:
  /// Nobody is left unread for longer at a time: who is within a time-out is heard.
  static constexpr Duration kRestMax = std::chrono::milliseconds(500);

  explicit WorkMeter(WorkShare share = {}) : share_(share) {}

  void charge(TimePoint now, Duration work);
  /// How long the peer is to wait before more of it is read; zero: it need not.
  [[nodiscard]] Duration wait(TimePoint now) const;
  /// Nothing of it is remembered that a new one would not know.
  [[nodiscard]] bool owes_nothing(TimePoint now) const { return owed(now) == Duration::zero(); }

 private:
  [[nodiscard]] Duration owed(TimePoint now) const;

  WorkShare share_;
  Duration owed_{};  ///< Work that is not made up for by time yet, at `at_`.
  TimePoint at_{};
};

}  // namespace sgd::net
