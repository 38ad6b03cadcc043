#pragma once
// Where a new run of this machine has its folder, and where one that is named is looked for.

#include <string>

#include "common/json/diagnostics.hpp"
#include "launcher/storage/run_directory.hpp"

namespace sgd::cli {

/// `given_dir`, else a new folder in runs/. Where nobody has named one and the working directory cannot be written to:
/// in the user's folder for state, else in a private folder of /tmp; that is said. An error is told to `diagnostics`.
[[nodiscard]] Result<storage::RunPlace> place_of_new_run(const std::string& name, const std::string& given_dir,
                                                         Diagnostics& diagnostics);

/// storage::find_run in runs/; where the working directory cannot be written to, also where place_of_new_run puts runs
/// then.
[[nodiscard]] Result<std::string> find_run(const std::string& name);

/// Which folder of runs is listed: runs/, or where the working directory cannot be written to and has none that can be
/// seen, the first of those places that has some.
[[nodiscard]] std::string runs_folder();

}  // namespace sgd::cli
