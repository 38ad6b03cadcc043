#pragma once
// Asks a running run through its control.sock. One question, one answer, with a deadline.

#include <optional>
#include <string>

#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"

namespace sgd::cli {

/// Between two looks at a run that is followed by its files, milliseconds.
inline constexpr int kFollowPollMs = 50;

/// Of a trial, the launcher of its experiment. The answer, nothing when nobody listens any more, or an error that says
/// what went wrong.
[[nodiscard]] Result<std::optional<nlohmann::ordered_json>> ask_run(const std::string& run_dir,
                                                                    const nlohmann::json& request);

/// The same at a socket; `run_dir` names the run where an error is told.
[[nodiscard]] Result<std::optional<nlohmann::ordered_json>> ask_socket(const std::string& path,
                                                                       const std::string& run_dir,
                                                                       const nlohmann::json& request);

}  // namespace sgd::cli
