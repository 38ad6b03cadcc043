// Norms and limits of gradients, by hand.
#include <cmath>
#include <vector>

#include <catch2/catch.hpp>

#include "worker/core/gradient_clip.hpp"

namespace sgd::worker {

TEST_CASE("clip: the sum of squares counts every value once, whatever the length") {
  for (const std::size_t count : {0, 1, 15, 16, 17, 100, 4099}) {
    std::vector<float> values(count);
    double expected = 0;
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = static_cast<float>(i % 7) - 3;
      expected += static_cast<double>(values[i]) * values[i];
    }
    CHECK(sum_of_squares(values) == expected);
  }
}

TEST_CASE("clip: a norm within the limit changes nothing, a larger one is brought down to it") {
  CHECK(clip_factor(0, 1) == 1);
  CHECK(clip_factor(0.5, 1) == 1);
  CHECK(clip_factor(4, 1) == Approx(0.25).epsilon(1e-6));
}

TEST_CASE("clip: values are scaled, then cut off") {
  std::vector<float> values = {-4, -1, 0, 1, 8, NAN};
  scale_and_clamp(values, 0.5f, 1.5f);
  CHECK(values[0] == -1.5f);
  CHECK(values[1] == -0.5f);
  CHECK(values[2] == 0);
  CHECK(values[3] == 0.5f);
  CHECK(values[4] == 1.5f);
  CHECK(std::isnan(values[5]));
}

}  // namespace sgd::worker
