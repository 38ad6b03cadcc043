#include "worker/core/early_stop.hpp"

#include <limits>

#include <catch2/catch.hpp>

namespace sgd::worker {
namespace {

job::EarlyStop patient(int patience) {
  job::EarlyStop settings;
  settings.patience = patience;
  return settings;
}

}  // namespace

TEST_CASE("early stop: so many validations in a row without a better value end the training") {
  EarlyStop stop(patient(2));
  for (const auto& [epoch, value, is_over] :
       {std::tuple{1, 1.0, false}, {2, 1.5, false}, {3, 0.5, false}, {4, 0.5, false}, {5, 0.6, true}}) {
    stop.observe(epoch, value);
    CHECK(stop.is_over() == is_over);
  }
  CHECK(stop.reason() == "val_loss has not got better than 0.5 (epoch 3) in 2 validations");
}

TEST_CASE("early stop: larger is better where it is asked for, and a difference may be too small to count") {
  job::EarlyStop settings = patient(1);
  settings.metric = "val_accuracy";
  settings.wants_least = false;
  settings.min_delta = 0.1;
  EarlyStop stop(settings);
  stop.observe(1, 0.5);
  stop.observe(2, 0.7);
  CHECK_FALSE(stop.is_over());
  stop.observe(3, 0.75);
  CHECK(stop.is_over());
  CHECK(stop.reason() == "val_accuracy has not got better than 0.7 (epoch 2) in 1 validation");
}

TEST_CASE("early stop: what is no number is not better") {
  EarlyStop stop(patient(2));
  stop.observe(1, std::numeric_limits<double>::quiet_NaN());
  stop.observe(2, std::numeric_limits<double>::quiet_NaN());
  CHECK(stop.is_over());
  CHECK(stop.reason() == "val_loss has been no number in 2 validations");
}

TEST_CASE("early stop: its state goes on to the bit, of another metric it counts for nothing") {
  EarlyStop stop(patient(3));
  stop.observe(1, 0.1 + 0.2);
  stop.observe(2, 1);
  EarlyStop next(patient(3));
  REQUIRE(next.load(nlohmann::json::parse(stop.state().dump())).ok());
  CHECK(next.state() == stop.state());
  job::EarlyStop other = patient(3);
  other.metric = "val_error";
  EarlyStop changed(other);
  REQUIRE(changed.load(stop.state()).ok());
  CHECK(changed.state() == EarlyStop(other).state());
  REQUIRE(next.load(nullptr).ok());
  CHECK(next.state() == EarlyStop(patient(3)).state());
  nlohmann::json damaged = stop.state();
  damaged["without"] = -1;
  CHECK_FALSE(next.load(damaged).ok());
}

}  // namespace sgd::worker
