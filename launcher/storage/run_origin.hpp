#pragma once
// Where a new run begins that goes on from the state of another one ("resume_from"): found and proved before anything
// is made, then taken into the new run's own folder. The other one stays as it is, and may be removed afterwards.
//
// There it is the checkpoint of generation 0, older than all that the run saves itself: restarts, resume and the files'
// way to other nodes know it as one of the run's own.

#include <string>

#include "common/base/result.hpp"
#include "launcher/storage/run_directory.hpp"
#include "launcher/storage/run_history.hpp"

namespace sgd::storage {

struct RunOrigin {
  std::string checkpoint;  ///< The folder, absolute.
  RunHistory history;      ///< What fit_to_job() looks at, and newer checkpoints of the run that are damaged.
};

/// What place_of_checkpoint() finds `path` by: "taken.0001.step-..." of what is not among the run's own ones, where
/// another one may have the same name. Empty: it is not in the run's folder.
[[nodiscard]] std::string name_of_checkpoint(const std::string& run, const std::string& path);

/// Whether place_of_checkpoint() may find something by it; the disk is not asked.
[[nodiscard]] bool is_checkpoint_name(const std::string& name);

/// The checkpoint of this name that `run` has: its own, one that it has taken of another run, or one that was put
/// aside. Where it has none, the place of its own ones. Empty: that is no checkpoint's name.
[[nodiscard]] std::string place_of_checkpoint(const std::string& run, const std::string& name);

/// `folder`: a checkpoint, or a run, whose newest whole checkpoint is meant. Errors say what is missing or damaged.
[[nodiscard]] Result<RunOrigin> read_origin(const std::string& folder);

/// Takes the checkpoint into the folder of a new run, as hard links where that can be done, and records it. Returns
/// what the run goes on from.
[[nodiscard]] Result<core::RunPast> begin_from(const RunOrigin& origin, RunDirectory& directory);

}  // namespace sgd::storage
