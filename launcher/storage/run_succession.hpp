#pragma once
// How a run that has ended is gone on with: in its own folder, or in another one that begins as a copy of it.

#include <string>

#include "common/base/result.hpp"
#include "launcher/storage/run_directory.hpp"
#include "launcher/storage/run_history.hpp"

namespace sgd::storage {

/// `to`, a new folder, gets the events and metrics of the run in `from`, and its checkpoints as hard links: neither run
/// loses what the other one removes.
[[nodiscard]] Status copy_run(const std::string& from, const std::string& to);

/// The first events of the new life in `directory`, which `history` is the past of: what it goes on from, what is left
/// out.
[[nodiscard]] Status record_resumption(RunDirectory& directory, const RunHistory& history);

}  // namespace sgd::storage
