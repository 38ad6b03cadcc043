// CoordinatorShell: what it says of runs, from what is known of them here.

#include <algorithm>
#include <tuple>
#include <utility>

#include "common/json/json_file.hpp"
#include "common/json/lenient.hpp"
#include "launcher/coordinator/coordinator_shell.hpp"

namespace sgd::coordinator {

std::string read_summary(const RunRow& row) {
  if (!row.has_summary_in_folder) return row.summary;
  nlohmann::ordered_json summary = json::read_ordered_file(row.run_dir + "/summary.json");
  if (read_or(summary, "state", "") != row.state)  // It was told another end, and its disk had no room for that.
    summary = {{"run", row.id}, {"state", row.state}, {"exit_code", row.exit_code}, {"wall_s", row.wall_s}};
  return row_summary(std::move(summary));
}

std::optional<std::string> CoordinatorShell::owner_of(const RunId& id) const {
  if (const auto known = runs_.find(id); known != runs_.end()) return known->second.row.owner;
  const auto trial = ended_trial(id);
  return trial ? std::optional(trial->owner) : std::nullopt;
}

bool CoordinatorShell::is_of_admin(const RunId& id) const {
  if (const auto run = core_.state().runs_.find(id); run != core_.state().runs_.end())
    return run->second.state().definition_.is_of_admin;
  const core::Experiment* its = experiment(experiment_of(id));
  return its != nullptr && its->definition().is_of_admin;
}

/// Without its summary. Nothing: no such trial has ended, or its row is in runs_.
std::optional<storage::StoredRun> CoordinatorShell::ended_trial(const RunId& id) const {
  const auto experiment = runs_.find(experiment_of(id));
  return experiment == runs_.end() ? std::nullopt : ended_trials_.row(id, experiment->second.row);
}

/// Nothing for a run that the machine does not know. One that has ended, and whose summary is still on its way to the
/// disk, is not over for those who ask.
std::optional<RunRow> CoordinatorShell::shown(const RunId& id, const Run& run) const {
  const storage::StoredRun& row = run.row;
  RunRow shown{id,
               row.name,
               row.owner,
               row.state,
               core::name(core::RunPhase::kFinished),
               "",
               row.exit_code,
               row.wall_s,
               row.num_workers,
               0,
               row.submitted_s,
               row.finished_s,
               row.run_dir,
               row.summary};
  if (!is_live(run)) return shown;
  shown.shot = snapshot(id, core::Ranks::kLeftOut);
  if (!shown.shot) return row.state.empty() ? std::nullopt : std::optional(shown);
  shown.state = "live";
  shown.phase = core::name(shown.shot->phase);
  shown.reason = shown.shot->reason;
  shown.wall_s = shown.shot->wall_s;
  shown.world_size = shown.shot->world_size;
  return shown;
}

bool CoordinatorShell::is_live(const Run& run) {
  return run.row.state.empty() || (run.records && run.records->is_ending());
}

/// Its id is that of its experiment, and a number.
bool CoordinatorShell::is_trial(const RunId& id) const {
  return runs_.contains(experiment_of(id));
}

bool CoordinatorShell::is_over(const RunId& id) const {
  const auto known = runs_.find(id);
  return known == runs_.end() ? ended_trial(id).has_value() : !is_live(known->second);
}

std::vector<CoordinatorShell::RunFolder> CoordinatorShell::folders() const {
  std::vector<RunFolder> folders;
  for (const auto& [id, run] : runs_)
    if (!is_trial(id)) folders.push_back({id, run.row.run_dir, is_live(run) ? 0 : run.row.finished_s});
  return folders;
}

std::optional<RunRow> CoordinatorShell::run(const RunId& id) const {
  if (const auto known = runs_.find(id); known != runs_.end()) return shown(id, known->second);
  auto row = ended_trial(id);
  if (!row) return std::nullopt;
  auto shown_row = shown(id, Run{nullptr, *std::move(row)});
  if (shown_row) shown_row->has_summary_in_folder = true;
  return shown_row;
}

std::optional<std::string> CoordinatorShell::directory_of(const RunId& id) const {
  if (const auto known = runs_.find(id); known != runs_.end()) return known->second.row.run_dir;
  const auto trial = ended_trial(id);
  return trial ? std::optional(trial->run_dir) : std::nullopt;
}

std::vector<RunRow> CoordinatorShell::runs(Which which) const {
  std::vector<RunRow> rows;
  for (const RunId& id : run_ids(which))
    if (auto row = run(id)) rows.push_back(*std::move(row));
  return rows;
}

std::vector<RunId> CoordinatorShell::run_ids(Which which) const {
  std::vector<std::pair<double, RunId>> found;
  const auto add = [&](const RunId& id, const Run& run) {
    if ((which == Which::kAll || is_live(run)) && !is_trial(id)) found.emplace_back(run.row.submitted_s, id);
  };
  if (which == Which::kAll)
    for (const auto& [id, run] : runs_) add(id, run);
  else
    for (const auto& [id, run] : live_) add(id, *run);
  std::sort(found.begin(), found.end());
  std::vector<RunId> ids;
  ids.reserve(found.size());
  for (auto& [submitted_s, id] : found) ids.push_back(std::move(id));
  return ids;
}

std::map<std::string, int> CoordinatorShell::live_phases() const {
  std::map<std::string, int> phases;
  for (const auto& [id, run] : live_) {
    if (!is_live(*run) || is_trial(id)) continue;
    const auto machine = core_.state().runs_.find(id);
    if (machine != core_.state().runs_.end())
      ++phases[core::name(machine->second.state().phase_)];
    else if (const auto shot = snapshot(id))  // An experiment.
      ++phases[core::name(shot->phase)];
  }
  return phases;
}

std::vector<RunId> CoordinatorShell::ids(const std::string& prefix, std::size_t most) const {
  std::vector<RunId> found;
  if (prefix.empty()) {
    const storage::StoredRun* newest = nullptr;
    for (const auto& [id, run] : runs_) {
      const bool is_newer =
          newest == nullptr || std::tie(newest->submitted_s, newest->id) < std::tie(run.row.submitted_s, id);
      if (is_newer && !is_trial(id)) newest = &run.row;
    }
    if (newest != nullptr) found.push_back(newest->id);
    return found;
  }
  for (auto run = runs_.lower_bound(prefix); run != runs_.end() && run->first.starts_with(prefix); ++run) {
    if (found.size() == most) break;
    const bool stands_for_itself = !is_trial(run->first) || run->first.rfind('.') < prefix.size();
    if (stands_for_itself) found.push_back(run->first);
  }
  for (RunId& trial : ended_trials_.of(experiment_of(prefix)))
    if (trial.starts_with(prefix)) found.push_back(std::move(trial));
  std::sort(found.begin(), found.end());
  found.resize(std::min(found.size(), most));
  return found;
}

}  // namespace sgd::coordinator
