#pragma once
// Data sets by name: from sample numbers to tensors. The data itself lives in worker/core and worker/data,
// in memory, mapped, or in files that are decoded; a batch is a gather into fresh tensors. Read-only after
// make_dataset(), so the fork server opens a data set once and its children share it, and several threads of a rank may
// gather at once.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/job/spec.hpp"
#include "common/json/nlohmann.hpp"
#include "sgd/registry.hpp"
#include "sgd/training_operator.hpp"
#include "worker/core/idx_dataset.hpp"
#include "worker/torch/registry.hpp"

namespace sgd::worker {

/// A stream of a user's own, and the name that errors say.
struct OpenedStream {
  std::string name;
  std::shared_ptr<IterableDataset> made;
};

class Dataset;

/// Samples with numbers, which are divided among the ranks: every rank must see the same ones.
struct DatasetPart {
  std::string key;         ///< Of the job, where it is named.
  const Dataset* dataset;  ///< Valid as long as what has told of it.
  Split split;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  [[nodiscard]] virtual SampleShape shape() const = 0;
  /// Names of classes, where folders give them.
  [[nodiscard]] virtual std::vector<std::string> classes() const { return {}; }
  /// 0 of a stream, which is read, not gathered from.
  [[nodiscard]] virtual std::int64_t count(Split split) const = 0;
  /// Whether samples of the split have no numbers: they come from open_stream().
  [[nodiscard]] virtual bool is_stream(Split split) const {
    (void)split;
    return false;
  }
  /// A new one, for this rank. Throws what its making throws.
  [[nodiscard]] virtual OpenedStream open_stream(Split split) const {
    (void)split;
    return {};
  }
  /// What a sample is may depend on the epoch (from 1) by its transforms, and on nothing else. Throws on bad data,
  /// naming the sample.
  [[nodiscard]] virtual Batch gather(Split split, int epoch, std::span<const std::int64_t> indices) const = 0;
  /// gather(), for a thread whose batch nobody may want any more: where it takes long it looks at `is_ending` between
  /// samples, and throws.
  [[nodiscard]] virtual Batch gather_unless(const std::atomic<bool>& is_ending, Split split, int epoch,
                                            std::span<const std::int64_t> indices) const {
    (void)is_ending;
    return gather(split, epoch, indices);
  }
  /// Whether a batch takes long enough to be worth a thread of its own.
  [[nodiscard]] virtual bool is_slow() const { return false; }

  /// Whether there is anything to validate on.
  [[nodiscard]] bool has_validation() const {
    return !is_only_trained_on_ && (is_stream(Split::kValidation) || count(Split::kValidation) > 0);
  }
  /// Its job names nothing to validate on: what it has of that is not used.
  void set_only_trained_on() { is_only_trained_on_ = true; }

  /// One of several, of which the part to validate on is meant. Throws where there is none of that name.
  [[nodiscard]] virtual const Dataset& named(const std::string& name) const;
  /// What training and validation take samples from, without streams: ranks read other parts of those.
  [[nodiscard]] virtual std::vector<DatasetPart> parts() const;

  /// How its batches are made ahead of training.
  [[nodiscard]] const job::Loader& loader() const { return loader_; }
  void set_loader(const job::Loader& loader) { loader_ = loader; }

 private:
  job::Loader loader_{0, 1};  ///< Not at all.
  bool is_only_trained_on_ = false;
};

struct DatasetSettings {
  const nlohmann::json& dataset;  ///< The job's "training.dataset".
  std::int64_t outputs = 1;  ///< Values that the model gives for a sample: labels must be below; 0: it is not said.
  std::uint64_t seed = 0;    ///< The job's, for what transforms draw.
  const nlohmann::json* trained_on = nullptr;  ///< Of several data sets that one; null: this one.
  std::optional<Split> part = std::nullopt;    ///< Of several, the only one that is used; nothing: both.
};

using DatasetFactory = std::function<std::shared_ptr<Dataset>(const DatasetSettings& settings)>;
[[nodiscard]] Registry<DatasetFactory>& dataset_registry();

/// The data set of a job, by dataset["type"], or its several ones. Null: it names none.
[[nodiscard]] std::shared_ptr<const Dataset> make_dataset(const job::Training& training);

}  // namespace sgd::worker
