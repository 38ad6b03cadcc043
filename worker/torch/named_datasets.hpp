#pragma once
// "training.datasets" as one data set: what is trained on is the one named "train", what is validated on the one named
// "validation". Others are there by their names.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "worker/torch/datasets.hpp"

namespace sgd::worker {

class NamedDatasets : public Dataset {
 public:
  /// Throws where samples to train and to validate on have different shapes.
  explicit NamedDatasets(std::map<std::string, std::shared_ptr<Dataset>> all);

  [[nodiscard]] SampleShape shape() const override;
  [[nodiscard]] std::int64_t count(Split split) const override;
  [[nodiscard]] Batch gather(Split split, int epoch, std::span<const std::int64_t> indices) const override;
  [[nodiscard]] Batch gather_unless(const std::atomic<bool>& is_ending, Split split, int epoch,
                                    std::span<const std::int64_t> indices) const override;
  [[nodiscard]] bool is_stream(Split split) const override;
  [[nodiscard]] OpenedStream open_stream(Split split) const override { return of(split).open_stream(split); }
  [[nodiscard]] bool is_slow() const override;
  [[nodiscard]] const Dataset& named(const std::string& name) const override;
  [[nodiscard]] std::vector<DatasetPart> parts() const override;

 private:
  [[nodiscard]] const Dataset* find(Split split) const;
  [[nodiscard]] const Dataset& of(Split split) const;

  std::map<std::string, std::shared_ptr<Dataset>> all_;
};

}  // namespace sgd::worker
