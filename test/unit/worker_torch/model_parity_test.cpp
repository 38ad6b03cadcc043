// Built-in models and losses against what PyTorch did with the same settings, weights and data. The numbers come from
// data/make_model_reference.py, which says how weights and data are made on both sides.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "test/unit/worker_torch/parity_data.hpp"
#include "worker/builtin/losses.hpp"
#include "worker/builtin/models.hpp"
#include "worker/torch/models.hpp"

namespace sgd::worker {
namespace {

using testing::chance;
using testing::classes_at;
using testing::fill_by_names;
using testing::numbers_at;
using testing::tensors_of;

using Json = nlohmann::json;

constexpr double kRate = 0.01;
constexpr double kMomentum = 0.9;
constexpr std::int64_t kImagesPlace = 1000;
constexpr std::int64_t kTargetsPlace = 2000;
constexpr std::int64_t kProductPlace = 7777;

Json model_reference() {
  std::ifstream file(SGD_SOURCE_DIR "/test/unit/worker_torch/data/model_reference.json");
  return Json::parse(file);
}

/// How far `tensor` is from the four numbers that are kept of PyTorch's, as a share of its largest.
double distance(const at::Tensor& tensor, const Json& kept) {
  const at::Tensor flat = tensor.data().to(at::kDouble).reshape(-1);
  const auto count = flat.numel();
  const double seen = flat.dot(chance(kProductPlace, count)).item<double>() / std::sqrt(static_cast<double>(count));
  const double ours[] = {flat[0].item<double>(), flat[count / 2].item<double>(), flat[-1].item<double>(), seen};
  double worst = 0;
  for (std::size_t i = 0; i < 4; ++i) worst = std::max(worst, std::abs(ours[i] - kept.at(i).get<double>()));
  return worst / std::max(flat.abs().max().item<double>(), 1e-3);
}

std::shared_ptr<Model> made_model(const Json& one) {
  return make_model(one.at("model"), {one.at("shape").get<std::vector<std::int64_t>>(), 1});
}

/// Each once: PyTorch's C++ lists a tied one by each of its names, and Python's by one.
std::vector<at::Tensor> trained_tensors(const torch::nn::Module& model) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& parameter : model.parameters()) {
    const auto is_it = [&parameter](const at::Tensor& other) { return other.is_same(parameter); };
    if (std::none_of(all.begin(), all.end(), is_it)) all.push_back(parameter);
  }
  return all;
}

/// The largest distance of all tensors after the case's steps, and of the losses on the way.
double trained_distance(const Json& one, at::ScalarType type) {
  const std::shared_ptr<Model> model = made_model(one);
  model->to(type);
  fill_by_names(*model);
  torch::optim::SGD optimizer(trained_tensors(*model), torch::optim::SGDOptions(kRate).momentum(kMomentum));
  auto shape = one.at("shape").get<std::vector<std::int64_t>>();
  shape.insert(shape.begin(), one.at("batch").get<std::int64_t>());
  const bool takes_tokens = one.at("model").at("type") == "transformer";
  const Loss loss_of = make_loss("cross_entropy");
  const auto steps = one.at("steps").get<std::int64_t>();
  double worst = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    const at::Tensor features = takes_tokens ? classes_at(kImagesPlace + step, shape, one.at("model").at("vocabulary"))
                                             : numbers_at(kImagesPlace + step, shape).to(type);
    const at::Tensor output = model->forward(features);
    std::vector<std::int64_t> places = output.sizes().vec();
    places.erase(places.begin() + 1);
    const at::Tensor loss = loss_of(output, classes_at(kTargetsPlace + step, places, output.size(1)));
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    if (step == 0) {
      CHECK(output.sizes().vec() == one.at("output").at(0).get<std::vector<std::int64_t>>());
      worst = std::max(worst, distance(output, one.at("output").at(1)));
    }
    worst = std::max(worst, std::abs(loss.item<double>() - one.at("losses").at(step).get<double>()));
  }
  const auto tensors = tensors_of(*model);
  CHECK(tensors.size() == one.at("tensors").size());
  for (const auto& [name, kept] : one.at("tensors").items()) {
    INFO(name);
    REQUIRE(tensors.contains(name));
    worst = std::max(worst, distance(tensors.at(name), kept));
  }
  return worst;
}

/// In float the order of a sum counts. It stays below 1e-6 without batch normalization; with it small variances of
/// small batches magnify it, from layer to layer and step to step.
double float_tolerance(const Json& one) {
  const std::string type = one.at("model").at("type");
  if (type.starts_with("resnet")) return 1e-2;
  return type == "fcn" ? 1e-4 : 1e-5;
}

}  // namespace

TEST_CASE("torch parity: models, their parameters and buffers after up to 50 steps, to 1e-9 in double") {
  const Json reference = model_reference();
  REQUIRE(reference["models"].size() == 11);
  for (const Json& one : reference["models"]) {
    INFO(one["model"].dump());
    CHECK(trained_distance(one, at::kDouble) <= 1e-9);
  }
}

TEST_CASE("torch parity: models in float") {
  for (const Json& one : model_reference()["models"]) {
    INFO(one["model"].dump());
    CHECK(trained_distance(one, at::kFloat) <= float_tolerance(one));
  }
}

TEST_CASE("torch parity: a seed draws the weights that PyTorch and torchvision draw, with any init") {
  const Json reference = model_reference();
  REQUIRE(reference["starts"].size() == 9);
  for (const Json& one : reference["starts"]) {
    INFO(one["model"].dump());
    at::manual_seed(5);
    const auto tensors = tensors_of(*made_model(one));
    CHECK(tensors.size() == one.at("tensors").size());
    for (const auto& [name, kept] : one.at("tensors").items()) {
      INFO(name);
      REQUIRE(tensors.contains(name));
      CHECK(distance(tensors.at(name), kept) <= 1e-6);
    }
  }
}

TEST_CASE("torch parity: losses with their options in 50 steps, to 1e-12 in double and 1e-6 in float") {
  const Json reference = model_reference();
  REQUIRE(reference["losses"].size() == 15);
  for (const Json& one : reference["losses"]) {
    const std::string type = one.at("loss").at("type");
    const auto shape = one.at("shape").get<std::vector<std::int64_t>>();
    const Loss plain = make_loss(one.at("loss"));
    // Half of the steps with classes last in memory, as a language model has them.
    const bool is_map = shape.size() == 4;
    int step = 0;
    const Loss loss_of = [&](const at::Tensor& output, const at::Tensor& target) {
      return ++step % 2 == 0 && is_map ? plain(output.movedim(1, -1).contiguous().movedim(-1, 1), target)
                                       : plain(output, target);
    };
    for (const at::ScalarType number : {at::kDouble, at::kFloat}) {
      INFO(one["loss"].dump() << " " << c10::toString(number));
      const double tolerance = number == at::kDouble ? 1e-12 : 5e-6;
      at::Tensor output = numbers_at(kImagesPlace, shape).to(number).requires_grad_();
      std::vector<std::int64_t> places = shape;
      places.erase(places.begin() + 1);
      at::Tensor target = numbers_at(kTargetsPlace, shape).to(number);
      if (type == "bce_with_logits") target = (target + 1) / 2;
      if (type == "cross_entropy" || type == "nll") target = classes_at(kTargetsPlace, places, shape[1]);
      double worst = 0;
      for (const Json& value : one.at("values")) {
        const at::Tensor loss = loss_of(output, target);
        worst = std::max(worst, std::abs(loss.item<double>() - value.get<double>()));
        const at::Tensor gradient = torch::autograd::grad({loss}, {output})[0];
        output = (output.data() - 0.5 * gradient).requires_grad_();
      }
      const auto wanted = one.at("output").get<std::vector<double>>();
      const at::Tensor theirs = torch::tensor(wanted, at::kDouble);
      worst = std::max(worst, (output.data().reshape(-1).to(at::kDouble) - theirs).abs().max().item<double>());
      CHECK(worst <= tolerance);
    }
  }
}

}  // namespace sgd::worker
