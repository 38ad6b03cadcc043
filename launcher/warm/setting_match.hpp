#pragma once
// Whether an interpreter that has imported in one setting may serve a run of another one. Pure.

#include <map>
#include <optional>
#include <string>

#include "common/messages/keeper.hpp"
#include "common/messages/warm.hpp"

namespace sgd::warm {

struct Mismatch {
  std::string reason;    ///< "the variable OMP_NUM_THREADS differs"
  bool is_near = false;  ///< It is the same interpreter.
};

/// The environment with which ranks begin: `environment`, and what `server` sets in it.
[[nodiscard]] std::map<std::string, std::string> environment_of_ranks(const Setting& setting,
                                                                      const keeper::StartForkServer& server);

/// Variables that tell of a terminal or a session, and that no module reads when it is imported, may differ; so may the
/// script, and the folder where neither the interpreter nor its search paths are named relative to it. Nothing: it may
/// serve.
[[nodiscard]] std::optional<Mismatch> mismatch(const Setting& held, const Setting& wanted);

/// It has imported what just this script, with these arguments, needs.
[[nodiscard]] bool is_of_same_script(const Setting& held, const Setting& wanted);

}  // namespace sgd::warm
