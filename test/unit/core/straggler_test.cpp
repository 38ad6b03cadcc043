#include <catch2/catch.hpp>

#include "launcher/core/straggler.hpp"

using sgd::core::find_straggler;

namespace {

nlohmann::json metrics(double own_ms, int batches = 100) {
  return {{"batch_count", batches}, {"step_ms", {{"median", 9.0}, {"p95", 9.5}, {"own", own_ms}}}};
}

}  // namespace

TEST_CASE("straggler: the slowest rank is compared with the median of the others") {
  const auto found = find_straggler({metrics(2.0), metrics(2.2), metrics(3.4), metrics(2.1)});
  REQUIRE(found.has_value());
  CHECK(found->rank == 2);
  CHECK(found->own_ms == 3.4);
  CHECK(found->others_ms == 2.1);
  CHECK_FALSE(find_straggler({metrics(2.0), metrics(2.2), metrics(3.0), metrics(2.1)}).has_value());
  CHECK(find_straggler({metrics(2.0), metrics(1.0)})->rank == 0);
}

TEST_CASE("straggler: nobody is judged alone, by a few batches, or without figures") {
  CHECK_FALSE(find_straggler({metrics(5.0)}).has_value());
  CHECK_FALSE(find_straggler({metrics(1.0, 19), metrics(5.0, 19)}).has_value());
  CHECK_FALSE(find_straggler({metrics(1.0), {{"train_loss", 0.5}}}).has_value());
  CHECK_FALSE(find_straggler({metrics(1.0), {{"batch_count", 100}, {"step_ms", {{"own", nullptr}}}}}).has_value());
}
