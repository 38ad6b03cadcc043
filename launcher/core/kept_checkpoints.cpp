#include "launcher/core/kept_checkpoints.hpp"

#include <algorithm>
#include <cmath>

#include "common/checkpoint/manifest.hpp"
#include "common/json/lenient.hpp"
#include "launcher/tune/metric.hpp"

namespace sgd::core {
namespace {

/// The places in `all` of those with a score, the best first.
std::vector<std::size_t> ranking(const std::vector<ScoredCheckpoint>& all, bool is_highest) {
  std::vector<std::size_t> places;
  for (std::size_t place = all.size(); place-- > 0;)
    if (all[place].score && std::isfinite(*all[place].score)) places.push_back(place);
  // From the newest on, and stable: of equal ones the newer comes first.
  std::stable_sort(places.begin(), places.end(), [&](std::size_t left, std::size_t right) {
    return is_highest ? *all[left].score > *all[right].score : *all[left].score < *all[right].score;
  });
  return places;
}

}  // namespace

KeptCheckpoints kept_checkpoints(const std::vector<ScoredCheckpoint>& all, const job::CheckpointPolicy& policy) {
  KeptCheckpoints kept;
  const std::size_t latest = std::min(all.size(), static_cast<std::size_t>(std::max(policy.keep, 1)));
  std::vector<bool> stays(all.size(), false);
  std::fill(stays.end() - static_cast<std::ptrdiff_t>(latest), stays.end(), true);
  if (policy.best) {
    for (const std::size_t place : ranking(all, policy.best->is_highest)) {
      if (kept.best.size() >= static_cast<std::size_t>(policy.best->count)) break;
      stays[place] = true;
      kept.best.push_back(all[place]);
    }
  }
  for (std::size_t place = 0; place < all.size(); ++place)
    if (stays[place]) kept.paths.push_back(all[place].path);
  return kept;
}

std::optional<std::int64_t> step_of(const std::string& path) {
  const auto name = checkpoint::parse_directory_name(path.substr(path.rfind('/') + 1));
  return name ? std::optional(name->step) : std::nullopt;
}

std::set<std::int64_t> steps_of(const std::vector<std::string>& paths) {
  std::set<std::int64_t> steps;
  for (const std::string& path : paths)
    if (const auto step = step_of(path)) steps.insert(*step);
  return steps;
}

std::vector<ScoredCheckpoint> scored(const std::vector<std::string>& paths, const Scores& scores) {
  std::vector<ScoredCheckpoint> all;
  for (const std::string& path : paths) {
    const auto step = step_of(path);
    const auto score = step ? scores.find(*step) : scores.end();
    all.push_back({path, score == scores.end() ? std::nullopt : std::optional(score->second)});
  }
  return all;
}

std::optional<double> score_in(const nlohmann::ordered_json& line, const job::KeepBest& best) {
  const nlohmann::ordered_json* value = tune::find_value(line, best.metric);
  if (value == nullptr || !value->is_number() || !std::isfinite(value->get<double>())) return std::nullopt;
  return value->get<double>();
}

bool note_score(const nlohmann::ordered_json& line, const job::KeepBest& best, const std::vector<std::string>& paths,
                Scores& scores) {
  const auto score = score_in(line, best);
  const auto step = read_or(line, "step", std::int64_t{-1});
  if (!score || step < 0) return false;
  const auto [place, is_new] = scores.try_emplace(step, *score);
  const bool is_other = is_new || place->second != *score;
  place->second = *score;
  const std::set<std::int64_t> used = steps_of(paths);
  for (auto old = scores.begin(); old != scores.end() && scores.size() > kScoresMax;)
    old = used.contains(old->first) || old->first == step ? std::next(old) : scores.erase(old);
  return is_other && used.contains(step);
}

}  // namespace sgd::core
