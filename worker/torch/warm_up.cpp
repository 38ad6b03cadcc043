#include "worker/torch/warm_up.hpp"

#include <malloc.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>
#include <vector>

#include "common/job/load.hpp"
#include "worker/torch/datasets.hpp"
#include "worker/torch/errors.hpp"
#include "worker/torch/flat_parameters.hpp"
#include "worker/torch/models.hpp"

namespace sgd::worker {
namespace {

constexpr std::int64_t kWarmUpBatchMax = 256;

/// With the ranks' batch size: kernels are generated for a shape, and the ranks inherit them.
void run_one_batch(const job::JobSpec& job, const Dataset& dataset) {
  const job::Training& training = *job.training;
  const std::shared_ptr<Model> model = make_model(training.model, dataset.shape());
  const Loss loss = make_loss(training.loss);
  const std::int64_t wanted = job::batch_size_per_rank(training, job.num_workers);
  std::vector<std::int64_t> indices(
      static_cast<std::size_t>(std::min({wanted, kWarmUpBatchMax, dataset.count(Split::kTrain)})));
  std::iota(indices.begin(), indices.end(), 0);
  Batch batch;
  try {
    batch = dataset.gather(Split::kTrain, 1, indices);
  } catch (const std::exception&) {
    return;  // Bad data: the rank that meets it in training reports it, with its step.
  }
  loss(model->forward(batch.features), batch.target).backward();
}

}  // namespace

Preloaded warm_up(const nlohmann::json& resolved_job) {
  at::set_num_threads(1);
  job::LoadResult loaded = job::load_resolved(resolved_job);
  if (!loaded.job)
    throw ConfigurationError("this worker cannot read the job: " + loaded.diagnostics.items.front().message);
  if (!loaded.job->training) throw ConfigurationError("the job has no \"training\"");
  const job::Training& training = *loaded.job->training;
  Preloaded preloaded;
  preloaded.model_settings = training.model;
  preloaded.dataset_settings = training.dataset;
  preloaded.dataset = make_dataset(training);
  run_one_batch(*loaded.job, *preloaded.dataset);
  // The warm-up has changed its own model; the ranks begin with this one, and need not draw it again.
  preloaded.seed = training.seed;
  at::manual_seed(training.seed);
  preloaded.model = make_model(training.model, preloaded.dataset->shape());
  // What the warm-up has freed is copied page by page by whoever writes there after a fork; a new page costs less.
  (void)::malloc_trim(0);
  return preloaded;
}

void set_intra_op_threads(int threads) {
  at::set_num_threads(std::max(threads, 1));
}

}  // namespace sgd::worker
