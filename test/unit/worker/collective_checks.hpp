#pragma once
// What every collective must do, whatever moves its bytes: called in each rank's process.

#include <functional>
#include <string>

#include "worker/collective/collective.hpp"

namespace sgd::worker::testing {

/// Every operation, several sizes, against expected values; throws a text at the first difference.
void check_collective(Collective& collective);

/// The text of the CollectiveMismatch that `call` throws, after some steps.
[[nodiscard]] std::string mismatch_of(Collective& collective, const std::function<void(Collective&)>& call);

/// Some all-reduces whose sums depend on their order; throws when a rank has other bits than rank 0.
void check_bit_equal(Collective& collective);

}  // namespace sgd::worker::testing
