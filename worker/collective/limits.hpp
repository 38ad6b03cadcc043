#pragma once
// Written limits of collective messages, checked before memory is taken for them.

#include <cstddef>
#include <string>

#include "worker/collective/collective.hpp"

namespace sgd::worker {

/// One rank's message in an all_gather.
inline constexpr std::size_t kGatherBytesMax = std::size_t{1} << 30;

inline void check_gather_bytes(std::size_t bytes) {
  if (bytes > kGatherBytesMax) {
    throw CollectiveError("all_gather: a message of " + std::to_string(bytes) + " bytes is over the limit of " +
                          std::to_string(kGatherBytesMax));
  }
}

}  // namespace sgd::worker
