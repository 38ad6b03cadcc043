#pragma once
// What is searched: the parameters of an experiment, each with its domain. Whether a path exists in the job file is asked
// of the job file's schema (check_paths); whether a value fits there, of the loader, trial by trial.

#include <cstdint>
#include <map>
#include <string>

#include "common/job/load.hpp"
#include "launcher/tune/domain.hpp"
#include "launcher/tune/trial.hpp"

namespace sgd::tune {

/// Most trials of one experiment.
inline constexpr std::uint64_t kTrialsMax = 100'000;
/// Most parameters.
inline constexpr std::size_t kParametersMax = 256;

struct Parameters {
  std::map<std::string, Domain> domains;  ///< By path, or by a command's own name.

  [[nodiscard]] nlohmann::json to_json() const;
  /// Empty: `values` has exactly these parameters, each in its domain. Else what is wrong, in words.
  [[nodiscard]] std::string misfit(const Values& values) const;
};

/// `tune.parameters` of a job file.
[[nodiscard]] Parameters parse_parameters(const nlohmann::json& given, const Spot& spot, Diagnostics& diagnostics);

/// An error for each path that the job file has no place for, with what may be meant. A job with a command may have
/// parameters of its own names (no dot), which its arguments and environment take. `job`: as given, or resolved.
void check_paths(const Parameters& parameters, const nlohmann::json& job, const Spot& spot, Diagnostics& diagnostics);

/// A trial's values as overrides of the job, for job::load_job_file and job::load_changed; without those that only a
/// command knows.
[[nodiscard]] job::Overrides overrides_of(const Trial& trial);

}  // namespace sgd::tune
