// Schedules over their whole life: forwards, back, and through a checkpoint. That their values are PyTorch's is in
// torch_parity_test.cpp.

#include "worker/core/schedules/schedule.hpp"

#include <catch2/catch.hpp>

#include <bit>
#include <cmath>

#include "common/job/load.hpp"
#include "worker/core/schedules/cosine.hpp"

namespace sgd::worker {
namespace {

using Json = nlohmann::json;

/// The scheduler of a job file, with its defaults.
std::unique_ptr<Schedule> schedule_of(const std::string& text, double lr = 0.1) {
  Json job = Json::parse(R"({"training": {"batch_size": 8, "loss": "mse", "model": {"type": "linear"},
                             "dataset": {"type": "linear"}}})");
  job["training"]["scheduler"] = Json::parse(text);
  const job::LoadResult loaded = job::load_resolved(job);
  for (const Diagnostic& item : loaded.diagnostics.items) FAIL(item.text());
  return make_schedule(*loaded.job->training->scheduler, lr);
}

const std::vector<std::string> kTimed = {
    R"({"type": "step", "step_size": 3, "gamma": 0.7})",
    R"({"type": "multi_step", "milestones": [9, 2, 9], "gamma": 0.3})",
    R"({"type": "exponential", "gamma": 0.9})",
    R"({"type": "linear", "total_iters": 7})",
    R"({"type": "cosine", "t_max": 6, "eta_min": 0.001})",
    R"({"type": "cosine_warm_restarts", "t_0": 3, "t_mult": 2})",
    R"({"type": "one_cycle", "max_lr": 0.5, "total_steps": 15})",
    R"([{"type": "linear", "total_iters": 4}, {"type": "cosine", "t_max": 20}, {"type": "step", "step_size": 5}])",
};

/// As a checkpoint brings it back.
Json through_text(const Json& state) {
  return Json::parse(state.dump());
}

}  // namespace

TEST_CASE("schedule: StepLR by epochs, forwards and back") {
  const auto step = schedule_of(R"({"type": "step", "step_size": 2, "gamma": 0.5})", 0.05);
  const double wanted[] = {0.05, 0.05, 0.025, 0.025, 0.0125};
  for (int epoch : {0, 1, 2, 3, 4, 4, 3, 2, 1, 0, 4}) {
    step->set_count(epoch);
    CHECK(step->rates() == Rates{wanted[epoch], std::nullopt});
  }
}

TEST_CASE("schedule: going on from a checkpoint of any count has the same bits") {
  for (const std::string& text : kTimed) {
    INFO(text);
    const auto straight = schedule_of(text);
    for (int count = 0; count < 25; ++count) {
      straight->set_count(count);
      const auto resumed = schedule_of(text);
      REQUIRE(resumed->import_state(through_text(straight->export_state())).ok());
      CHECK(resumed->rates() == straight->rates());
      const auto counted = schedule_of(text);  // As checkpoints were before there was more than a count.
      REQUIRE(counted->import_state(Json{{"count", count}}).ok());
      CHECK(counted->rates() == straight->rates());
      for (const int further : {count + 1, count + 4, count / 2}) {
        straight->set_count(further);
        resumed->set_count(further);
        CHECK(resumed->rates() == straight->rates());
      }
    }
  }
}

TEST_CASE("schedule: rates are taken from a checkpoint of the same settings, and made anew for others") {
  const auto before = schedule_of(kTimed[2]);
  before->set_count(10);
  Json state = before->export_state();
  state["lr_bits"] = std::bit_cast<std::uint64_t>(42.0);  // Nothing but reading it can give this.
  const auto same = schedule_of(kTimed[2]);
  REQUIRE(same->import_state(state).ok());
  CHECK(same->rates().lr == 42);
  const auto other_rate = schedule_of(kTimed[2], 0.2);
  REQUIRE(other_rate->import_state(state).ok());
  CHECK(other_rate->rates().lr == Approx(0.2 * std::pow(0.9, 10)));
  const auto other_kind = schedule_of(kTimed[0]);
  REQUIRE(other_kind->import_state(state).ok());
  CHECK(other_kind->rates().lr == Approx(0.1 * std::pow(0.7, 3)));
}

TEST_CASE("schedule: a damaged state is an error that names the field, and changes nothing") {
  struct Row {
    const char* scheduler;
    const char* field;
  };
  for (const Row& row :
       {Row{kTimed[6].c_str(), "count"}, Row{kTimed[6].c_str(), "lr_bits"}, Row{kTimed[6].c_str(), "momentum_bits"},
        Row{R"({"type": "reduce_on_plateau"})", "best_bits"}, Row{R"({"type": "reduce_on_plateau"})", "bad_epochs"},
        Row{R"({"type": "reduce_on_plateau"})", "reductions"}}) {
    INFO(row.scheduler << " " << row.field);
    const auto schedule = schedule_of(row.scheduler);
    schedule->set_count(4);
    const Json good = schedule->export_state();
    for (const Json& bad : {Json("text"), Json(-1), Json(1.5), Json(nullptr)}) {
      Json state = good;
      state[row.field] = bad;
      const Status imported = schedule->import_state(state);
      REQUIRE_FALSE(imported.ok());
      CHECK(imported.error().message == "scheduler state: " + std::string(row.field) + " is missing or not a count");
      CHECK(schedule->export_state() == good);
    }
  }
  CHECK_FALSE(schedule_of(kTimed[0])->import_state(Json::array()).ok());
}

TEST_CASE("schedule: one cycle stays at its end, and a phase without a length is over at once") {
  const auto cycle = schedule_of(kTimed[6]);
  cycle->set_count(14);
  const Rates end = cycle->rates();
  CHECK(end.lr == Approx(0.5 / 25 / 1e4));
  cycle->set_count(15);
  CHECK(cycle->rates() == end);
  cycle->set_count(1000);
  CHECK(cycle->rates() == end);
  const auto at_once = schedule_of(R"({"type": "one_cycle", "max_lr": 0.5, "total_steps": 10, "pct_start": 0.1})");
  CHECK(at_once->rates().lr == 0.5);
  at_once->set_count(9);
  CHECK(at_once->rates().lr == Approx(0.5 / 25 / 1e4));
}

TEST_CASE("schedule: rates go to the optimizer's own kind of momentum") {
  job::Optimizer settings;
  settings.momentum = 0.5;
  CHECK(with_rates(settings, {0.3, std::nullopt}).lr == 0.3);
  CHECK(with_rates(settings, {0.3, std::nullopt}).momentum == 0.5);
  CHECK(with_rates(settings, {0.3, 0.8}).momentum == 0.8);
  settings.type = "rmsprop";
  CHECK(with_rates(settings, {0.3, 0.8}).momentum == 0.8);
  settings.type = "adamw";
  CHECK(with_rates(settings, {0.3, 0.8}).beta1 == 0.8);
  CHECK(with_rates(settings, {0.3, 0.8}).momentum == 0.5);
}

TEST_CASE("schedule: a plateau lowers the rate, waits out its cooldown, and stops at the least rate") {
  const auto plateau =
      schedule_of(R"({"type": "reduce_on_plateau", "factor": 0.5, "patience": 1, "cooldown": 2, "min_lr": 0.03})", 0.1);
  CHECK(plateau->metric() == "val_loss");
  struct Row {
    double metric, lr;
  };
  const double nan = std::nan("");
  for (const Row& row : {Row{5, 0.1},
                         {4, 0.1},
                         {nan, 0.1},
                         {4, 0.05},  // The second bad epoch.
                         {9, 0.05},
                         {9, 0.05},  // Cooldown.
                         {9, 0.05},
                         {9, 0.03},
                         {9, 0.03},
                         {9, 0.03},
                         {9, 0.03},
                         {9, 0.03}}) {
    plateau->observe(row.metric);
    CHECK(plateau->rates().lr == row.lr);
  }
}

TEST_CASE("schedule: a plateau goes on from any epoch with the same bits") {
  const char* const text = R"({"type": "reduce_on_plateau", "factor": 0.7, "patience": 2, "cooldown": 1})";
  const std::vector<double> values = {9, 7, 8, 8, 8, 8, 8, 6, 6, 6, 6, 6, 6, 6, 5, 5, 5, 5, 5, 5};
  for (std::size_t cut = 0; cut < values.size(); ++cut) {
    const auto straight = schedule_of(text);
    for (std::size_t i = 0; i < cut; ++i) straight->observe(values[i]);
    straight->set_count(static_cast<std::int64_t>(cut));
    const auto resumed = schedule_of(text);
    REQUIRE(resumed->import_state(through_text(straight->export_state())).ok());
    CHECK(resumed->export_state() == straight->export_state());
    for (std::size_t i = cut; i < values.size(); ++i) {
      straight->observe(values[i]);
      resumed->observe(values[i]);
      CHECK(resumed->rates() == straight->rates());
    }
  }
}

TEST_CASE("schedule: a plateau under changed settings keeps what it has lowered, and forgets another metric's best") {
  const auto before = schedule_of(R"({"type": "reduce_on_plateau", "patience": 0})", 0.1);
  for (const double loss : {1.0, 2.0, 3.0}) before->observe(loss);
  CHECK(before->rates().lr == 0.1 * 0.1 * 0.1);
  const auto after =
      schedule_of(R"({"type": "reduce_on_plateau", "patience": 0, "metric": "val_accuracy", "mode": "max"})", 0.2);
  REQUIRE(after->import_state(before->export_state()).ok());
  CHECK(after->rates().lr == 0.2 * 0.1 * 0.1);
  after->observe(0.5);  // The first of its kind: the best so far.
  CHECK(after->rates().lr == 0.2 * 0.1 * 0.1);
}

TEST_CASE("schedule: the cosine is the C library's but for its last bit") {
  CHECK(cosine(0) == 1);
  CHECK(cosine(M_PI) == -1);
  CHECK(cosine(-M_PI) == -1);
  CHECK(std::abs(cosine(M_PI / 2) - 6.123233995736766e-17) < 1e-28);
  int different = 0;
  for (int i = -20000; i <= 20000; ++i) {
    const double x = i * 0.00731 * (1 + std::abs(i) % 97);
    const double wanted = std::cos(x);
    CHECK(std::abs(cosine(x) - wanted) <= std::abs(wanted) * 2.3e-16);
    different += cosine(x) == wanted ? 0 : 1;
  }
  CHECK(different < 400);
}

}  // namespace sgd::worker
