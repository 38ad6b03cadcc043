// RaySGD's test_metrics and test_metrics_nan, of the public class.
#include <catch2/catch.hpp>

#include <cmath>
#include <stdexcept>

#include "sgd/metrics.hpp"

namespace sgd {

TEST_CASE("test_metrics: means by num_samples, last values, 1 sample where a batch does not say") {
  AverageMeterCollection meters;
  meters.update({{"score", 0.0}, {"only_sometimes", 4.0}}, 3);
  meters.update({{"score", 8.0}});
  CHECK(
      meters.summary().dump() ==
      R"({"batch_count":2,"num_samples":4,"score":2.0,"last_score":8.0,"only_sometimes":4.0,"last_only_sometimes":4.0})");
}

TEST_CASE("test_metrics_nan: NaN in one batch makes the mean NaN, and the last value stays") {
  AverageMeterCollection meters;
  meters.update({{"score", std::nan("")}}, 2);
  meters.update({{"score", 8.0}}, 2);
  CHECK(meters.summary().dump() == R"({"batch_count":2,"num_samples":4,"score":null,"last_score":8.0})");
}

TEST_CASE("average meters: states go on, are merged, and what is none changes nothing") {
  AverageMeterCollection first, second;
  first.update({{"loss", 1.0}}, 1);
  second.update({{"loss", 3.0}}, 3);
  AverageMeterCollection loaded;
  loaded.load(nlohmann::json::parse(first.state().dump()));
  CHECK(loaded.summary() == first.summary());
  loaded.merge(second.state());
  CHECK(loaded.summary().at("loss") == 2.5);
  CHECK(loaded.summary().at("num_samples") == 4);
  CHECK_THROWS_AS(loaded.load({{"metrics", 3}}), std::invalid_argument);
  CHECK_THROWS_AS(loaded.merge(nullptr), std::invalid_argument);
  CHECK_THROWS_AS(loaded.update({}, -1), std::invalid_argument);
  CHECK(loaded.summary().at("loss") == 2.5);
  loaded.clear();
  CHECK(loaded.summary().at("batch_count") == 0);
}

}  // namespace sgd
