#include "common/job/data_facts.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "common/data/cifar.hpp"
#include "common/data/csv_columns.hpp"
#include "common/data/file_list.hpp"
#include "common/data/idx.hpp"
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

std::optional<Misfit> synthetic_misfit(const Json& dataset) {
  double numbers = 1;  // Cannot overflow.
  for (const std::int64_t size : told_sizes(dataset).value_or(SampleSizes{})) numbers *= static_cast<double>(size);
  if (numbers <= static_cast<double>(kSampleNumbersMax)) return std::nullopt;
  return Misfit{"training.dataset.shape",
                fmt::format("\"training.dataset.shape\" must have at most {} numbers a sample, "
                            "got {:.0f}",
                            kSampleNumbersMax, numbers)};
}

std::optional<Misfit> tokens_misfit(const Json& model) {
  const std::string type = type_of(model);
  if (type != "cnn" && type != "linear" && type != "mlp") return std::nullopt;
  return Misfit{"training.model.type", fmt::format("the model {} takes numbers, and the samples of this data set are "
                                                   "tokens: it needs a model with an embedding",
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

/// Adds what one file of several holds.
Status add_file(const Json& dataset, const std::string& path, SplitFacts& facts) {
  const std::string type = type_of(dataset);
  if (type == "csv") {
    const auto columns = data::inspect_csv(path, data::csv_settings(dataset));
    if (!columns) return columns.error();
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

bool learns_classes(const Json& dataset) {
  if (type_of(dataset) == "linear") return false;
  return read_or(dataset, "targets", "classes") == "classes";
}

std::optional<SampleSizes> told_sizes(const Json& dataset) {
  const std::string type = type_of(dataset);
  if (type == "linear") return SampleSizes{1};
  if (type == "cifar") return SampleSizes{data::kCifarChannels, data::kCifarSide, data::kCifarSide};
  const Json& shape = member(dataset, "shape");
  if (type != "synthetic" || !shape.is_array()) return std::nullopt;
  SampleSizes sizes;
  for (const Json& size : shape) sizes.push_back(size.is_number_integer() ? size.get<std::int64_t>() : 1);
  return sizes;
}

std::optional<Misfit> dataset_misfit(const Json& dataset, const Json& model) {
  const std::string type = type_of(dataset);
  if (type == "csv") return csv_misfit(dataset);
  if (type == "tokens") return tokens_misfit(model);
  if (type == "idx") return transforms_misfit(dataset, 1);
  if (type == "synthetic") {
    if (auto misfit = synthetic_misfit(dataset)) return misfit;
  }
  if (type == "cifar") {
    if (auto misfit = transforms_misfit(dataset, static_cast<std::size_t>(data::kCifarChannels))) return misfit;
  }
  const std::int64_t outputs = read_or(model, "outputs", std::int64_t{1});
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

Result<SplitFacts> look_at_split(const Json& dataset, const std::string& split) {
  const std::string type = type_of(dataset);
  if (type == "idx") return look_at_idx(dataset, split);
  if (type == "npy") return look_at_npy(dataset, split);
  SplitFacts facts;
  facts.sample = told_sizes(dataset);
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
