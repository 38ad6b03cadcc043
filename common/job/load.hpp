#pragma once
// From a job file and the command line's overrides to a JobSpec, or to every error in them.
//   bytes -> json/reader (positions, duplicate keys, limits) -> overrides -> json/schema against
//   configs/job.schema.json -> defaults and absolute paths -> JobSpec
// Creates and starts nothing.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/job/spec.hpp"
#include "common/json/diagnostics.hpp"
#include "common/json/reader.hpp"

namespace sgd::job {

/// Largest job file read, in bytes.
inline constexpr std::size_t kJobFileBytesMax = 1 << 20;
/// The resolved job of a training must fit a line of the worker link.
inline constexpr std::size_t kResolvedBytesMax = 48 << 10;
/// Ranks of a command are not told what they have anyway: its arguments and variables, which fit a frame, also where
/// the job is in it twice.
inline constexpr std::size_t kCommandBytesMax = 256 << 10;

struct Overrides {
  struct Set {
    std::string path;    ///< "training.optimizer.lr"
    std::string value;   ///< As typed: any JSON; text that is no JSON is a string where the schema wants one.
    std::string source;  ///< For diagnostics: "--set training.optimizer.lr" or "--num-workers".
  };
  std::vector<Set> sets;  ///< In command-line order; the last one wins.
};

/// What the job's plug-ins register: {"model": {NAME: PROPERTIES, ...}, "operator": {...}}, as `sgd-worker --schema`
/// says it. Null: that is not known here, and types that are not built in pass as they are.
using Registered = nlohmann::json;

struct LoadResult {
  std::optional<JobSpec> job;  ///< Set exactly when diagnostics hold no error.
  Diagnostics diagnostics;
  std::string source;    ///< What `given` was read from.
  std::string folder;    ///< Where relative paths start.
  json::Document given;  ///< With the overrides, without defaults.
};

/// Reads and validates a training or command job file. `path` may be "-" for standard input.
[[nodiscard]] LoadResult load_job_file(const std::string& path, const Overrides& overrides,
                                       const Registered& registered = {});

/// A job from `-- command...`, with defaults for everything else.
[[nodiscard]] LoadResult load_command_job(const std::vector<std::string>& command, const Overrides& overrides);

/// Reads job.json of a run again. Relative paths in the overrides start in the working directory: that is
/// where they were typed, and the file itself has none.
[[nodiscard]] LoadResult load_run_job(const std::string& path, const Overrides& overrides,
                                      const Registered& registered = {});

/// A JobSpec from a resolved job (`config` of an assignment).
[[nodiscard]] LoadResult load_resolved(const nlohmann::json& resolved, const Registered& registered = {});
/// The same with changes, in which relative paths start in the working directory.
[[nodiscard]] LoadResult load_changed(const nlohmann::json& resolved, const Overrides& overrides,
                                      const Registered& registered = {});

/// A job as it was given, without defaults, whose relative paths start in `folder`. Reads nothing.
[[nodiscard]] LoadResult load_given(const nlohmann::json& given, const std::string& folder, const Overrides& overrides,
                                    const Registered& registered = {});

/// What only the file system can tell, for the launcher before it creates anything: data paths exist,
/// have the right format, header and size. Appends to `diagnostics`, with the places of the job file's keys
/// where known.
void check_data(const JobSpec& job, const std::string& source, Diagnostics& diagnostics);
/// An error where the model cannot fit into `memory_bytes`, all workers being on this machine; 0: not known.
void check_memory_need(const JobSpec& job, const std::string& source, std::int64_t memory_bytes,
                       Diagnostics& diagnostics);

/// The text of configs/job.schema.json as built in.
extern const char* const kSchemaText;

}  // namespace sgd::job
