#include "launcher/cli/planned_steps.hpp"

#include "common/job/data_facts.hpp"

namespace sgd::cli {
namespace {

std::int64_t divide_up(std::int64_t count, std::int64_t by) {
  return (count + by - 1) / by;
}

/// Of one rank; 0: not known.
std::int64_t batches_per_epoch(const job::JobSpec& job) {
  if (job.training->steps_per_epoch > 0) return job.training->steps_per_epoch;
  if (job.training->dataset.is_null()) return 0;
  const Result<job::SplitFacts> facts = job::look_at_split(job.training->dataset, "train");
  const std::int64_t per_rank = divide_up(facts ? facts.value().samples : 0, job.num_workers);
  return divide_up(per_rank, job::batch_size_per_rank(*job.training, job.num_workers));
}

}  // namespace

std::int64_t planned_steps(const job::JobSpec& job) {
  if (!job.training || job.training->validate_only) return 0;
  // An epoch's last batch updates, whatever has been accumulated by then.
  return job.training->epochs * divide_up(batches_per_epoch(job), job.training->gradient_accumulation);
}

}  // namespace sgd::cli
