// What the default validate_batch() calls accuracy: a share of samples, pixels or tokens.
#include <catch2/catch.hpp>

#include <torch/torch.h>

#include "worker/torch/accuracy.hpp"

namespace sgd::worker {

TEST_CASE("accuracy: of samples, and of each element where there are more dimensions") {
  const at::Tensor flat = at::eye(4).slice(1, 0, 3);  // The last row has no largest: the first counts.
  CHECK(accuracy_of(flat, at::tensor({0, 1, 0, 1}, at::kLong)) == 0.5);
  // Two samples, two classes, three places: class 1 wins everywhere but at the first place of the first sample.
  at::Tensor places = at::zeros({2, 2, 3});
  places.select(1, 1).fill_(1);
  places[0][0][0] = 2;
  CHECK(accuracy_of(places, at::tensor({0, 1, 1, 1, 1, 0}, at::kLong).view({2, 3})) == 5.0 / 6);
  CHECK(accuracy_of(places.unsqueeze(3), at::ones({2, 3, 1}, at::kLong)) == 5.0 / 6);
}

TEST_CASE("accuracy: leaves out what the loss leaves out") {
  const at::Tensor output = at::eye(4);
  const at::Tensor target = at::tensor({0, 1, 0, 0}, at::kLong);
  CHECK(accuracy_of(output, target) == 0.5);
  CHECK(accuracy_of(output, target, 0) == 1);
  CHECK(accuracy_of(output, target, 1) == 1.0 / 3);
  CHECK(accuracy_of(output, at::tensor({0, 1, -100, 0}, at::kLong), 1) == 0.5);
  CHECK(accuracy_of(output, at::zeros({4}, at::kLong), 0) == 0);
  const nlohmann::json loss = {{"type", "cross_entropy"}, {"ignore_index", 3}};
  CHECK(ignored_class(loss) == 3);
  CHECK(ignored_class({{"type", "cross_entropy"}}) < 0);
  CHECK(ignored_class("cross_entropy") < 0);
  CHECK(ignored_class({{"type", "own"}, {"ignore_index", {1, 2}}}) < 0);
}

TEST_CASE("accuracy: is 0 where nothing are classes") {
  CHECK(accuracy_of(at::zeros({4, 1}), at::zeros({4}, at::kLong)) == 0);
  CHECK(accuracy_of(at::zeros({4, 2}), at::zeros({4, 2})) == 0);
  CHECK(accuracy_of(at::zeros({4, 2, 3}), at::zeros({4}, at::kLong)) == 0);
}

}  // namespace sgd::worker
