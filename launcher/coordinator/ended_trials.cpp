#include "launcher/coordinator/ended_trials.hpp"

#include <charconv>
#include <utility>

#include <fmt/format.h>

namespace sgd::coordinator {
namespace {

RunId id_of(const RunId& experiment, std::int64_t number) {
  return fmt::format("{}.{:04}", experiment, number);
}

/// Nothing: no experiment makes such an id.
std::optional<std::int64_t> number_of(const RunId& trial) {
  const RunId experiment = experiment_of(trial);
  if (experiment.empty()) return std::nullopt;
  std::int64_t number = 0;
  const char* end = trial.data() + trial.size();
  const auto [stop, error] = std::from_chars(trial.data() + experiment.size() + 1, end, number);
  if (error != std::errc() || stop != end || number < 0 || id_of(experiment, number) != trial) return std::nullopt;
  return number;
}

std::string folder_of(const storage::StoredRun& experiment, std::int64_t number) {
  return fmt::format("{}/trials/{:04}", experiment.run_dir, number);
}

}  // namespace

std::string row_summary(nlohmann::ordered_json summary) {
  constexpr std::size_t kBytesMax = 16 << 10;
  const auto text = [&summary] {
    return summary.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  };
  for (const char* key : {"results", "metrics", "error"}) {
    if (text().size() <= kBytesMax) break;
    summary[key] = nullptr;
  }
  return text();
}

RunId experiment_of(const RunId& run) {
  const std::size_t dot = run.rfind('.');
  return dot == std::string::npos ? RunId() : run.substr(0, dot);
}

bool EndedTrials::add(const storage::StoredRun& trial, const storage::StoredRun& experiment) {
  const auto number = number_of(trial.id);
  const bool follows = number && experiment_of(trial.id) == experiment.id && trial.name == experiment.name &&
                       trial.owner == experiment.owner && trial.request_id.empty() &&
                       trial.run_dir == folder_of(experiment, *number);
  if (!follows) return false;
  trials_[experiment.id][*number] = {&*states_.insert(trial.state).first,
                                     trial.submitted_s,
                                     trial.finished_s,
                                     trial.wall_s,
                                     trial.lines_before,
                                     trial.exit_code,
                                     trial.num_workers};
  return true;
}

const EndedTrials::Brief* EndedTrials::find(const RunId& trial) const {
  const auto known = trials_.find(experiment_of(trial));
  const auto number = known == trials_.end() ? std::nullopt : number_of(trial);
  if (!number) return nullptr;
  const auto found = known->second.find(*number);
  return found == known->second.end() ? nullptr : &found->second;
}

std::optional<storage::StoredRun> EndedTrials::row(const RunId& trial, const storage::StoredRun& experiment) const {
  const Brief* brief = find(trial);
  if (brief == nullptr) return std::nullopt;
  storage::StoredRun row;
  row.id = trial;
  row.name = experiment.name;
  row.owner = experiment.owner;
  row.run_dir = folder_of(experiment, *number_of(trial));
  row.num_workers = brief->num_workers;
  row.state = *brief->state;
  row.exit_code = brief->exit_code;
  row.submitted_s = brief->submitted_s;
  row.finished_s = brief->finished_s;
  row.wall_s = brief->wall_s;
  row.lines_before = brief->lines_before;
  return row;
}

std::vector<RunId> EndedTrials::of(const RunId& experiment) const {
  std::vector<RunId> ids;
  const auto known = trials_.find(experiment);
  if (known == trials_.end()) return ids;
  ids.reserve(known->second.size());
  for (const auto& [number, brief] : known->second) ids.push_back(id_of(experiment, number));
  return ids;
}

void EndedTrials::add_lines(const RunId& trial, const storage::LineCounts& lines) {
  if (find(trial) == nullptr) return;
  storage::LineCounts& before = trials_.at(experiment_of(trial)).at(*number_of(trial)).lines_before;
  before.events += lines.events;
  before.metrics += lines.metrics;
}

bool EndedTrials::remove(const RunId& trial) {
  if (find(trial) == nullptr) return false;
  const auto known = trials_.find(experiment_of(trial));
  known->second.erase(*number_of(trial));
  if (known->second.empty()) trials_.erase(known);
  return true;
}

}  // namespace sgd::coordinator
