#include "worker/data/open_reader.hpp"

#include <utility>

#include <fmt/format.h>

#include "common/data/csv_columns.hpp"
#include "common/data/file_list.hpp"
#include "common/data/tokens.hpp"
#include "common/json/lenient.hpp"
#include "worker/data/csv_dataset.hpp"
#include "worker/data/npy_dataset.hpp"
#include "worker/data/synthetic_dataset.hpp"

namespace sgd::worker {
namespace {

const nlohmann::json& section_of(const nlohmann::json& settings, Split split) {
  return member(settings, split == Split::kTrain ? "train" : "validation");
}

Result<std::vector<std::string>> files_of(const nlohmann::json& settings, Split split) {
  return data::find_files(data::patterns_of(section_of(settings, split)));
}

bool learns_classes(const nlohmann::json& settings) {
  return read_or(settings, "targets", "classes") == "classes";
}

/// Of the first file that is trained on.
Result<std::vector<std::string>> csv_order_of(const nlohmann::json& trained_on) {
  if (read_or(trained_on, "type", "") != "csv") return std::vector<std::string>{};
  const auto files = files_of(trained_on, Split::kTrain);
  if (!files) return files.error();
  const data::CsvSettings settings = data::csv_settings(trained_on);
  const Result<data::CsvColumns> columns = data::inspect_csv(files.value().front(), settings);
  if (!columns) return columns.error();
  return data::csv_order(settings, columns.value());
}

ReaderResult open_csv(const nlohmann::json& settings, Split split, std::int64_t outputs,
                      const nlohmann::json& trained_on) {
  const auto files = files_of(settings, split);
  if (!files) return files.error();
  data::CsvSettings csv = data::csv_settings(settings);
  if (split == Split::kValidation) {
    Result<std::vector<std::string>> order = csv_order_of(trained_on);
    if (!order) return order.error();
    csv.order = std::move(order).value();
  }
  return CsvDataset::open(files.value(), csv, outputs);
}

ReaderResult open_npy(const nlohmann::json& settings, Split split, std::int64_t outputs) {
  const nlohmann::json& files = section_of(settings, split);
  return NpyDataset::open(read_or(files, "features", ""), read_or(files, "target", ""),
                          learns_classes(settings) ? outputs : 0);
}

ReaderResult make_synthetic(const nlohmann::json& settings, Split split, std::int64_t outputs) {
  SyntheticSettings made;
  made.shape.clear();
  for (const auto& size : member(settings, "shape")) made.shape.push_back(size.get<std::int64_t>());
  made.classes = learns_classes(settings) ? read_or(settings, "classes", made.classes) : 0;
  made.samples = read_or(settings, split == Split::kTrain ? "samples" : "validation_samples", made.samples);
  made.seed = read_or(settings, "seed", made.seed);
  if (made.classes > outputs)
    return Error{fmt::format("the data set has {} classes, and the model gives {} outputs", made.classes, outputs)};
  return std::unique_ptr<const SampleReader>(std::make_unique<const SyntheticDataset>(made, split));
}

}  // namespace

ReaderResult open_reader(const nlohmann::json& settings, Split split, std::int64_t outputs,
                         const nlohmann::json* trained_on) {
  const std::string type = read_or(settings, "type", "");
  if (type == "csv") return open_csv(settings, split, outputs, trained_on == nullptr ? settings : *trained_on);
  if (type == "npy") return open_npy(settings, split, outputs);
  return make_synthetic(settings, split, outputs);
}

Result<CifarDataset> open_cifar(const nlohmann::json& settings, Split split, std::int64_t outputs) {
  const auto files = files_of(settings, split);
  if (!files) return files.error();
  return CifarDataset::open(files.value(), data::cifar_layout(read_or(settings, "variant", "")), outputs);
}

Result<TokenDataset> open_tokens(const nlohmann::json& settings, Split split, std::int64_t outputs) {
  const auto files = files_of(settings, split);
  if (!files) return files.error();
  return TokenDataset::open(files.value(), data::token_bytes(read_or(settings, "dtype", "u16")),
                            read_or(settings, "length", std::int64_t{1}), outputs);
}

}  // namespace sgd::worker
