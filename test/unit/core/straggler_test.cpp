#include <catch2/catch.hpp>

#include "launcher/core/straggler.hpp"

using sgd::core::find_straggler;

namespace {

nlohmann::json metrics(double own_ms, int batches = 100, double step_ms = 90) {
  return {{"batch_count", batches}, {"step_ms", {{"median", step_ms}, {"p95", step_ms}, {"own", own_ms}}}};
}

}  // namespace

TEST_CASE("straggler: the slowest rank is compared with the median of the others") {
  const auto found = find_straggler({metrics(20), metrics(22), metrics(34), metrics(21)});
  REQUIRE(found.has_value());
  CHECK(found->rank == 2);
  CHECK(found->own_ms == 34);
  CHECK(found->others_ms == 21);
  CHECK_FALSE(find_straggler({metrics(20), metrics(22), metrics(30), metrics(21)}).has_value());
  CHECK(find_straggler({metrics(20), metrics(10)})->rank == 0);
}

TEST_CASE("straggler: what costs next to nothing is not told") {
  CHECK_FALSE(find_straggler({metrics(0.09), metrics(0.02)}).has_value());
  CHECK_FALSE(find_straggler({metrics(7.9), metrics(3)}).has_value());
  CHECK(find_straggler({metrics(8), metrics(3)}).has_value());
  CHECK_FALSE(find_straggler({metrics(20, 100, 300), metrics(10, 100, 300)}).has_value());
  CHECK(find_straggler({metrics(20, 100, 200), metrics(10, 100, 200)}).has_value());
}

TEST_CASE("straggler: nobody is judged alone, by a few batches, or without figures") {
  CHECK_FALSE(find_straggler({metrics(5.0)}).has_value());
  CHECK_FALSE(find_straggler({metrics(1.0, 19), metrics(5.0, 19)}).has_value());
  CHECK_FALSE(find_straggler({metrics(1.0), {{"train_loss", 0.5}}}).has_value());
  CHECK_FALSE(find_straggler({metrics(1.0), {{"batch_count", 100}, {"step_ms", {{"own", nullptr}}}}}).has_value());
}
