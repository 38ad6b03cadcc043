#include "launcher/cli/planned_steps.hpp"

#include <catch2/catch.hpp>

using namespace sgd;

TEST_CASE("planned steps: updates of the padded share of each rank, in every epoch") {
  job::JobSpec job;
  CHECK(cli::planned_steps(job) == 0);
  job.training.emplace();
  job.training->dataset = {{"type", "linear"}, {"samples", 1000}};
  job.training->epochs = 3;
  job.training->batch_size = 32;
  CHECK(cli::planned_steps(job) == 3 * 32);
  job.num_workers = 2;
  CHECK(cli::planned_steps(job) == 3 * 32);
  job.training->batch_size = 0;
  job.training->batch_size_per_worker = 32;
  CHECK(cli::planned_steps(job) == 3 * 16);
  job.training->gradient_accumulation = 5;
  CHECK(cli::planned_steps(job) == 3 * 4);  // Of 5, 5, 5 and 1 batches.
  job.training->dataset = {{"type", "idx"}, {"path", "/nonexistent"}};
  CHECK(cli::planned_steps(job) == 0);
  job.training->steps_per_epoch = 11;
  CHECK(cli::planned_steps(job) == 3 * 3);
}
