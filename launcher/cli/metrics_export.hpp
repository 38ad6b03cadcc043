#pragma once
// Metrics of a run, wherever it is, in the form of another tool, into a folder here: what a callback of the job would
// have made.

#include <string>

#include "launcher/cli/run_naming.hpp"

namespace sgd::cli {

/// `shape`: "tensorboard", "csv" or "json". Says where; the exit code.
[[nodiscard]] int export_metrics(const NamedRun& run, const std::string& shape, const std::string& folder);

}  // namespace sgd::cli
