#pragma once
// `sgd-launch tune status|best|plot|export [RUN]`: what is known of an experiment, here or on a cluster, while it runs
// and when it has ended.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"
#include "launcher/cli/command_line.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/scratch_folder.hpp"

namespace sgd::cli {

[[nodiscard]] int tune_status(const std::vector<std::string>& arguments);
[[nodiscard]] int tune_best(const std::vector<std::string>& arguments);
[[nodiscard]] int tune_plot(const std::vector<std::string>& arguments);
[[nodiscard]] int tune_export(const std::vector<std::string>& arguments);

struct NamedExperiment {
  NamedRun run;                         ///< With is_named and exit_code.
  std::unique_ptr<ScratchFolder> here;  ///< Of one on a cluster: what has been fetched of it.
  std::string folder;                   ///< That has its events.jsonl.
};

/// `verb`: the second word; `usage`: what follows it. The events of one on a cluster are fetched.
[[nodiscard]] NamedExperiment name_experiment(const char* verb, const std::string& usage, std::vector<Option> options,
                                              const std::vector<std::string>& arguments);

/// All its events, in their order. Error: it is none, or cannot be read.
[[nodiscard]] Status read_experiment(const NamedExperiment& named,
                                     const std::function<void(const nlohmann::ordered_json& event)>& take);

/// What somebody would type to have the best trial of one on this machine once more. `best`: what best.json says;
/// `shown_folder`, `experiment`: the folders of the trial and of the experiment, as people would type them.
[[nodiscard]] std::string best_again(const nlohmann::ordered_json& best, const std::string& shown_folder,
                                     const std::string& experiment);

/// By which the run of its trial is known on a cluster.
[[nodiscard]] std::string trial_run_name(const std::string& experiment, std::int64_t trial);

}  // namespace sgd::cli
