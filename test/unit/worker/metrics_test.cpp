#include "worker/core/metrics.hpp"

#include <catch2/catch.hpp>

#include <bit>
#include <cmath>
#include <limits>

#include "worker/core/step_timer.hpp"

namespace sgd::worker {
namespace {

TEST_CASE("metrics: means are weighted by samples, keys are RaySGD's in order") {
  MetricsAccumulator train;
  train.add(32, {{"train_loss", 2.0}});
  train.add(8, {{"train_loss", 1.0}});
  CHECK(train.to_json(3).dump() ==
        R"({"epoch":3,"batch_count":2,"num_samples":40,"train_loss":1.8,"last_train_loss":1.0})");
  MetricsAccumulator validate;
  validate.add(10, {{"val_loss", 0.5}, {"val_accuracy", 0.75}});
  CHECK(validate.to_json(std::nullopt).dump() ==
        R"({"batch_count":1,"num_samples":10,"val_loss":0.5,"last_val_loss":0.5,"val_accuracy":0.75,)"
        R"("last_val_accuracy":0.75})");
  CHECK(train.mean("train_loss") == 1.8);
  CHECK(train.last("train_loss") == 1.0);
  CHECK_FALSE(train.mean("val_loss"));
}

TEST_CASE("metrics: a NaN in one batch makes the mean NaN and keeps the last value") {
  MetricsAccumulator train;
  train.add(4, {{"train_loss", std::numeric_limits<double>::quiet_NaN()}});
  train.add(4, {{"train_loss", 0.5}});
  CHECK(std::isnan(*train.mean("train_loss")));
  CHECK(train.last("train_loss") == 0.5);
  CHECK(train.to_json(1).dump() ==
        R"({"epoch":1,"batch_count":2,"num_samples":8,"train_loss":null,"last_train_loss":0.5})");
}

TEST_CASE("metrics: exported and imported sums go on bit for bit") {
  MetricsAccumulator whole, first;
  for (int i = 0; i < 100; ++i) {
    const double loss = std::sin(i) / 3;
    whole.add(7 + i % 3, {{"train_loss", loss}, {"norm", i == 5 ? std::nan("") : loss * 1e300}});
    first.add(7 + i % 3, {{"train_loss", loss}, {"norm", i == 5 ? std::nan("") : loss * 1e300}});
    // Through text, as a checkpoint does it.
    const auto text = first.export_state().dump();
    MetricsAccumulator second;
    REQUIRE(second.import_state(nlohmann::json::parse(text)));
    first = second;
  }
  CHECK(first.export_state() == whole.export_state());
  CHECK(std::bit_cast<std::uint64_t>(*first.mean("train_loss")) ==
        std::bit_cast<std::uint64_t>(*whole.mean("train_loss")));
  CHECK(first.batch_count() == 100);
}

TEST_CASE("metrics: a pass that goes on with fewer ranks has made its steps once") {
  MetricsAccumulator one, two;
  for (int i = 0; i < 10; ++i) {
    one.add(4, {{"m", 1.0}});
    two.add(4, {{"m", 3.0}});
  }
  one.merge(two);
  CHECK(one.batch_count() == 10);
  CHECK(one.num_samples() == 80);
  CHECK(*one.mean("m") == 2);
}

TEST_CASE("metrics: a damaged state is refused and changes nothing") {
  MetricsAccumulator good;
  good.add(1, {{"m", 2.0}});
  const nlohmann::json state = good.export_state();
  MetricsAccumulator target = good;
  const auto refuse = [&](const nlohmann::json& bad, const std::string& part) {
    const Status status = target.import_state(bad);
    REQUIRE_FALSE(status);
    CHECK_THAT(status.error().message, Catch::Contains(part));
    CHECK(target.export_state() == state);
  };
  refuse(nlohmann::json::array(), "not an object");
  for (const char* key : {"batch_count", "num_samples", "metrics"}) {
    nlohmann::json bad = state;
    bad.erase(key);
    refuse(bad, key);
  }
  for (const char* key : {"name", "weighted_sum_bits", "samples", "last_bits"}) {
    nlohmann::json bad = state;
    bad["metrics"][0].erase(key);
    refuse(bad, std::string(key) == "name" ? "no name" : key);
    bad["metrics"][0][key] = -1;
    refuse(bad, std::string(key) == "name" ? "no name" : key);
  }
}

TEST_CASE("step timer: quantiles are within half a percent") {
  StepTimer timer;
  CHECK(timer.median_ms() == 0);
  for (int i = 1; i <= 10'000; ++i) timer.add(std::chrono::microseconds(i));
  CHECK(timer.count() == 10'000);
  CHECK(timer.median_ms() == Approx(5.0).epsilon(0.005));
  CHECK(timer.p95_ms() == Approx(9.5).epsilon(0.005));
  CHECK(timer.mean_ms() == Approx(4.95).epsilon(0.005));  // The slowest 1 % are left out.
  timer.add(std::chrono::hours(1));
  CHECK(timer.mean_ms() == Approx(4.95).epsilon(0.005));
  timer.clear();
  CHECK(timer.mean_ms() == 0);
  CHECK(timer.count() == 0);
  for (const std::int64_t ns : {1ll, 100ll, 255ll, 256ll, 257ll, 1'000'003ll, 3'600'000'000'000ll / 4}) {
    timer.clear();
    timer.add(Duration(ns));
    CHECK(timer.median_ms() == Approx(static_cast<double>(ns) * 1e-6).epsilon(0.005));
  }
  timer.clear();
  timer.add(Duration(-5));
  CHECK(timer.median_ms() == 0);
  timer.clear();
  timer.add(std::chrono::hours(10));
  CHECK(timer.median_ms() == Approx(1099511.6).epsilon(0.005));
}

}  // namespace
}  // namespace sgd::worker
