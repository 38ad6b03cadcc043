#pragma once
// What a job's "training.metrics" measure: counted batch by batch on each rank, kept with each rank's record of a
// checkpoint, and merged over all ranks once, at a phase's end. So values are those of all samples, to the bit, and a
// recovery or a change of size changes none.
//
// Between begin and end of a phase ranks do not communicate here. Knows nothing of the training loop: who calls it says
// which phase it is.

#include <memory>
#include <string>
#include <vector>

#include "sgd/metrics.hpp"
#include "worker/collective/collective.hpp"

namespace sgd::worker {

enum class MeasuredPhase { kTraining, kValidation };

class MeasureSet {
 public:
  MeasureSet() = default;
  /// By the job's settings: {"type": "top_k", "k": 5, "on": "validation"}. Throws std::invalid_argument.
  explicit MeasureSet(const std::vector<nlohmann::json>& settings);

  /// Whether anything is measured in this phase: if not, outputs need not be kept for it.
  [[nodiscard]] bool is_on(MeasuredPhase phase) const;
  /// One batch of this rank. Throws std::invalid_argument where output and target do not fit.
  void add(MeasuredPhase phase, const at::Tensor& output, const at::Tensor& target);

  /// What this rank has counted of the phase in work, as JSON exact to the bit; metrics of a phase of which nothing was
  /// counted are not in it.
  [[nodiscard]] nlohmann::json state() const;
  /// Replaces all by the states of the ranks whose record this rank goes on with; null counts as none. Throws
  /// std::invalid_argument for what is no such state, and where a job that measures something else has counted a part
  /// of the phase: the rest would be taken for the whole.
  void load(const std::vector<nlohmann::json>& states);
  void clear();

  /// At a phase's end: the values of all ranks' samples, {"val_accuracy": 0.9, ...} ("train_..." of training), equal on
  /// every rank; then everything is cleared. Collective where is_on(phase), which is the same on every rank.
  [[nodiscard]] nlohmann::ordered_json finish(MeasuredPhase phase, Collective& collective);

 private:
  struct Measure {
    MeasuredPhase phase = MeasuredPhase::kValidation;
    std::string key;  ///< In a state: "val_top_5".
    std::unique_ptr<Metric> metric;
    nlohmann::json nothing;  ///< Its state before the first batch.
  };
  [[nodiscard]] nlohmann::json state_of(MeasuredPhase phase) const;
  void merge(const nlohmann::json& state);

  std::vector<Measure> measures_;
};

}  // namespace sgd::worker
