#pragma once
// The clock of a rank's measurements and deadlines.

#include <chrono>

#include "common/base/time.hpp"

namespace sgd::worker {

inline TimePoint time_now() {
  return std::chrono::steady_clock::now();
}

}  // namespace sgd::worker
