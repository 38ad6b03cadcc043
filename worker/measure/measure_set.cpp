#include "worker/measure/measure_set.hpp"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "common/job/metric_key.hpp"

namespace sgd::worker {
namespace {

const char* prefix_of(MeasuredPhase phase) {
  return phase == MeasuredPhase::kTraining ? "train_" : "val_";
}

}  // namespace

MeasureSet::MeasureSet(const std::vector<nlohmann::json>& settings) {
  for (const nlohmann::json& one : settings) {
    const std::string on = one.value("on", "validation");
    const std::string key = job::metric_key(one);
    for (const MeasuredPhase phase : {MeasuredPhase::kTraining, MeasuredPhase::kValidation}) {
      const char* name = phase == MeasuredPhase::kTraining ? "train" : "validation";
      if (on != name && on != "both") continue;
      measures_.push_back({phase, prefix_of(phase) + key, make_metric(one), nullptr});
      measures_.back().nothing = measures_.back().metric->state();
    }
  }
}

bool MeasureSet::is_on(MeasuredPhase phase) const {
  return std::any_of(measures_.begin(), measures_.end(), [phase](const Measure& one) { return one.phase == phase; });
}

void MeasureSet::add(MeasuredPhase phase, const at::Tensor& output, const at::Tensor& target) {
  for (Measure& one : measures_)
    if (one.phase == phase) one.metric->add(output, target);
}

nlohmann::json MeasureSet::state() const {
  nlohmann::json state = nlohmann::json::object();
  for (const MeasuredPhase phase : {MeasuredPhase::kTraining, MeasuredPhase::kValidation}) {
    const bool is_begun = std::any_of(measures_.begin(), measures_.end(), [phase](const Measure& one) {
      return one.phase == phase && one.metric->state() != one.nothing;
    });
    if (is_begun) state.update(state_of(phase));
  }
  return state;
}

nlohmann::json MeasureSet::state_of(MeasuredPhase phase) const {
  nlohmann::json state = nlohmann::json::object();
  for (const Measure& one : measures_)
    if (one.phase == phase) state[one.key] = one.metric->state();
  return state;
}

void MeasureSet::merge(const nlohmann::json& state) {
  for (const auto& [key, counted] : state.items()) {
    const auto found =
        std::find_if(measures_.begin(), measures_.end(), [name = key](const Measure& one) { return one.key == name; });
    if (found == measures_.end())
      throw std::invalid_argument(
          fmt::format("a state has counted \"{}\", which this job does not measure: go on from an epoch's end", key));
    found->metric->merge(counted);
  }
}

void MeasureSet::load(const std::vector<nlohmann::json>& states) {
  clear();
  std::set<std::string> counted;
  for (const nlohmann::json& state : states) {
    if (state.is_null()) continue;
    if (!state.is_object()) throw std::invalid_argument("the state of a job's metrics is no object");
    merge(state);
    for (const auto& item : state.items()) counted.insert(item.key());
  }
  for (const Measure& one : measures_) {
    const auto in_phase = counted.lower_bound(prefix_of(one.phase));
    const bool is_begun = in_phase != counted.end() && in_phase->starts_with(prefix_of(one.phase));
    if (is_begun && !counted.contains(one.key))
      throw std::invalid_argument(
          fmt::format("a state has not counted \"{}\", which this job measures: go on from an epoch's end", one.key));
  }
}

void MeasureSet::clear() {
  for (Measure& one : measures_) one.metric->clear();
}

nlohmann::ordered_json MeasureSet::finish(MeasuredPhase phase, Collective& collective) {
  nlohmann::ordered_json values = nlohmann::ordered_json::object();
  if (!is_on(phase)) return values;
  const std::vector<std::string> told = collective.all_gather(state_of(phase).dump());
  clear();
  for (std::size_t rank = 0; rank < told.size(); ++rank) {
    const nlohmann::json state = nlohmann::json::parse(told[rank], nullptr, false);
    if (!state.is_object()) throw std::runtime_error(fmt::format("rank {} has told no state of its metrics", rank));
    try {
      merge(state);
    } catch (const std::invalid_argument& error) {
      throw std::runtime_error(fmt::format("the metrics of rank {}: {}", rank, error.what()));
    }
  }
  for (const Measure& one : measures_) {
    if (one.phase != phase) continue;
    const nlohmann::ordered_json measured = one.metric->values();
    for (const auto& [name, value] : measured.items()) values[prefix_of(phase) + name] = value;
  }
  clear();
  return values;
}

}  // namespace sgd::worker
