#pragma once
// Plays one seed from its first event to its last check.

#include <array>
#include <cstdint>
#include <string>

#include "test/sim/plan.hpp"

namespace sgd::sim {

struct SeedResult {
  std::string violation;  ///< Empty: everything held.
  double simulated_s = 0;
  std::int64_t events = 0;
  std::array<std::int64_t, kFaults> injected{};
};

[[nodiscard]] SeedResult play(std::uint64_t seed, bool verbose);

}  // namespace sgd::sim
