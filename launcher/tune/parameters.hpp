#pragma once
// What is searched: the parameters of an experiment, each with its domain. Whether a path exists in the job file, and
// takes such values, is asked of the job file's schema; what several keys together may have, of the loader, trial by
// trial.

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
[[nodiscard]] Parameters parse_parameters(const nlohmann::json& given, const SourceLocation& location,
                                          Diagnostics& diagnostics);

/// The environment variable in which a command finds it: SGD_PARAM_TRAINING_BATCH_SIZE is that of
/// "training.batch_size".
[[nodiscard]] std::string variable_of(const std::string& parameter);

/// True for a parameter that is no path of the job file: a command's own, of letters, digits and '_', which its
/// arguments take as {name}. `job`: as given, or resolved.
[[nodiscard]] bool is_own_name(const std::string& name, const nlohmann::json& job);

/// An error for each path that the job file has no place for, with what may be meant, and for values of a domain that
/// cannot stand there, and for two that a command would find in one variable. `registered` as in job/load.hpp.
void check_paths(const Parameters& parameters, const job::LoadResult& loaded, const job::Registered& registered,
                 const SourceLocation& location, Diagnostics& diagnostics);

/// A trial's values as overrides of its job, for job::load_job_file and job::load_changed; without a command's own.
[[nodiscard]] job::Overrides overrides_of(const Trial& trial, const nlohmann::json& job);

}  // namespace sgd::tune
