#include "launcher/cli/trial_rows.hpp"

#include <algorithm>
#include <array>
#include <string>

namespace sgd::cli {
namespace {

using Json = nlohmann::ordered_json;

/// "workers" is none, but means several rows to who writes tables of reports.
bool is_taken(const std::string& name) {
  constexpr std::array kOwn = {"trial", "state", "iteration", "best", "best_iteration", "wall_s", "workers"};
  return std::find(kOwn.begin(), kOwn.end(), name) != kOwn.end();
}

}  // namespace

std::vector<Json> trial_rows(const TrialTable& table) {
  const std::string metric = (is_taken(table.metric()) ? "metric/" : "") + table.metric();
  std::vector<Json> rows;
  for (const auto& [number, trial] : table.trials()) {
    Json row = {{"trial", number}, {"state", trial.state}};
    for (const auto& [name, value] : trial.best_parameters().items())
      row[(is_taken(name) || name == metric ? "config/" : "") + name] = value;
    row["iteration"] = trial.iteration;
    row[metric] = trial.value ? Json(*trial.value) : Json(nullptr);
    row["best"] = trial.best ? Json(*trial.best) : Json(nullptr);
    row["best_iteration"] = trial.best_iteration;
    row["wall_s"] = trial.wall_s;
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace sgd::cli
