#pragma once
// `sgd-launch tune status|best|plot|export [RUN]`: what is known of an experiment, while it runs and when it has ended.

#include <functional>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"
#include "launcher/cli/command_line.hpp"
#include "launcher/cli/run_naming.hpp"

namespace sgd::cli {

[[nodiscard]] int tune_status(const std::vector<std::string>& arguments);
[[nodiscard]] int tune_best(const std::vector<std::string>& arguments);
[[nodiscard]] int tune_plot(const std::vector<std::string>& arguments);
[[nodiscard]] int tune_export(const std::vector<std::string>& arguments);

/// An experiment of this machine. `verb`: the second word; `usage`: what follows it.
[[nodiscard]] NamedRun name_experiment(const char* verb, const std::string& usage, std::vector<Option> options,
                                       const std::vector<std::string>& arguments);

/// All events of the experiment in this folder, in their order. Error: it is none, or cannot be read.
[[nodiscard]] Status read_experiment(const std::string& run_dir,
                                     const std::function<void(const nlohmann::ordered_json& event)>& take);

}  // namespace sgd::cli
