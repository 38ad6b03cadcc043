#include "worker/torch/own_dataset.hpp"

#include <limits>
#include <optional>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/json/lenient.hpp"
#include "worker/plugin/registered.hpp"

namespace sgd::worker {
namespace {

constexpr std::int64_t kSamplesMax = std::numeric_limits<std::uint32_t>::max();  // As Sampler counts them.

class OwnDataset : public Dataset {
 public:
  /// `part`: the only one that is used; nothing: both, of which the one to validate on may be empty.
  OwnDataset(std::string name, std::shared_ptr<const sgd::Dataset> made, std::optional<Split> part)
      : name_(std::move(name)), made_(std::move(made)) {
    for (const Split split : {Split::kTrain, Split::kValidation}) {
      if (part && *part != split) continue;
      const std::int64_t least = part || split == Split::kTrain ? 1 : 0;
      const std::int64_t samples = count(split);
      if (samples < least || samples > kSamplesMax)
        throw std::runtime_error(fmt::format("the data set \"{}\" says it has {} samples to {} on: {} to {} can be",
                                             name_, samples, split == Split::kTrain ? "train" : "validate", least,
                                             kSamplesMax));
    }
  }

  SampleShape shape() const override { return made_->shape(); }
  std::int64_t count(Split split) const override { return made_->count(public_split(split)); }
  bool is_slow() const override { return made_->is_slow(); }

  Batch gather(Split split, int epoch, std::span<const std::int64_t> indices) const override {
    Batch batch = made_->gather(public_split(split), epoch, indices);
    check("features", batch.features, indices);
    for (const at::Tensor& one : batch.further) check("a tensor of further", one, indices);
    check("target", batch.target, indices);
    return batch;
  }

 private:
  void check(const char* what, const at::Tensor& tensor, std::span<const std::int64_t> indices) const {
    if (!tensor.defined())
      throw std::logic_error(fmt::format("the data set \"{}\": gather() leaves {} undefined", name_, what));
    if (tensor.dim() > 0 && tensor.size(0) == static_cast<std::int64_t>(indices.size())) return;
    throw std::logic_error(
        fmt::format("the data set \"{}\": gather() was asked for {} samples, and {} has the shape [{}]: its first size "
                    "must be the number of samples",
                    name_, indices.size(), what, fmt::join(tensor.sizes(), ", ")));
  }

  std::string name_;
  std::shared_ptr<const sgd::Dataset> made_;
};

class OwnStream : public Dataset {
 public:
  OwnStream(std::string name, IterableFactory factory, const DatasetSettings& settings)
      : name_(std::move(name)), factory_(std::move(factory)), settings_(settings.dataset), seed_(settings.seed) {}

  SampleShape shape() const override { return make()->shape(); }
  std::int64_t count(Split /*split*/) const override { return 0; }
  bool is_stream(Split /*split*/) const override { return true; }
  OpenedStream open_stream(Split /*split*/) const override { return {name_, make()}; }

  Batch gather(Split /*split*/, int /*epoch*/, std::span<const std::int64_t> /*indices*/) const override {
    throw std::logic_error(fmt::format("the data set \"{}\" is a stream: its samples have no numbers", name_));
  }

 private:
  std::shared_ptr<IterableDataset> make() const {
    std::shared_ptr<IterableDataset> made = factory_(settings_, seed_);
    if (!made) throw std::logic_error("the data set \"" + name_ + "\": its factory has made nothing");
    return made;
  }

  std::string name_;
  IterableFactory factory_;
  nlohmann::json settings_;
  std::uint64_t seed_;
};

}  // namespace

sgd::Split public_split(Split split) {
  return split == Split::kTrain ? sgd::Split::kTrain : sgd::Split::kValidation;
}

std::shared_ptr<Dataset> as_dataset(std::string name, std::shared_ptr<const sgd::Dataset> made,
                                    std::optional<Split> part) {
  if (!made) throw std::logic_error("the data set \"" + name + "\": its factory has made nothing");
  return std::make_shared<OwnDataset>(std::move(name), std::move(made), part);
}

std::shared_ptr<Dataset> make_own_dataset(const DatasetSettings& settings) {
  const std::string type = read_or(settings.dataset, "type", "");
  if (const auto stream = registered_types().streams.find(type); stream != registered_types().streams.end())
    return std::make_shared<OwnStream>(type, stream->second, settings);
  const auto own = registered_types().datasets.find(type);
  if (own == registered_types().datasets.end()) return nullptr;
  return as_dataset(type, own->second(settings.dataset, settings.seed), settings.part);
}

}  // namespace sgd::worker
