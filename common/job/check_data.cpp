#include <algorithm>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "common/base/bytes.hpp"
#include "common/data/idx.hpp"
#include "common/job/load.hpp"
#include "common/job/model_size.hpp"

namespace sgd::job {
namespace {

SampleSizes sizes_of(const data::IdxFiles& files) {
  return {files.images.dims.begin() + 1, files.images.dims.end()};
}

/// Of the job's data set; nothing when that cannot be known here.
std::optional<SampleSizes> sample_sizes(const Training& training) {
  if (training.dataset["type"] == "linear") return SampleSizes{1};
  if (training.dataset["type"] != "idx") return std::nullopt;
  const auto files = data::find_idx(training.dataset["path"], data::IdxSplit::kTrain);
  if (!files) return std::nullopt;
  return sizes_of(files.value());
}

}  // namespace

void check_data(const JobSpec& job, const std::string& source, Diagnostics& diagnostics) {
  if (!job.training || job.training->dataset["type"] != "idx") return;
  const auto say = [&](const std::string& key, const std::string& message) {
    const auto found = job.places.find(key);
    const JobSpec::Place place = found == job.places.end() ? JobSpec::Place{} : found->second;
    diagnostics.error(place.source.empty() ? source : place.source, place.line, place.column, message);
  };
  const std::string path = job.training->dataset["path"];
  for (const data::IdxSplit split : {data::IdxSplit::kTrain, data::IdxSplit::kValidate}) {
    const Result<data::IdxFiles> files = data::find_idx(path, split);
    if (files.ok()) {
      const auto misfit = model_misfit(job.training->model, sizes_of(files.value()), true);
      if (!misfit || split == data::IdxSplit::kValidate) continue;
      say(misfit->path, misfit->message);
      return;
    }
    say("training.dataset.path", files.error().message);
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) return;  // One missing folder is one error.
  }
}

void check_memory_need(const JobSpec& job, const std::string& source, std::int64_t memory_bytes,
                       Diagnostics& diagnostics) {
  if (!job.training || memory_bytes <= 0) return;
  const std::optional<SampleSizes> sample = sample_sizes(*job.training);
  if (!sample) return;
  constexpr double kSayable = 9e18;  // Bytes that have words.
  const double needed = std::min(bytes_needed(job, *sample), kSayable);
  if (needed <= static_cast<double>(memory_bytes)) return;
  const auto found = job.places.find("training.model.hidden");
  const JobSpec::Place place = found == job.places.end() ? JobSpec::Place{} : found->second;
  diagnostics.error(
      place.source.empty() ? source : place.source, place.line, place.column,
      fmt::format("the model has {:.3g} million parameters: {} worker{} need{} at least {} of memory, and this machine "
                  "has {}",
                  parameter_count(job.training->model, *sample) / 1e6, job.num_workers, job.num_workers == 1 ? "" : "s",
                  job.num_workers == 1 ? "s" : "", format_bytes(static_cast<std::int64_t>(needed)),
                  format_bytes(memory_bytes)));
}

}  // namespace sgd::job
