// Optimizers and schedules against what PyTorch did with the same settings in fifty steps. The numbers come from
// data/make_torch_reference.py; settings go through the job file's schema, so that defaults are compared, too.

#include <catch2/catch.hpp>

#include <cmath>
#include <fstream>

#include "common/job/load.hpp"
#include "worker/core/parameter_groups.hpp"
#include "worker/core/schedules/schedule.hpp"

namespace sgd::worker {
namespace {

using Json = nlohmann::json;

constexpr int kSteps = 50;
constexpr std::size_t kSizes[] = {3, 4};

Json torch_reference() {
  std::ifstream file(SGD_SOURCE_DIR "/test/unit/worker/data/torch_reference.json");
  return Json::parse(file);
}

/// A job file's "training" with this optimizer and this scheduler; either may be null.
job::Training training_with(const Json& optimizer, const Json& scheduler) {
  Json job = Json::parse(R"({"training": {"batch_size": 8, "loss": "mse", "model": {"type": "linear"},
                             "dataset": {"type": "linear"}}})");
  if (!optimizer.is_null()) job["training"]["optimizer"] = optimizer;
  if (!scheduler.is_null()) job["training"]["scheduler"] = scheduler;
  const job::LoadResult loaded = job::load_resolved(job);
  for (const Diagnostic& item : loaded.diagnostics.items) FAIL(item.text());
  return *loaded.job->training;
}

float reference_start(std::size_t i, std::size_t which) {
  return static_cast<float>(static_cast<int>((which * 7 + i * 5) % 11) - 5) / 8;
}

float reference_gradient(std::size_t i, std::size_t which, int step) {
  return static_cast<float>(static_cast<int>((which * 3 + i * 7 + static_cast<std::size_t>(step) * 13) % 29) - 13) / 16;
}

/// Calls `visit(index in the buffer, which parameter, index in it)`.
template <class Visit>
void for_each_element(Visit visit) {
  std::size_t at = 0;
  for (std::size_t which = 0; which < 2; ++which) {
    for (std::size_t i = 0; i < kSizes[which]; ++i) visit(at++, which, i);
  }
}

/// Parameters after every tenth step.
std::vector<std::vector<float>> trained_like(const Json& one) {
  const job::Training training = training_with(one["optimizer"], one.value("scheduler", Json()));
  Json second = one["optimizer"];
  second.update(one.value("second_group", Json::object()));
  std::vector<job::Optimizer> groups = {training.optimizer, training_with(second, {}).optimizer};
  std::unique_ptr<Schedule> schedule;
  if (training.scheduler) schedule = make_schedule(*training.scheduler, training.optimizer.lr);
  const auto follow = [&groups, &schedule](int count) {
    if (!schedule) return;
    schedule->set_count(count);
    for (job::Optimizer& group : groups) group = with_rates(group, schedule->rates());
  };
  follow(0);
  const std::size_t count = kSizes[0] + kSizes[1];
  const auto optimizer = make_step_optimizer(groups, count);
  ParameterGroups parameters({{{0, kSizes[0]}, 0}, {{kSizes[0], kSizes[1]}, 1}});
  std::vector<float> params(count), grads(count);
  for_each_element(
      [&params](std::size_t at, std::size_t which, std::size_t i) { params[at] = reference_start(i, which); });
  std::vector<std::vector<float>> after;
  for (int step = 0; step < kSteps; ++step) {
    for_each_element([&grads, step](std::size_t at, std::size_t which, std::size_t i) {
      grads[at] = reference_gradient(i, which, step);
    });
    parameters.step(*optimizer, params, grads, groups, {true, step % 4 != 1}, 1);
    follow(step + 1);
    if (step % 10 == 9) after.push_back(params);
  }
  return after;
}

/// How far `value` is from `wanted`, as a share of it.
double relative_error(double value, double wanted) {
  return value == wanted ? 0 : std::abs(value - wanted) / std::abs(wanted);
}

}  // namespace

TEST_CASE("torch parity: optimizers, groups, and steps without a gradient, to 1e-6") {
  const Json reference = torch_reference();
  REQUIRE(reference["optimizers"].size() == 20);
  for (const Json& one : reference["optimizers"]) {
    INFO(one["optimizer"].dump() << " " << one.value("scheduler", Json()).dump() << " "
                                 << one.value("second_group", Json()).dump());
    const auto after = trained_like(one);
    REQUIRE(after.size() == one["parameters"].size());
    double worst = 0;
    for (std::size_t row = 0; row < after.size(); ++row) {
      for (std::size_t i = 0; i < after[row].size(); ++i) {
        const auto wanted = one["parameters"][row][i].get<double>();
        worst = std::max(worst, std::abs(static_cast<double>(after[row][i]) - wanted));
      }
    }
    CHECK(worst <= 1e-6);
  }
}

TEST_CASE("torch parity: schedules over time, chained ones, and cycled momentum, to 1e-12") {
  const Json reference = torch_reference();
  REQUIRE(reference["schedules"].size() == 20);
  for (const Json& one : reference["schedules"]) {
    INFO(one["scheduler"].dump());
    const auto schedule = make_schedule(*training_with({}, one["scheduler"]).scheduler, 0.1);
    REQUIRE(one["lr"].size() == kSteps + 1);
    for (int count = 0; count <= kSteps; ++count) {
      INFO(count);
      schedule->set_count(count);
      const Rates rates = schedule->rates();
      CHECK(relative_error(rates.lr, one["lr"][count].get<double>()) <= 1e-12);
      REQUIRE(rates.momentum.has_value() == one.contains("momentum"));
      if (rates.momentum) CHECK(relative_error(*rates.momentum, one["momentum"][count].get<double>()) <= 1e-12);
    }
  }
}

TEST_CASE("torch parity: a rate that follows a metric, to 1e-12") {
  const Json reference = torch_reference();
  REQUIRE(reference["plateaus"].size() == 5);
  for (const Json& one : reference["plateaus"]) {
    INFO(one["scheduler"].dump());
    const auto schedule = make_schedule(*training_with({}, one["scheduler"]).scheduler, 0.1);
    REQUIRE(one["metrics"].size() == kSteps);
    for (std::size_t epoch = 0; epoch < kSteps; ++epoch) {
      INFO(epoch);
      schedule->observe(one["metrics"][epoch]);
      CHECK(relative_error(schedule->rates().lr, one["lr"][epoch].get<double>()) <= 1e-12);
    }
    CHECK(one["lr"].back() < 0.1);  // The case says something.
  }
}

}  // namespace sgd::worker
