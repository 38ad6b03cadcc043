#pragma once
// The coordinator's events as one line of JSON each, as the event store keeps them, and back:
// {"v":1,"type":"from_agent","node":"a","message":{...}}. Strict, because a replay that guesses makes another machine
// than the one that was: an unknown version, type or missing field is an error. A new alternative of the variant does
// not compile without its coding, nor a new field of one of its structs.

#include <string>
#include <string_view>

#include "common/base/result.hpp"
#include "launcher/core/coordinator_io.hpp"

namespace sgd::storage {

/// Version of the coding; another one is refused.
inline constexpr int kEventVersion = 1;

[[nodiscard]] std::string encode_event(const core::CoordinatorEvent& event);
/// A job comes from its resolved form through the loader, so it is validated again.
[[nodiscard]] Result<core::CoordinatorEvent> decode_event(std::string_view text);

}  // namespace sgd::storage
