#pragma once
// What is looked at before anything is created or changed: the job that the options name, and what it needs
// of this machine (data, the worker program, the command's program).

#include <cstddef>
#include <string>

#include "common/job/load.hpp"
#include "common/json/diagnostics.hpp"
#include "launcher/cli/run_options.hpp"
#include "launcher/process/file_limit.hpp"

namespace sgd::cli {

/// The job file or command that `options` name. What is wrong with the options (`found`) comes before what is wrong
/// with the job, so that a user reads all of it at once; there is a job whenever it is right itself.
[[nodiscard]] job::LoadResult load_named_job(const RunOptions& options, Diagnostics found);

/// Appends which limit of the shell is too low for the job's workers on this machine.
void check_limits(const job::JobSpec& job, const process::ResourceLimits& limits, Diagnostics& diagnostics);

/// Appends that this machine's GPUs do not suffice for the job's workers. `visible`: what CUDA_VISIBLE_DEVICES says.
void check_gpus(const job::JobSpec& job, std::size_t gpus, const char* visible, Diagnostics& diagnostics);

/// Appends why `program` cannot be started: the same search as then, before a run directory exists.
void check_program(const std::string& key, const std::string& program, Diagnostics& diagnostics);

/// Appends that `job` is one of an experiment, and not of one run.
void refuse_experiment(const job::JobSpec& job, const std::string& source, Diagnostics& diagnostics);

/// Appends a warning of files in this folder that a job's command names: a node of a cluster starts it elsewhere.
void warn_of_files_here(const job::JobSpec& job, Diagnostics& diagnostics);

/// Appends what is missing. `source` stands for the job where a place in its file is not known.
void check_start(const job::JobSpec& job, const std::string& source, Diagnostics& diagnostics);

}  // namespace sgd::cli
