#include "worker/torch/warm_up.hpp"

#include <malloc.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>
#include <vector>

#include "common/json/lenient.hpp"
#include "worker/plugin/registered.hpp"
#include "worker/torch/datasets.hpp"
#include "worker/torch/device.hpp"
#include "worker/torch/device_library.hpp"
#include "worker/torch/errors.hpp"
#include "worker/torch/models.hpp"
#include "worker/torch/worker_job.hpp"

namespace sgd::worker {
namespace {

constexpr std::int64_t kWarmUpBatchMax = 256;
/// Of a large network, or of images that are decoded first: more would take seconds on this one thread.
constexpr std::int64_t kHeavyBatchMax = 2;

bool is_light(const nlohmann::json& model, const Dataset& dataset) {
  const std::string type = read_or(model, "type", "");
  return !dataset.is_slow() && (type == "linear" || type == "mlp" || type == "cnn");
}

/// Of the shape that a data set says, where it is a plug-in's: its own samples say nothing to this model.
at::Tensor zeros_of(const SampleShape& shape, std::int64_t count) {
  std::vector<std::int64_t> sizes = shape.features;
  sizes.insert(sizes.begin(), count);
  return at::zeros(sizes);
}

/// With the ranks' batch size: kernels are generated for a shape, and the ranks inherit them.
void run_one_batch(const job::JobSpec& job, const Dataset& dataset) {
  const job::Training& training = *job.training;
  const nlohmann::json any_model = {{"type", "mlp"}, {"outputs", std::max<std::int64_t>(1, dataset.shape().outputs)}};
  const bool is_own = !is_built_in(training);
  const std::shared_ptr<Model> model = make_model(is_own ? any_model : training.model, dataset.shape());
  const Loss loss = is_own ? Loss() : make_loss(training.loss);
  const std::int64_t most = is_light(is_own ? any_model : training.model, dataset) ? kWarmUpBatchMax : kHeavyBatchMax;
  const std::int64_t wanted = job::batch_size_per_rank(training, job.num_workers);
  const bool is_stream = dataset.is_stream(Split::kTrain);
  const std::int64_t count = std::min({wanted, most, is_stream ? wanted : dataset.count(Split::kTrain)});
  if (is_stream || has_registered_dataset(read_or(training.dataset, "type", ""))) {
    if (!dataset.shape().features.empty()) model->forward(zeros_of(dataset.shape(), count)).sum().backward();
    return;
  }
  std::vector<std::int64_t> indices(static_cast<std::size_t>(count));
  std::iota(indices.begin(), indices.end(), 0);
  Batch batch;
  try {
    batch = dataset.gather(Split::kTrain, 1, indices);
  } catch (const std::exception&) {
    return;  // Bad data: the rank that meets it in training reports it, with its step.
  }
  const at::Tensor output = model->forward(is_own ? batch.features.to(at::kFloat) : batch.features);
  (is_own ? output.sum() : loss(output, batch.target)).backward();
}

}  // namespace

Preloaded warm_up(const nlohmann::json& resolved_job) {
  at::set_num_threads(1);
  const job::JobSpec job = read_worker_job(resolved_job);
  if (wants_gpu(job)) open_device_library();
  const job::Training& training = *job.training;
  Preloaded preloaded;
  preloaded.model_settings = training.model;
  preloaded.dataset_settings = data_settings(training);
  preloaded.seed = training.seed;
  preloaded.dataset = make_dataset(training);
  if (training.dataset.is_null()) return preloaded;
  // A backward pass counts the devices, and so does a seed for all generators: CUDA would begin in this process, and a
  // child could not use it.
  if (wants_gpu(job)) return preloaded;
  run_one_batch(job, *preloaded.dataset);
  // What a user's own code leaves behind in this process would be in every rank, and not in one that begins anew.
  if (!is_built_in(training)) return preloaded;
  // The warm-up has changed its own model; the ranks begin with this one, and need not draw it again.
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
