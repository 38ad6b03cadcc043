#pragma once
// What a job's "resume_from" names on this machine.

#include <optional>

#include "common/job/load.hpp"
#include "launcher/storage/run_origin.hpp"

namespace sgd::cli {

/// The checkpoint with which the run begins, of which the job then has the folder; nothing where the job names none, or
/// an error is appended: it is missing, damaged, or the job cannot go on from it.
[[nodiscard]] std::optional<storage::RunOrigin> find_origin(job::LoadResult& loaded);

}  // namespace sgd::cli
