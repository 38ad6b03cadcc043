#include "worker/torch/datasets.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "common/json/lenient.hpp"
#include "worker/core/linear_dataset.hpp"

namespace sgd::worker {
namespace {

/// Images and labels in IDX files: features n x 1 x rows x columns in 0 .. 1, labels as class numbers.
class IdxTensors : public Dataset {
 public:
  IdxTensors(const nlohmann::json& settings, std::int64_t outputs)
      : train_(open(settings, Split::kTrain)),
        validation_(open(settings, Split::kValidation)),
        classes_(outputs > 0 ? outputs : 1 + *std::max_element(train_.labels().begin(), train_.labels().end())) {}

  SampleShape shape() const override {
    std::vector<std::int64_t> features = train_.sample_shape();
    if (features.size() == 2) features.insert(features.begin(), 1);
    return {features, classes_};
  }
  std::int64_t count(Split split) const override { return of(split).count(); }

  Batch gather(Split split, std::span<const std::int64_t> indices) const override {
    const IdxDataset& data = of(split);
    std::vector<std::int64_t> sizes = shape().features;
    sizes.insert(sizes.begin(), static_cast<std::int64_t>(indices.size()));
    Batch batch{at::empty(sizes, at::kFloat), at::empty({sizes.front()}, at::kLong)};
    data.gather_images(indices, batch.features.data_ptr<float>());
    const Status labels = data.gather_labels(indices, batch.target.data_ptr<std::int64_t>(), classes_);
    if (!labels) throw std::runtime_error(labels.error().message);
    return batch;
  }

 private:
  static IdxDataset open(const nlohmann::json& settings, Split split) {
    Result<IdxDataset> opened = IdxDataset::open(settings.at("path").get<std::string>(), split);
    if (!opened) throw std::runtime_error(opened.error().message);
    return std::move(opened).value();
  }
  const IdxDataset& of(Split split) const { return split == Split::kTrain ? train_ : validation_; }

  IdxDataset train_;
  IdxDataset validation_;
  std::int64_t classes_;
};

/// The straight line of RaySGD's examples.
class LinearTensors : public Dataset {
 public:
  LinearTensors(const nlohmann::json& settings, std::int64_t)
      : train_(settings.value("samples", std::int64_t{1000})),
        validation_(settings.value("validation_samples", std::int64_t{400})) {}

  SampleShape shape() const override { return {{1}, 1}; }
  std::int64_t count(Split split) const override { return of(split).count(); }

  Batch gather(Split split, std::span<const std::int64_t> indices) const override {
    const auto rows = static_cast<std::int64_t>(indices.size());
    Batch batch{at::empty({rows, 1}, at::kFloat), at::empty({rows, 1}, at::kFloat)};
    of(split).gather(indices, batch.features.data_ptr<float>(), batch.target.data_ptr<float>());
    return batch;
  }

 private:
  const LinearDataset& of(Split split) const { return split == Split::kTrain ? train_ : validation_; }

  LinearDataset train_;
  LinearDataset validation_;
};

template <class Tensors>
std::shared_ptr<const Dataset> make(const nlohmann::json& settings, std::int64_t outputs) {
  return std::make_shared<const Tensors>(settings, outputs);
}

}  // namespace

Registry<DatasetFactory>& dataset_registry() {
  static Registry<DatasetFactory> registry("data set", {{"idx", make<IdxTensors>}, {"linear", make<LinearTensors>}});
  return registry;
}

std::shared_ptr<const Dataset> make_dataset(const job::Training& training) {
  const DatasetFactory& factory = dataset_registry().find(training.dataset.value("type", std::string()));
  return factory(training.dataset, read_or(training.model, "outputs", std::int64_t{0}));
}

}  // namespace sgd::worker
