#pragma once
// What a line of metrics has of the workers' reports, by the job's "report": the reduced values, rank 0's, or a list of
// workers' beside them or in their place. Pure: the line's own keys (step, generation, time) are added by who writes
// it.

#include <map>
#include <string>
#include <vector>

#include "common/base/ids.hpp"
#include "common/job/spec.hpp"
#include "common/json/nlohmann.hpp"
#include "launcher/core/report_reducer.hpp"

namespace sgd::core {

/// Where a rank runs, for "detailed" lines.
struct WorkerPlace {
  NodeId hostname;
  std::string address;
  int pid = 0;
};

/// RaySGD's keys beside each worker's own: of the line, and of each worker in a list.
struct LineTimes {
  double this_iter_s = 0;
  double total_s = 0;
  std::int64_t iteration = 0;  ///< From 1.
};

/// The values of a line. `places`: by rank, with "detailed"; a rank that is not there has none.
[[nodiscard]] nlohmann::ordered_json chosen_values(const ReducedReport& report, const job::ReportRules& rules);

/// Adds `_time_this_iter_s`, `_training_iteration` and, where the rules say so, `_hostname`, `_node_ip`, `_pid` and
/// `_time_total_s`, to the line and to each worker in its list; they are in the place of a worker's keys of these
/// names. Only `_time_this_iter_s` stays as a worker has given it, who may have measured better.
void add_autofilled(nlohmann::ordered_json& line, const job::ReportRules& rules, const LineTimes& times,
                    const std::map<Rank, WorkerPlace>& places);

/// What a printed line has to say. NaN and Infinity, which Python's json prints, are null: no number, and the worst.
struct PrintedValues {
  nlohmann::json values;  ///< An object with at least one key.
  std::string fault;      ///< Why there are none; empty: there are.
};
[[nodiscard]] PrintedValues printed_values(const std::string& line);

/// The ranks that a line lists, in its order; those of a list that are not there now are left out.
[[nodiscard]] std::vector<Rank> listed_ranks(const job::ReportRules& rules, int world_size);

}  // namespace sgd::core
