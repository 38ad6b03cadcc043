#include <catch2/catch.hpp>

#include "worker/core/loss_scale.hpp"

namespace sgd::worker {

TEST_CASE("the scale of losses halves after infinite gradients and doubles after 2000 steps without") {
  LossScale scale;
  const double first = scale.value();
  CHECK(scale.end_step(true) == 0.5);
  CHECK(scale.value() == first / 2);
  for (int i = 0; i < 1999; ++i) CHECK(scale.end_step(false) == 1);
  CHECK(scale.end_step(false) == 2);
  CHECK(scale.value() == first);
  for (int i = 0; i < 1500; ++i) (void)scale.end_step(false);
  (void)scale.end_step(true);  // Those before count no more.
  for (int i = 0; i < 1999; ++i) CHECK(scale.end_step(false) == 1);
  CHECK(scale.end_step(false) == 2);
}

TEST_CASE("the scale of losses falls to 1 and not below") {
  LossScale scale;
  for (int i = 0; i < 40; ++i) (void)scale.end_step(true);
  CHECK(scale.value() == 1);
  CHECK_FALSE(scale.can_fall());
}

TEST_CASE("the scale of losses goes on from a checkpoint, and damage is told") {
  LossScale scale;
  (void)scale.end_step(true);
  for (int i = 0; i < 7; ++i) (void)scale.end_step(false);
  LossScale other;
  REQUIRE(other.load(scale.state()));
  CHECK(other.state() == scale.state());
  REQUIRE(other.load(nullptr));
  CHECK(other.state() == LossScale().state());
  for (const char* wrong : {R"({"value": 3, "since_change": 0})", R"({"value": 0.5, "since_change": 0})",
                            R"({"value": 2})", R"({"value": 1e300, "since_change": 0})"})
    CHECK_FALSE(other.load(nlohmann::json::parse(wrong)));
}

}  // namespace sgd::worker
