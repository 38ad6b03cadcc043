#pragma once
// Jobs that name plug-ins: the worker program loads them and says what they register, so that their settings in a job
// file are checked like built-in ones before anything starts. The launcher itself loads nothing of a user's.

#include <functional>

#include "common/job/load.hpp"

namespace sgd::cli {

/// `load` with nothing known of plug-ins, and once more with what the job's register. A plug-in that cannot be loaded
/// is an error of the job, at its "plugins". Where there is no worker program here, its types pass unchecked.
[[nodiscard]] job::LoadResult load_with_plugins(
    const std::function<job::LoadResult(const job::Registered& registered)>& load);

}  // namespace sgd::cli
