#pragma once
// Metrics of a run, wherever it is, in the form of another tool, into a folder here: what a callback of the job would
// have made.

#include <optional>
#include <string>

#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"
#include "launcher/cli/run_naming.hpp"

namespace sgd::cli {

/// `shape`: "tensorboard", "csv" or "json". Says where; the exit code.
[[nodiscard]] int export_metrics(const NamedRun& run, const std::string& shape, const std::string& folder);

/// The same of a run's folder here, as the job's `callback` says; where it is. `run`: for names. `succeeded`: nothing:
/// the run goes on.
[[nodiscard]] Result<std::string> write_reports(const nlohmann::json& callback, const std::string& run,
                                                const std::string& run_dir, const nlohmann::json& job,
                                                std::optional<bool> succeeded);

/// Of a run's folder here; null where it cannot be read.
[[nodiscard]] nlohmann::json job_in(const std::string& run_dir);

}  // namespace sgd::cli
