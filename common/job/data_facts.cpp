#include "common/job/data_facts.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "common/data/cifar.hpp"
#include "common/data/csv_columns.hpp"
#include "common/data/file_list.hpp"
#include "common/data/idx.hpp"
#include "common/data/image_files.hpp"
#include "common/data/npy.hpp"
#include "common/data/tokens.hpp"
#include "common/json/lenient.hpp"
#include "common/json/words.hpp"

namespace sgd::job {
namespace {

using Json = nlohmann::json;

std::string type_of(const Json& section) {
  return read_or(section, "type", "");
}

/// Names of columns need a header to be found in; only numbers have an order.
std::optional<Misfit> csv_misfit(const Json& dataset) {
  const Json& filter = member(dataset, "filter");
  const std::string op = read_or(filter, "op", "==");
  if (member(filter, "value").is_string() && op != "==" && op != "!=")
    return Misfit{"training.dataset.filter.value",
                  fmt::format("\"training.dataset.filter.value\" must be a number with \"op\" {}, got {}",
                              json::quote(op), json::shown(member(filter, "value")))};
  if (read_or(dataset, "header", true)) return std::nullopt;
  const Json& columns = member(dataset, "columns");
  const auto by_name = [](const Json& column) { return column.is_string(); };
  const Json& features = member(columns, "features");
  std::string path;
  if (std::any_of(features.begin(), features.end(), by_name)) path = "training.dataset.columns.features";
  if (by_name(member(columns, "target"))) path = "training.dataset.columns.target";
  if (by_name(member(filter, "column"))) path = "training.dataset.filter.column";
  if (path.empty()) return std::nullopt;
  return Misfit{path,
                fmt::format("{} must be numbers from 0: without a header columns have no names", json::quote(path))};
}

/// Each mean and deviation is one channel's.
std::optional<Misfit> transforms_misfit(const Json& dataset, std::size_t channels) {
  const Json& transforms = member(dataset, "transforms");
  for (std::size_t i = 0; i < transforms.size(); ++i) {
    if (!transforms.is_array() || type_of(transforms[i]) != "normalize") continue;
    for (const char* key : {"mean", "std"}) {
      const std::size_t given = member(transforms[i], key).size();
      if (given == channels) continue;
      return Misfit{"training.dataset.transforms",
                    fmt::format("\"training.dataset.transforms[{}].{}\" must have {} number{}, one for each channel of "
                                "the images; got {}",
                                i, key, channels, channels == 1 ? "" : "s", given)};
    }
  }
  return std::nullopt;
}

/// `key` says how large a sample is.
std::optional<Misfit> size_misfit(const Json& dataset, const char* key) {
  double numbers = 1;  // Cannot overflow.
  for (const std::int64_t size : told_sizes(dataset).value_or(SampleSizes{})) numbers *= static_cast<double>(size);
  if (numbers <= static_cast<double>(kSampleNumbersMax)) return std::nullopt;
  return Misfit{key, fmt::format("{} must have at most {} numbers a sample, got {:.0f}", json::quote(key),
                                 kSampleNumbersMax, numbers)};
}

bool is_image_files(const std::string& type) {
  return type == "image_folder" || type == "image_masks";
}

/// Of images that are decoded; with masks the model gives an answer for each pixel.
std::optional<Misfit> image_files_misfit(const Json& dataset, const Json& model) {
  const std::int64_t channels = read_or(dataset, "channels", std::int64_t{3});
  if (channels == 2)
    return Misfit{"training.dataset.channels", "\"training.dataset.channels\" must be 3 (colour) or 1 (grey), got 2"};
  if (auto misfit = size_misfit(dataset, "training.dataset.size")) return misfit;
  if (auto misfit = transforms_misfit(dataset, static_cast<std::size_t>(channels))) return misfit;
  const bool gives_one_answer = is_built_in_model(model) && !gives_pixels(model);
  if (type_of(dataset) != "image_masks" || !gives_one_answer) return std::nullopt;
  return Misfit{"training.model.type",
                fmt::format("the model {} gives one answer for an image, and this data set has a "
                            "class for each pixel: take \"fcn\"",
                            json::quote(type_of(model)))};
}

/// Tokens are learnt one after the other, by a model that has an embedding for them.
std::optional<Misfit> tokens_misfit(const Json& model) {
  if (!is_built_in_model(model)) return std::nullopt;
  if (takes_tokens(model)) {
    if (read_or(model, "task", "") != "classification") return std::nullopt;
    return Misfit{"training.model.task",
                  "a target of the data set \"tokens\" is the next token: set training.model.task=\"language_model\""};
  }
  return Misfit{"training.model.type", fmt::format("the model {} takes numbers, and the samples of this data set are "
                                                   "tokens: it needs a model with an embedding",
                                                   json::quote(type_of(model)))};
}

constexpr std::array kBuiltIn = {"cifar",  "csv", "idx",       "image_folder", "image_masks",
                                 "linear", "npy", "synthetic", "tokens"};

/// Their targets are one class, or a few numbers, for a whole sample.
constexpr std::array kWithoutMasks = {"cifar", "csv", "idx", "image_folder", "linear", "npy", "synthetic"};

/// What a model gives or takes that only some data sets have.
std::optional<Misfit> kind_misfit(const Json& model, const std::string& type) {
  if (takes_tokens(model)) {
    const bool has_rows = type == "csv" || type == "npy";  // Of whole numbers; the model looks at them.
    if (has_rows && read_or(model, "task", "") == "classification") return std::nullopt;
    return Misfit{
        "training.model.type",
        fmt::format("the model \"transformer\" takes tokens, and the samples of the data set {} are not: take "
                    "the data set \"tokens\"{}",
                    json::quote(type), has_rows ? ", or set training.model.task=\"classification\"" : "")};
  }
  const bool has_masks = std::find(kWithoutMasks.begin(), kWithoutMasks.end(), type) == kWithoutMasks.end();
  if (has_masks || !gives_pixels(model)) return std::nullopt;
  return Misfit{
      "training.model.type",
      fmt::format("the model \"fcn\" gives classes for each pixel, and a target of the data set {} is one for "
                  "a whole sample: take \"cnn\" or \"resnet18\"",
                  json::quote(type))};
}

Result<SplitFacts> look_at_idx(const Json& dataset, const std::string& split) {
  const auto files = data::find_idx(read_or(dataset, "path", ""),
                                    split == "train" ? data::IdxSplit::kTrain : data::IdxSplit::kValidate);
  if (!files) return files.error();
  const std::vector<std::uint32_t>& dims = files.value().images.dims;
  SplitFacts facts;
  facts.sample = SampleSizes{1, dims[1], dims[2]};
  facts.samples = dims.front();
  return facts;
}

Result<SplitFacts> look_at_npy(const Json& dataset, const std::string& split) {
  const Json& files = member(dataset, split.c_str());
  const auto pair =
      data::inspect_npy_pair(read_or(files, "features", ""), read_or(files, "target", ""), learns_classes(dataset));
  if (!pair) return pair.error();
  const std::vector<std::int64_t>& shape = pair.value().features.shape;
  SplitFacts facts;
  facts.sample = shape.size() == 1 ? SampleSizes{1} : SampleSizes(shape.begin() + 1, shape.end());
  facts.samples = shape.front();
  facts.target_numbers = pair.value().target.sample_numbers();
  return facts;
}

Result<SplitFacts> look_at_images(const Json& dataset, const std::string& split) {
  SplitFacts facts;
  facts.sample = told_sizes(dataset);
  if (type_of(dataset) == "image_folder") {
    Result<data::ImageFolder> folder = data::list_image_folder(read_or(dataset, split.c_str(), ""));
    if (!folder) return folder.error();
    facts.samples = folder.value().files.count();
    facts.classes = std::move(folder.value().classes);
    return facts;
  }
  const Json& folders = member(dataset, split.c_str());
  const auto pairs = data::list_masked_images(read_or(folders, "images", ""), read_or(folders, "masks", ""));
  if (!pairs) return pairs.error();
  facts.samples = pairs.value().images.count();
  return facts;
}

/// Adds what one file of several holds.
Status add_file(const Json& dataset, const std::string& path, SplitFacts& facts) {
  const std::string type = type_of(dataset);
  if (type == "csv") {
    data::CsvSettings settings = data::csv_settings(dataset);
    settings.order = facts.columns;
    const auto columns = data::inspect_csv(path, settings);
    if (!columns) return columns.error();
    if (facts.columns.empty()) facts.columns = data::csv_order(settings, columns.value());
    facts.sample = SampleSizes{static_cast<std::int64_t>(columns.value().features.size())};
    return {};
  }
  const Result<std::int64_t> samples =
      type == "cifar" ? data::inspect_cifar(path, data::cifar_layout(read_or(dataset, "variant", "")))
                      : data::inspect_tokens(path, data::token_bytes(read_or(dataset, "dtype", "")),
                                             read_or(dataset, "length", std::int64_t{1}));
  if (!samples) return samples.error();
  facts.samples += samples.value();
  return data::check_sample_count("the data set", facts.samples);
}

}  // namespace

bool is_built_in_dataset(const Json& dataset) {
  const std::string type = type_of(dataset);
  return std::find(kBuiltIn.begin(), kBuiltIn.end(), type) != kBuiltIn.end();
}

bool learns_classes(const Json& dataset) {
  if (type_of(dataset) == "linear") return false;
  return read_or(dataset, "targets", "classes") == "classes";
}

std::optional<SampleSizes> told_sizes(const Json& dataset) {
  const std::string type = type_of(dataset);
  if (type == "linear") return SampleSizes{1};
  if (type == "cifar") return SampleSizes{data::kCifarChannels, data::kCifarSide, data::kCifarSide};
  if (type == "tokens") return SampleSizes{read_or(dataset, "length", std::int64_t{1})};
  if (is_image_files(type)) {
    const Json& size = member(dataset, "size");
    if (!size.is_array() || size.size() != 2) return std::nullopt;
    return SampleSizes{read_or(dataset, "channels", std::int64_t{3}), size[0].get<std::int64_t>(),
                       size[1].get<std::int64_t>()};
  }
  const Json& shape = member(dataset, "shape");
  if (type != "synthetic" || !shape.is_array()) return std::nullopt;
  SampleSizes sizes;
  for (const Json& size : shape) sizes.push_back(size.is_number_integer() ? size.get<std::int64_t>() : 1);
  return sizes;
}

std::optional<Misfit> dataset_misfit(const Json& dataset, const Json& model) {
  const std::string type = type_of(dataset);
  if (auto misfit = settings_misfit(model)) return misfit;
  if (!is_built_in_dataset(dataset)) return std::nullopt;
  if (type == "tokens") return tokens_misfit(model);
  if (auto misfit = kind_misfit(model, type)) return misfit;
  if (type == "csv") return csv_misfit(dataset);
  if (type == "idx") return transforms_misfit(dataset, 1);
  if (type == "synthetic") {
    if (auto misfit = size_misfit(dataset, "training.dataset.shape")) return misfit;
  }
  if (is_image_files(type)) return image_files_misfit(dataset, model);
  if (type == "cifar") {
    if (auto misfit = transforms_misfit(dataset, static_cast<std::size_t>(data::kCifarChannels))) return misfit;
  }
  if (!is_built_in_model(model)) return std::nullopt;
  const std::int64_t outputs = model_outputs(model);
  const std::int64_t classes = type == "cifar" ? data::cifar_layout(read_or(dataset, "variant", "")).classes
                               : type == "synthetic" && learns_classes(dataset)
                                   ? read_or(dataset, "classes", std::int64_t{1})
                                   : 1;
  if (classes <= outputs) return std::nullopt;
  return Misfit{"training.model.outputs",
                fmt::format("the model gives {} outputs, and the data set has {} classes: set "
                            "training.model.outputs={}",
                            outputs, classes, classes)};
}

Result<SplitFacts> look_at_split(const Json& dataset, const std::string& split,
                                 const std::vector<std::string>& columns) {
  if (!is_built_in_dataset(dataset)) return SplitFacts{};
  const std::string type = type_of(dataset);
  if (type == "idx") return look_at_idx(dataset, split);
  if (type == "npy") return look_at_npy(dataset, split);
  if (is_image_files(type)) return look_at_images(dataset, split);
  SplitFacts facts;
  facts.sample = told_sizes(dataset);
  facts.columns = columns;
  if (type == "linear" || type == "synthetic") {
    facts.samples = read_or(dataset, split == "train" ? "samples" : "validation_samples", std::int64_t{0});
    return facts;
  }
  const auto files = data::find_files(data::patterns_of(member(dataset, split.c_str())));
  if (!files) return files.error();
  for (const std::string& path : files.value()) {
    const Status added = add_file(dataset, path, facts);
    if (!added) return added.error();
  }
  return facts;
}

}  // namespace sgd::job
