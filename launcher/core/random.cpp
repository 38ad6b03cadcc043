#include "launcher/core/random.hpp"

#include <bit>

namespace sgd::core {

Random::Random(std::array<std::uint64_t, 4> seed) : state_(seed) {
  if ((state_[0] | state_[1] | state_[2] | state_[3]) == 0) state_[0] = 1;  // All zero is its fixed point.
}

std::uint64_t Random::next() {
  const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const std::uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

}  // namespace sgd::core
