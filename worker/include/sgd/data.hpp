#pragma once
// Data of one's own, registered under a name for a job's "dataset":
//
//   class Words : public sgd::Dataset {
//    public:
//     explicit Words(const nlohmann::json& settings);
//     std::int64_t count(sgd::Split split) const override;
//     sgd::Batch gather(sgd::Split split, int epoch, std::span<const std::int64_t> indices) const override;
//   };
//   SGD_REGISTER_DATASET("words", Words, R"({"file": {"type": "string", "x-path": true}})");
//
// Which samples a rank takes, in which order, and from where after a failure is the worker's: a data set only makes the
// samples it is asked for. One object is made on each node, before its ranks are forked, so they share its memory:
// while it is made it starts no thread that stays.

#include <cstdint>
#include <span>

#include "sgd/model.hpp"

namespace sgd {

enum class Split { kTrain, kValidation };

class Dataset {
 public:
  virtual ~Dataset() = default;

  /// What a model that a job names must know; the default says nothing.
  [[nodiscard]] virtual SampleShape shape() const { return {{}, 0}; }
  /// Samples of a split, 1 to 2^32 - 1; the same on every node.
  [[nodiscard]] virtual std::int64_t count(Split split) const = 0;
  /// The samples with these numbers, from 0, in this order: the first size of each tensor is their number. What a
  /// sample is may depend on its number and the epoch (from 1), and on nothing else, so that a rank that goes on after
  /// a failure gets the same. Called by several threads at once when the job's "loader" has some. Throws on bad data.
  [[nodiscard]] virtual Batch gather(Split split, int epoch, std::span<const std::int64_t> indices) const = 0;
  /// Whether a batch takes so long that it is made ahead, in threads, where the job does not say.
  [[nodiscard]] virtual bool is_slow() const { return false; }
};

}  // namespace sgd
