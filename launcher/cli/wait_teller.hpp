#pragma once
// What is said of a run that waits for its first place: no event tells of that, and a wait without a word looks like a
// launcher that hangs. Pure: time is the run's own.

#include <string>

#include "launcher/core/snapshot.hpp"

namespace sgd::cli {

class WaitTeller {
 public:
  static constexpr double kPatience_s = 1;  ///< A place that is found sooner is worth no line.
  static constexpr double kBetween_s = 5;   ///< In a queue that moves the reason changes often.

  /// Why it waits; empty: it does not, or that was said.
  [[nodiscard]] std::string line(const core::RunSnapshot& shot);

 private:
  std::string told_;
  double next_s_ = kPatience_s;
};

}  // namespace sgd::cli
