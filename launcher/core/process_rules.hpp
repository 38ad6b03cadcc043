#pragma once
// What a job's "process" says of one rank of a command: where its output goes, and what it reads.

#include <string>

#include "common/base/time.hpp"
#include "common/messages/cluster.hpp"
#include "common/messages/keeper.hpp"

namespace sgd::core {

/// Bits of torchrun's codes: 1 stdout, 2 stderr.
[[nodiscard]] int stream_code(const std::string& codes, int local_rank);

/// Where files as torchrun's are written for the ranks of this generation on this node; empty: nowhere.
[[nodiscard]] std::string attempt_folder(const cluster::DesiredRun& run);

/// Fills in what `spawn` says of output, input and the record of a failure; a job without "process" keeps what is
/// there.
void apply_process_rules(const cluster::DesiredRun& run, int local_rank, keeper::Spawn& spawn);

/// What stands in front of a rank's lines in files that have those of several: the job's own prefix, else torchrun's.
/// What differs from line to line (${time}, ${stream}) is left out.
[[nodiscard]] std::string line_prefix(const cluster::DesiredRun& run, const NodeId& node, Rank rank, int local_rank);

/// Its ranks meet at a port of each of them (TF_CONFIG), not only of rank 0.
[[nodiscard]] bool has_port_of_each(const nlohmann::json& job);

/// How long its ranks have from SIGTERM to SIGKILL when another one has failed.
[[nodiscard]] Duration shutdown_timeout(const nlohmann::json& job);

/// The signal is one that its ranks are told of when the launcher gets it.
[[nodiscard]] bool passes_signal(const nlohmann::json& job, int signal);

}  // namespace sgd::core
