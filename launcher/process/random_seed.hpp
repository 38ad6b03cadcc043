#pragma once
// Chance from the system, for generators and ids.

#include <array>
#include <cstdint>

namespace sgd::process {

[[nodiscard]] std::array<std::uint64_t, 4> random_seed();

}  // namespace sgd::process
