#pragma once
// Checkpoints that a run has saved and does not go on from, since they are of epochs that metrics.jsonl has no line of:
// workers save by themselves, and what they report is lost with a launcher that is killed. They may be all that is left
// of hours of training, so a resume puts them aside in checkpoints/ahead/, where nothing counts them, and each goes
// when the run has a whole checkpoint of its step or a later one. No more can be there than that one life had saved.

#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/checkpoint/manifest.hpp"

namespace sgd::storage {

/// Below checkpoints/.
inline constexpr const char* kAheadFolder = "ahead";

/// `paths`: of checkpoints, relative to the folder of the run.
[[nodiscard]] Status put_ahead(const std::string& run_dir, const std::vector<std::string>& paths);

/// Takes away those in `checkpoints`, the folder of all, that a run has come to which has saved `newest`. What cannot
/// be removed stays.
void remove_passed(const std::string& checkpoints, const checkpoint::DirectoryName& newest);

/// The folder of the run that `checkpoint` lies in, also where it is put aside.
[[nodiscard]] std::string run_of_checkpoint(const std::string& checkpoint);

}  // namespace sgd::storage
