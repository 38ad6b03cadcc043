#include "launcher/cli/planned_steps.hpp"

#include "common/data/idx.hpp"
#include "common/json/lenient.hpp"

namespace sgd::cli {
namespace {

std::int64_t sample_count(const nlohmann::json& dataset) {
  if (read_or(dataset, "type", "") == "linear") return read_or(dataset, "samples", std::int64_t{0});
  if (read_or(dataset, "type", "") != "idx") return 0;
  const auto files = data::find_idx(read_or(dataset, "path", ""), data::IdxSplit::kTrain);
  return files ? static_cast<std::int64_t>(files.value().images.dims[0]) : 0;
}

std::int64_t divide_up(std::int64_t count, std::int64_t by) {
  return (count + by - 1) / by;
}

}  // namespace

std::int64_t planned_steps(const job::JobSpec& job) {
  if (!job.training) return 0;
  const std::int64_t per_rank = divide_up(sample_count(job.training->dataset), job.num_workers);
  return job.training->epochs * divide_up(per_rank, job::batch_size_per_rank(*job.training, job.num_workers));
}

}  // namespace sgd::cli
