#include "worker/torch/named_datasets.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/job/named_datasets.hpp"
#include "worker/torch/errors.hpp"

namespace sgd::worker {

NamedDatasets::NamedDatasets(std::map<std::string, std::shared_ptr<Dataset>> all) : all_(std::move(all)) {
  const Dataset* train = find(Split::kTrain);
  const Dataset* validation = find(Split::kValidation);
  if (train == nullptr || validation == nullptr) return;
  const std::vector<std::int64_t> trained = train->shape().features;
  const std::vector<std::int64_t> validated = validation->shape().features;
  // A plug-in's data set need not say its shape.
  if (!trained.empty() && !validated.empty() && trained != validated)
    throw std::runtime_error(
        fmt::format("\"training.datasets\": samples of \"validation\" have shape {}, those of \"train\" have shape {}",
                    fmt::join(validated, " x "), fmt::join(trained, " x ")));
}

SampleShape NamedDatasets::shape() const {
  const Dataset* train = find(Split::kTrain);
  return train != nullptr ? train->shape() : all_.begin()->second->shape();
}

std::int64_t NamedDatasets::count(Split split) const {
  const Dataset* dataset = find(split);
  return dataset == nullptr ? 0 : dataset->count(split);
}

bool NamedDatasets::is_stream(Split split) const {
  const Dataset* dataset = find(split);
  return dataset != nullptr && dataset->is_stream(split);
}

Batch NamedDatasets::gather(Split split, int epoch, std::span<const std::int64_t> indices) const {
  return of(split).gather(split, epoch, indices);
}

Batch NamedDatasets::gather_unless(const std::atomic<bool>& is_ending, Split split, int epoch,
                                   std::span<const std::int64_t> indices) const {
  return of(split).gather_unless(is_ending, split, epoch, indices);
}

bool NamedDatasets::is_slow() const {
  return std::any_of(all_.begin(), all_.end(), [](const auto& one) { return one.second->is_slow(); });
}

const Dataset& NamedDatasets::named(const std::string& name) const {
  if (const auto found = all_.find(name); found != all_.end()) return *found->second;
  std::vector<std::string> names;
  for (const auto& [known, dataset] : all_) names.push_back(fmt::format("\"{}\"", known));
  throw ConfigurationError(
      fmt::format("the job's \"training.datasets\" has no \"{}\", which its code asks for: it has {}", name,
                  fmt::join(names, ", ")));
}

std::vector<DatasetPart> NamedDatasets::parts() const {
  std::vector<DatasetPart> all;
  for (const auto& [name, dataset] : all_) {
    const Split split = name == job::kTrainSet ? Split::kTrain : Split::kValidation;
    if (!dataset->is_stream(split)) all.push_back({"training.datasets." + name, dataset.get(), split});
  }
  return all;
}

const Dataset* NamedDatasets::find(Split split) const {
  const auto found = all_.find(split == Split::kTrain ? job::kTrainSet : job::kValidationSet);
  return found == all_.end() ? nullptr : found->second.get();
}

const Dataset& NamedDatasets::of(Split split) const {
  return named(split == Split::kTrain ? job::kTrainSet : job::kValidationSet);
}

}  // namespace sgd::worker
