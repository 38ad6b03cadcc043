#include "launcher/process/random_seed.hpp"

#include <sys/random.h>

#include "common/base/assert.hpp"

namespace sgd::process {

std::array<std::uint64_t, 4> random_seed() {
  std::array<std::uint64_t, 4> seed{};
  SGD_ASSERT(::getrandom(seed.data(), sizeof seed, 0) == static_cast<ssize_t>(sizeof seed));
  return seed;
}

}  // namespace sgd::process
