#include "worker/torch/datasets.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/data/cifar.hpp"
#include "common/job/model_size.hpp"
#include "common/job/named_datasets.hpp"
#include "common/json/lenient.hpp"
#include "worker/core/linear_dataset.hpp"
#include "worker/data/open_reader.hpp"
#include "worker/data/transforms.hpp"
#include "worker/torch/errors.hpp"
#include "worker/torch/image_tensors.hpp"
#include "worker/torch/named_datasets.hpp"
#include "worker/torch/own_dataset.hpp"
#include "worker/torch/taken.hpp"

namespace sgd::worker {
namespace {

constexpr int kSlowThreads = 2;              // Of a data set whose batches take long.
constexpr std::int64_t kManyNumbers = 4096;  // Synthetic: some ten microseconds a sample.

std::vector<std::int64_t> with_batch(std::size_t count, std::vector<std::int64_t> sizes) {
  sizes.insert(sizes.begin(), static_cast<std::int64_t>(count));
  return sizes;
}

std::vector<std::int64_t> sizes_of(const ImageShape& image) {
  return {image.channels, image.rows, image.columns};
}

/// Images and labels in IDX files.
class IdxImages {
 public:
  IdxImages(const DatasetSettings& settings, Split split)
      : data_(taken(IdxDataset::open(settings.dataset.at("path").get<std::string>(), split, limit_of(settings)))),
        classes_(settings.outputs > 0 ? settings.outputs
                                      : 1 + *std::max_element(data_.labels().begin(), data_.labels().end())) {}

  [[nodiscard]] std::int64_t classes() const { return classes_; }
  [[nodiscard]] std::int64_t count() const { return data_.count(); }
  [[nodiscard]] ImageShape shape() const { return {1, data_.sample_shape()[0], data_.sample_shape()[1]}; }
  [[nodiscard]] const std::uint8_t* image(std::int64_t index) const { return data_.image(index); }
  void gather_images(std::span<const std::int64_t> indices, float* out) const { data_.gather_images(indices, out); }
  void gather_labels(std::span<const std::int64_t> indices, std::int64_t* out) const {
    data_.gather_labels(indices, out);
  }

 private:
  IdxDataset data_;
  std::int64_t classes_;
};

/// Those in CIFAR's binary files.
class CifarImages {
 public:
  CifarImages(const DatasetSettings& settings, Split split)
      : data_(taken(open_cifar(settings.dataset, split, limit_of(settings)))),
        classes_(settings.outputs > 0 ? settings.outputs
                                      : data::cifar_layout(settings.dataset.at("variant").get<std::string>()).classes) {
  }

  [[nodiscard]] std::int64_t classes() const { return classes_; }
  [[nodiscard]] std::int64_t count() const { return data_.count(); }
  [[nodiscard]] static ImageShape shape() { return {data::kCifarChannels, data::kCifarSide, data::kCifarSide}; }
  [[nodiscard]] const std::uint8_t* image(std::int64_t index) const { return data_.image(index); }
  void gather_images(std::span<const std::int64_t> indices, float* out) const { data_.gather_images(indices, out); }
  void gather_labels(std::span<const std::int64_t> indices, std::int64_t* out) const {
    data_.gather_labels(indices, out);
  }

 private:
  CifarDataset data_;
  std::int64_t classes_;
};

/// Features n x channels x rows x columns in 0 .. 1 or as the transforms leave them, labels as class numbers.
template <class Images>
class ImageTensors : public Dataset {
 public:
  explicit ImageTensors(const DatasetSettings& settings)
      : train_(settings, Split::kTrain),
        validation_(settings, Split::kValidation),
        transforms_(Transforms::of(member(settings.dataset, "transforms"))),
        validation_transforms_(transforms_.without_chance()),
        seed_(settings.seed),
        classes_(train_.classes()) {
    const ImageShape trained = train_.shape();
    const ImageShape validated = validation_.shape();
    if (sizes_of(validated) != sizes_of(trained))
      throw std::runtime_error(fmt::format("{}: images to validate on have shape {}, those to train on have shape {}",
                                           read_or(settings.dataset, "path", "the data set"),
                                           fmt::join(sizes_of(validated), " x "), fmt::join(sizes_of(trained), " x ")));
    check(transforms_.check(trained));
  }

  SampleShape shape() const override { return {sizes_of(train_.shape()), classes_}; }
  std::int64_t count(Split split) const override { return of(split).count(); }
  bool is_slow() const override { return !transforms_.is_empty(); }

  Batch gather(Split split, int epoch, std::span<const std::int64_t> indices) const override {
    const Images& data = of(split);
    const ImageShape image = data.shape();
    Batch batch{
        at::empty({static_cast<std::int64_t>(indices.size()), image.channels, image.rows, image.columns}, at::kFloat),
        at::empty({static_cast<std::int64_t>(indices.size())}, at::kLong)};
    data.gather_labels(indices, batch.target.data_ptr<std::int64_t>());
    float* out = batch.features.data_ptr<float>();
    const Transforms& transforms = split == Split::kTrain ? transforms_ : validation_transforms_;
    if (transforms.is_empty()) {
      data.gather_images(indices, out);
      return batch;
    }
    Transforms::Scratch scratch;
    for (const std::int64_t index : indices) {
      transforms.apply(data.image(index), image, sample_seed(seed_, epoch, index), scratch, out);
      out += image.count();
    }
    return batch;
  }

 private:
  const Images& of(Split split) const { return split == Split::kTrain ? train_ : validation_; }

  Images train_;
  Images validation_;
  Transforms transforms_;
  Transforms validation_transforms_;
  std::uint64_t seed_;
  std::int64_t classes_;
};

/// Samples of numbers: CSV, .npy and synthetic.
class ReaderTensors : public Dataset {
 public:
  explicit ReaderTensors(const DatasetSettings& settings)
      : train_(open(settings, Split::kTrain)),
        validation_(is_one_part(settings) ? train_ : open(settings, Split::kValidation)),
        outputs_(settings.outputs > 0 ? settings.outputs : train_->target_numbers()) {
    const std::string type = read_or(settings.dataset, "type", "");
    const std::vector<std::int64_t>& sizes = train_->sample_shape();
    const std::int64_t numbers = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
    is_slow_ = type == "csv" || (type == "synthetic" && numbers > kManyNumbers);
    if (train_->sample_shape() != validation_->sample_shape() ||
        train_->target_numbers() != validation_->target_numbers())
      throw std::runtime_error("a sample to validate on has another shape than one to train on");
    if (train_->target_numbers() > 0 && train_->target_numbers() != outputs_)
      throw std::runtime_error("a target of the data set has " + std::to_string(train_->target_numbers()) +
                               " numbers, and the model gives " + std::to_string(outputs_) + " outputs");
  }

  SampleShape shape() const override { return {train_->sample_shape(), outputs_}; }
  std::int64_t count(Split split) const override { return of(split).count(); }
  bool is_slow() const override { return is_slow_; }

  Batch gather(Split split, int /*epoch*/, std::span<const std::int64_t> indices) const override {
    const SampleReader& data = of(split);
    Batch batch{at::empty(with_batch(indices.size(), data.sample_shape()), at::kFloat), {}};
    TargetMemory targets;
    if (data.target_numbers() == 0) {
      batch.target = at::empty({static_cast<std::int64_t>(indices.size())}, at::kLong);
      targets.classes = batch.target.data_ptr<std::int64_t>();
    } else {
      batch.target = at::empty({static_cast<std::int64_t>(indices.size()), data.target_numbers()}, at::kFloat);
      targets.numbers = batch.target.data_ptr<float>();
    }
    check(data.gather(indices, batch.features.data_ptr<float>(), targets));
    return batch;
  }

 private:
  /// Where a job names one part alone, the other one has the same files: nobody reads it.
  static bool is_one_part(const DatasetSettings& settings) {
    const bool is_alone = settings.trained_on == nullptr && settings.dataset.contains("train");
    return is_alone && settings.dataset["train"] == member(settings.dataset, "validation");
  }
  static std::shared_ptr<const SampleReader> open(const DatasetSettings& settings, Split split) {
    return taken(open_reader(settings.dataset, split, limit_of(settings), settings.trained_on));
  }
  const SampleReader& of(Split split) const { return split == Split::kTrain ? *train_ : *validation_; }

  std::shared_ptr<const SampleReader> train_;
  std::shared_ptr<const SampleReader> validation_;
  std::int64_t outputs_;
  bool is_slow_ = false;
};

/// Windows of tokens: features and target n x length.
class TokenTensors : public Dataset {
 public:
  explicit TokenTensors(const DatasetSettings& settings)
      : train_(taken(open_tokens(settings.dataset, Split::kTrain, limit_of(settings)))),
        validation_(taken(open_tokens(settings.dataset, Split::kValidation, limit_of(settings)))),
        vocabulary_(settings.outputs) {}

  SampleShape shape() const override { return {{train_.length()}, vocabulary_}; }
  std::int64_t count(Split split) const override { return of(split).count(); }

  Batch gather(Split split, int /*epoch*/, std::span<const std::int64_t> indices) const override {
    const auto rows = static_cast<std::int64_t>(indices.size());
    Batch batch{at::empty({rows, train_.length()}, at::kLong), at::empty({rows, train_.length()}, at::kLong)};
    of(split).gather(indices, batch.features.data_ptr<std::int64_t>(), batch.target.data_ptr<std::int64_t>());
    return batch;
  }

 private:
  const TokenDataset& of(Split split) const { return split == Split::kTrain ? train_ : validation_; }

  TokenDataset train_;
  TokenDataset validation_;
  std::int64_t vocabulary_;
};

/// The straight line of RaySGD's examples.
class LinearTensors : public Dataset {
 public:
  explicit LinearTensors(const DatasetSettings& settings)
      : train_(settings.dataset.value("samples", std::int64_t{1000})),
        validation_(settings.dataset.value("validation_samples", std::int64_t{400})) {}

  SampleShape shape() const override { return {{1}, 1}; }
  std::int64_t count(Split split) const override { return of(split).count(); }

  Batch gather(Split split, int /*epoch*/, std::span<const std::int64_t> indices) const override {
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
std::shared_ptr<Dataset> make(const DatasetSettings& settings) {
  return std::make_shared<Tensors>(settings);
}

}  // namespace

Registry<DatasetFactory>& dataset_registry() {
  static Registry<DatasetFactory> registry("data set", {{"cifar", make<ImageTensors<CifarImages>>},
                                                        {"csv", make<ReaderTensors>},
                                                        {"idx", make<ImageTensors<IdxImages>>},
                                                        {"image_folder", make_image_folder},
                                                        {"image_masks", make_image_masks},
                                                        {"linear", make<LinearTensors>},
                                                        {"npy", make<ReaderTensors>},
                                                        {"synthetic", make<ReaderTensors>},
                                                        {"tokens", make<TokenTensors>}});
  return registry;
}

const Dataset& Dataset::named(const std::string& name) const {
  if (name == job::kValidationSet) return *this;
  throw ConfigurationError("the job's code asks for the data set \"" + name +
                           "\": name it in \"training.datasets\", in place of \"training.dataset\"");
}

std::vector<DatasetPart> Dataset::parts() const {
  std::vector<DatasetPart> all;
  for (const Split split : {Split::kTrain, Split::kValidation})
    if (!is_stream(split) && (split == Split::kTrain || has_validation()))
      all.push_back({"training.dataset", this, split});
  return all;
}

std::shared_ptr<const Dataset> make_dataset(const job::Training& training) {
  const auto make_one = [&training](const nlohmann::json& one, const nlohmann::json* trained_on,
                                    std::optional<Split> part) {
    const DatasetSettings settings{one, job::model_outputs(training.model), training.seed, trained_on, part};
    std::shared_ptr<Dataset> made = make_own_dataset(settings);
    return made ? made : dataset_registry().find(one.value("type", std::string()))(settings);
  };
  std::shared_ptr<Dataset> dataset;
  if (!training.datasets.empty()) {
    std::map<std::string, std::shared_ptr<Dataset>> all;
    // A model that is trained on the one set is validated on the other. Which may have columns of their own, nobody
    // knows of further sets.
    const auto train = training.datasets.find(job::kTrainSet);
    for (const auto& [name, one] : training.datasets) {
      const bool is_like_train = name == job::kValidationSet && train != training.datasets.end();
      all[name] = make_one(one, is_like_train ? &train->second : nullptr,
                           name == job::kTrainSet ? Split::kTrain : Split::kValidation);
    }
    dataset = std::make_shared<NamedDatasets>(std::move(all));
  } else if (!training.dataset.is_null()) {
    dataset = make_one(training.dataset, nullptr, std::nullopt);
    if (!training.has_validation) dataset->set_only_trained_on();
  } else {
    return nullptr;
  }
  job::Loader loader = training.loader;
  if (!loader.threads) loader.threads = dataset->is_slow() ? kSlowThreads : 0;
  dataset->set_loader(loader);
  return dataset;
}

}  // namespace sgd::worker
