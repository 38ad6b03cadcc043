#pragma once
// The verbs. Each takes the words after its name and returns the exit code of sgd-launch.

#include <optional>
#include <string>
#include <vector>

#include "common/json/diagnostics.hpp"
#include "launcher/cli/run_options.hpp"
#include "launcher/net/dialer.hpp"

namespace sgd::cli {

[[nodiscard]] int run_verb(const std::vector<std::string>& arguments);
[[nodiscard]] int resume_verb(const std::vector<std::string>& arguments);
[[nodiscard]] int validate_verb(const std::vector<std::string>& arguments);
[[nodiscard]] int status_verb(const std::vector<std::string>& arguments);
[[nodiscard]] int logs_verb(const std::vector<std::string>& arguments);
[[nodiscard]] int stop_verb(const std::vector<std::string>& arguments);
[[nodiscard]] int checkpoints_verb(const std::vector<std::string>& arguments);
[[nodiscard]] int runs_verb(const std::vector<std::string>& arguments);
[[nodiscard]] int nodes_verb(const std::vector<std::string>& arguments);
[[nodiscard]] int events_verb(const std::vector<std::string>& arguments);
[[nodiscard]] int metrics_verb(const std::vector<std::string>& arguments);
[[nodiscard]] int plot_verb(const std::vector<std::string>& arguments);
[[nodiscard]] int submit_verb(const std::vector<std::string>& arguments);
[[nodiscard]] int plan_verb(const std::vector<std::string>& arguments);
[[nodiscard]] int config_verb(const std::vector<std::string>& arguments);
[[nodiscard]] int ps_verb(const std::vector<std::string>& arguments);
[[nodiscard]] int coordinator_verb(const std::vector<std::string>& arguments);
[[nodiscard]] int agent_verb(const std::vector<std::string>& arguments);
[[nodiscard]] int init_verb(const std::vector<std::string>& arguments);
[[nodiscard]] int token_verb(const std::vector<std::string>& arguments);
[[nodiscard]] int revoke_verb(const std::vector<std::string>& arguments);
[[nodiscard]] int join_verb(const std::vector<std::string>& arguments);
[[nodiscard]] int tune_verb(const std::vector<std::string>& arguments);
[[nodiscard]] int doctor_verb(const std::vector<std::string>& arguments);
[[nodiscard]] int warm_verb(const std::vector<std::string>& arguments);
/// The program that `warm` starts behind itself; `base`: the folder for its socket.
[[nodiscard]] int warm_server_main(const std::string& base);

/// Submits what `options` name, and follows it unless they say --detach. The run's exit code; after errors, those in
/// `found` and the job's, kUsage. Without errors in `found` there is a coordinator.
[[nodiscard]] int run_on_cluster(const RunOptions& options, const std::optional<net::Address>& coordinator,
                                 Diagnostics found);

/// All of them on stderr, and how to get help if there is an error.
void print(const Diagnostics& diagnostics);

}  // namespace sgd::cli
