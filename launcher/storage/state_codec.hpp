#pragma once
// The coordinator's state as rows of text, one for each node, name, run and trial and one for the rest, so that what
// has not changed since they were written need not be written again; and back. Strict, as event_codec.hpp, and for its
// reasons.

#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "launcher/core/coordinator_state.hpp"

namespace sgd::storage {

struct StateRow {
  std::string kind;  ///< "experiment", "lost", "node", "rest", "run", "standing" or "trial".
  std::string id;    ///< Of the node, the run or the trial; empty for the rest.
  std::string text;  ///< JSON.
};

/// By kind and id.
[[nodiscard]] std::vector<StateRow> encode_state(const core::CoordinatorState& state);
[[nodiscard]] Result<core::CoordinatorState> decode_state(const std::vector<StateRow>& rows);

}  // namespace sgd::storage
