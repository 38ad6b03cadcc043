#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "common/base/bytes.hpp"
#include "common/data/idx.hpp"
#include "common/data/image_files.hpp"
#include "common/job/data_facts.hpp"
#include "common/job/load.hpp"
#include "common/job/model_size.hpp"
#include "common/job/named_datasets.hpp"
#include "common/json/lenient.hpp"

namespace sgd::job {
namespace {

/// An error at the place of a key of the job.
using Say = std::function<void(const std::string& key, const std::string& message)>;

/// Of the job's data set; nothing when that cannot be known here.
std::optional<SampleSizes> sample_sizes(const Training& training) {
  if (training.dataset.is_null()) return std::nullopt;
  const Result<SplitFacts> facts = look_at_split(training.dataset, "train");
  return facts ? facts.value().sample : std::nullopt;
}

std::string in_words(const SampleSizes& sample) {
  return fmt::format("{}", fmt::join(sample, " x "));
}

/// Of the images of a split, whose header was readable a moment ago; else the folder.
std::string idx_file(const std::string& path, data::IdxSplit split) {
  const Result<data::IdxFiles> files = data::find_idx(path, split);
  return files ? files.value().images.path : path;
}

void check_idx(const Training& training, const Say& report) {
  const std::string path = training.dataset["path"];
  std::vector<SampleSizes> sizes;  // Of the splits that can be read.
  for (const char* split : {"train", "validation"}) {
    const Result<SplitFacts> facts = look_at_split(training.dataset, split);
    if (facts.ok()) {
      sizes.push_back(facts.value().sample.value_or(SampleSizes{}));
      continue;
    }
    report("training.dataset.path", facts.error().message);
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) return;  // One missing folder is one error.
  }
  if (sizes.size() == 2 && sizes[0] != sizes[1])
    report("training.dataset.path",
           fmt::format("data file {}: images to validate on have shape {}, those to train on in {} have shape {}: both "
                       "must be of one size",
                       idx_file(path, data::IdxSplit::kValidate), in_words(sizes[1]),
                       idx_file(path, data::IdxSplit::kTrain), in_words(sizes[0])));
  const auto sample = sample_sizes(training);
  if (!sample) return;
  const auto misfit = model_misfit(training.model, *sample, true);
  if (misfit) report(misfit->path, misfit->message);
}

/// Where folders name the classes: both splits have the same, and the model an output for each.
void check_classes(const Training& training, const SplitFacts& train, const SplitFacts& validation, const Say& report) {
  const std::string difference = data::class_difference(train.classes, validation.classes);
  if (!difference.empty()) report("training.dataset.validation", difference);
  const auto classes = static_cast<std::int64_t>(train.classes.size());
  const std::int64_t outputs = read_or(training.model, "outputs", classes);
  if (classes > outputs)
    report("training.model.outputs",
           fmt::format("the model gives {} outputs, and the data set has {} classes: set training.model.outputs={}",
                       outputs, classes, classes));
}

void check_files(const Training& training, const Say& report) {
  const Result<SplitFacts> train = look_at_split(training.dataset, "train");
  if (!train) report("training.dataset.train", train.error().message);
  if (!train && !training.has_validation) return;
  const Result<SplitFacts> validation =
      training.has_validation
          ? look_at_split(training.dataset, "validation", train ? train.value().columns : std::vector<std::string>{})
          : train;
  if (!validation) report("training.dataset.validation", validation.error().message);
  if (!train || !validation || !train.value().sample) return;
  const SampleSizes& sample = *train.value().sample;
  if (validation.value().sample != sample || validation.value().target_numbers != train.value().target_numbers)
    return report("training.dataset.validation",
                  fmt::format("samples to validate on have shape {} and targets of {}, those to train on shape {} and "
                              "targets of {}",
                              in_words(*validation.value().sample), validation.value().target_numbers, in_words(sample),
                              train.value().target_numbers));
  const auto misfit =
      model_misfit(training.model, sample, learns_classes(training.dataset), train.value().target_numbers);
  if (misfit) report(misfit->path, misfit->message);
  check_classes(training, train.value(), validation.value(), report);
}

/// What is wrong with one of several data sets beside the one that is trained on; empty: nothing.
std::string difference_of(const SplitFacts& other, const SplitFacts& train) {
  if (!other.sample || !train.sample) return {};
  if (*other.sample != *train.sample || other.target_numbers != train.target_numbers)
    return fmt::format("its samples have shape {} and targets of {}, those to train on shape {} and targets of {}",
                       in_words(*other.sample), other.target_numbers, in_words(*train.sample), train.target_numbers);
  return data::class_difference(train.classes, other.classes);
}

/// Each by the part of it that is used. What is trained on comes before what is validated on, by the names.
void check_named(const Training& training, const Say& report) {
  std::optional<SplitFacts> train;
  std::map<std::string, SplitFacts> others;
  for (const auto& [name, dataset] : training.datasets) {
    if (!is_built_in_dataset(dataset)) continue;
    const bool is_like_train = name == kValidationSet && train;
    Result<SplitFacts> facts =
        look_at_split(dataset, part_used(name), is_like_train ? train->columns : std::vector<std::string>{});
    if (!facts)
      report("training.datasets." + name, facts.error().message);
    else if (name == kTrainSet)
      train = std::move(facts).value();
    else
      others.emplace(name, std::move(facts).value());
  }
  if (!train) return;
  const auto validation = others.find(kValidationSet);
  if (validation != others.end()) {
    if (const std::string difference = difference_of(validation->second, *train); !difference.empty())
      report("training.datasets.validation", "\"training.datasets.validation\": " + difference);
  }
  if (!train->sample) return;
  const auto misfit =
      model_misfit(training.model, *train->sample, learns_classes(training.dataset), train->target_numbers);
  if (misfit) report(misfit->path, misfit->message);
}

/// Files that the model is read from.
void check_model_files(const Training& training, const Say& report) {
  const nlohmann::json& weights = member(training.model, "weights");
  const std::string weights_file = weights.is_string() ? weights.get<std::string>() : read_or(weights, "file", "");
  const bool is_script = read_or(training.model, "type", "") == "torchscript";
  const std::string script = is_script ? read_or(training.model, "file", "") : "";
  std::error_code error;
  if (!weights_file.empty() && !std::filesystem::is_regular_file(weights_file, error))
    report("training.model.weights", fmt::format("the weights file {} does not exist", weights_file));
  if (!script.empty() && !std::filesystem::is_regular_file(script, error))
    report("training.model.file", fmt::format("the TorchScript file {} does not exist", script));
}

}  // namespace

void check_data(const JobSpec& job, const std::string& source, Diagnostics& diagnostics) {
  if (!job.training || (job.training->dataset.is_null() && job.training->datasets.empty())) return;
  const Say report = [&](const std::string& key, const std::string& message) {
    const auto found = job.locations.find(key);
    const JobSpec::Location location = found == job.locations.end() ? JobSpec::Location{} : found->second;
    diagnostics.error(location.source.empty() ? source : location.source, location.line, location.column, message);
  };
  check_model_files(*job.training, report);
  if (!job.training->datasets.empty()) return check_named(*job.training, report);
  if (!is_built_in_dataset(job.training->dataset)) return;
  const auto& type = job.training->dataset["type"];
  if (type == "idx") return check_idx(*job.training, report);
  if (type != "linear" && type != "synthetic") check_files(*job.training, report);
}

void check_memory_need(const JobSpec& job, const std::string& source, std::int64_t memory_bytes,
                       Diagnostics& diagnostics) {
  if (!job.training || memory_bytes <= 0) return;
  const std::optional<SampleSizes> sample = sample_sizes(*job.training);
  if (!sample) return;
  constexpr double kSayable = 9e18;  // Bytes that have words.
  const double needed = std::min(bytes_needed(job, *sample), kSayable);
  if (needed <= static_cast<double>(memory_bytes)) return;
  const auto found = job.locations.find("training.model.hidden");
  const JobSpec::Location location = found == job.locations.end() ? JobSpec::Location{} : found->second;
  diagnostics.error(
      location.source.empty() ? source : location.source, location.line, location.column,
      fmt::format("the model has {:.3g} million parameters: {} worker{} need{} at least {} of memory, and this machine "
                  "has {}",
                  parameter_count(job.training->model, *sample) / 1e6, job.num_workers, job.num_workers == 1 ? "" : "s",
                  job.num_workers == 1 ? "s" : "", format_bytes(static_cast<std::int64_t>(needed)),
                  format_bytes(memory_bytes)));
}

}  // namespace sgd::job
