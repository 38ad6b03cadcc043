#pragma once
// The state of an agent's machine as rows of text, one for each run and one for the rest; and back. Strict, as
// state_codec.hpp, and for its reasons.

#include <vector>

#include "common/base/result.hpp"
#include "launcher/core/agent.hpp"
#include "launcher/storage/state_codec.hpp"

namespace sgd::storage {

/// Kinds: "agent" and "run". Between two events.
[[nodiscard]] std::vector<StateRow> encode_agent(const core::Agent& agent);
[[nodiscard]] Result<core::SavedAgent> decode_agent(const std::vector<StateRow>& rows);

}  // namespace sgd::storage
