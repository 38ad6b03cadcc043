// Built-in models of worker/builtin: shapes, sizes, dropout, ties, and what they refuse. Their arithmetic is compared
// with PyTorch's in model_parity_test.cpp.
#include <catch2/catch.hpp>

#include <set>

#include "common/job/model_size.hpp"
#include "sgd/training_operator.hpp"
#include "worker/torch/device.hpp"
#include "worker/torch/errors.hpp"
#include "worker/torch/flat_parameters.hpp"
#include "worker/torch/models.hpp"

namespace sgd::worker {
namespace {

using Json = nlohmann::json;
using Sizes = std::vector<std::int64_t>;

Json text_model(const Json& more = Json::object()) {
  Json settings{{"type", "transformer"}, {"task", "language_model"},
                {"vocabulary", 11},      {"embedding", 8},
                {"layers", 2},           {"heads", 2},
                {"feedforward", 12},     {"dropout", 0},
                {"tied", false},         {"pooling", "mean"}};
  settings.update(more);
  return settings;
}

Sizes output_sizes(const Json& settings, const Sizes& sample, const at::Tensor& features) {
  return make_model(settings, {sample, 0})->forward(features).sizes().vec();
}

double parameters_of(torch::nn::Module& model) {
  std::set<at::TensorImpl*> seen;
  double count = 0;
  for (const at::Tensor& parameter : model.parameters())
    if (seen.insert(parameter.unsafeGetTensorImpl()).second) count += static_cast<double>(parameter.numel());
  return count;
}

}  // namespace

TEST_CASE("builtin models: outputs are classes of samples, pixels or tokens") {
  const at::Tensor images = at::zeros({2, 3, 18, 21});
  const Sizes image{3, 18, 21};
  CHECK(output_sizes({{"type", "lenet"}, {"outputs", 7}}, image, images) == Sizes{2, 7});
  CHECK(output_sizes({{"type", "resnet18"}, {"stem", "cifar"}, {"width", 2}, {"outputs", 7}}, image, images) ==
        Sizes{2, 7});
  CHECK(output_sizes({{"type", "resnet50"}, {"stem", "imagenet"}, {"width", 2}, {"outputs", 7}}, image, images) ==
        Sizes{2, 7});
  CHECK(output_sizes({{"type", "fcn"}, {"channels", {2, 3, 5}}, {"outputs", 7}}, image, images) == Sizes{2, 7, 18, 21});
  const at::Tensor tokens = at::zeros({2, 5}, at::kLong);
  CHECK(output_sizes(text_model(), {5}, tokens) == Sizes{2, 11, 5});
  CHECK(output_sizes(text_model({{"task", "classification"}, {"outputs", 3}}), {5}, tokens) == Sizes{2, 3});
}

TEST_CASE("builtin models: images with their channels last give the same but for roundings") {
  job::JobSpec job;
  job.training.emplace().channels_last = true;
  const Device device = Device::of(job, 0);
  CHECK_THROWS_AS(device.moved({at::zeros({2, 5}), {}}), ConfigurationError);
  at::manual_seed(3);
  const at::Tensor images = at::randn({4, 3, 32, 32});
  const at::Tensor arranged = device.moved({images, {}}).features;
  CHECK(arranged.is_contiguous(at::MemoryFormat::ChannelsLast));
  CHECK(at::equal(arranged, images));
  for (const char* type : {"cnn", "lenet", "resnet18"}) {
    INFO(type);
    const auto model = make_model({{"type", type}, {"outputs", 7}, {"stem", "cifar"}, {"width", 8}}, {{3, 32, 32}, 0});
    std::vector<at::Tensor> outputs, gradients;
    for (const at::Tensor& features : {images, arranged}) {
      model->zero_grad();
      outputs.push_back(model->forward(features));
      outputs.back().square().mean().backward();
      gradients.push_back(model->parameters().front().grad().clone());
    }
    for (const auto& both : {outputs, gradients})
      CHECK((both[0] - both[1]).norm().item<float>() < 1e-2 * both[0].norm().item<float>());
  }
}

TEST_CASE("builtin models: their parameters are as many as the launcher counts") {
  const auto check = [](const Json& settings, const Sizes& sample) {
    INFO(settings.dump());
    CHECK(parameters_of(*make_model(settings, {sample, 0})) == job::parameter_count(settings, sample));
  };
  for (const char* type : {"resnet18", "resnet34", "resnet50"})
    for (const char* stem : {"cifar", "imagenet"})
      for (const std::int64_t width : {1, 3})
        check({{"type", type}, {"stem", stem}, {"width", width}, {"outputs", 6}}, {3, 32, 32});
  check({{"type", "lenet"}, {"channels", {5, 7}}, {"hidden", {9}}, {"outputs", 6}}, {1, 28, 17});
  check({{"type", "lenet"}, {"channels", {5, 7}}, {"hidden", Json::array()}, {"outputs", 6}}, {3, 16, 16});
  check({{"type", "fcn"}, {"channels", {2, 3, 5}}, {"outputs", 6}}, {3, 9, 9});
  check({{"type", "fcn"}, {"channels", {2}}, {"outputs", 6}}, {3, 9, 9});
  check(text_model(), {5});
  check(text_model({{"tied", true}}), {5});
  check(text_model({{"task", "classification"}, {"outputs", 3}}), {5});
}

TEST_CASE("builtin models: a tied embedding is one parameter under two names") {
  const auto model = make_model(text_model({{"tied", true}}), {{5}, 0});
  const FlatParameters flat(trainable_parameters({{"", model}}));
  int shared = 0;
  for (const ParameterPlace& place : flat.places()) {
    if (place.also.empty()) continue;
    ++shared;
    CHECK(place.name == "embedding.weight");
    CHECK(place.also == std::vector<std::string>{"head.weight"});
  }
  CHECK(shared == 1);
}

TEST_CASE("builtin models: a language model sees no token behind a place") {
  at::manual_seed(1);
  const auto model = make_model(text_model(), {{6}, 0});
  const at::Tensor tokens = at::tensor({1, 2, 3, 4, 5, 6}, at::kLong).view({1, 6});
  at::Tensor other = tokens.clone();
  other[0][4] = 9;
  const at::Tensor before = model->forward(tokens), after = model->forward(other);
  CHECK(at::equal(before.slice(2, 0, 4), after.slice(2, 0, 4)));
  CHECK_FALSE(at::equal(before.slice(2, 4, 5), after.slice(2, 4, 5)));
  const auto classifier =
      make_model(text_model({{"task", "classification"}, {"outputs", 3}, {"pooling", "first"}}), {{6}, 0});
  CHECK_FALSE(at::equal(classifier->forward(tokens), classifier->forward(other)));
}

TEST_CASE("builtin models: dropout is for training") {
  const Json with_dropout[] = {
      {{"type", "lenet"}, {"dropout", 0.5}, {"outputs", 3}},
      {{"type", "fcn"}, {"dropout", 0.5}, {"channels", {8}}, {"outputs", 3}},
      text_model({{"dropout", 0.5}}),
  };
  for (const Json& settings : with_dropout) {
    INFO(settings.dump());
    const bool is_text = settings.at("type") == "transformer";
    const auto model = make_model(settings, {is_text ? Sizes{5} : Sizes{1, 20, 20}, 0});
    const at::Tensor features = is_text ? at::zeros({2, 5}, at::kLong) : at::rand({2, 1, 20, 20});
    model->train();
    CHECK_FALSE(at::equal(model->forward(features), model->forward(features)));
    model->eval();
    CHECK(at::equal(model->forward(features), model->forward(features)));
  }
}

TEST_CASE("builtin models: tokens may come as floats, and nothing else may") {
  const auto model = make_model(text_model({{"task", "classification"}, {"outputs", 3}}), {{3}, 0});
  const at::Tensor tokens = at::tensor({1, 10, 0}, at::kLong).view({1, 3});
  CHECK(at::equal(model->forward(tokens), model->forward(tokens.to(at::kFloat))));
  for (const float wrong : {0.5f, -1.0f, 11.0f})
    CHECK_THROWS_WITH(model->forward(at::full({1, 3}, wrong)),
                      "a sample has numbers that are no tokens: whole numbers from 0 to 10");
  CHECK_THROWS_WITH(model->forward(at::zeros({1, 4}, at::kLong)), "the transformer takes rows of at most 3 tokens");
}

TEST_CASE("builtin models: what does not fit is a configuration error") {
  CHECK_THROWS_AS(make_model({{"type", "lenet"}}, {{1, 28, 15}, 10}), ConfigurationError);
  CHECK_THROWS_WITH(make_model({{"type", "resnet18"}}, {{784}, 10}), Catch::Contains("\"resnet18\" needs images"));
  CHECK_THROWS_AS(make_model({{"type", "fcn"}}, {{784}, 10}), ConfigurationError);
  CHECK_THROWS_AS(make_model(text_model({{"heads", 3}}), {{5}, 0}), ConfigurationError);
  CHECK_THROWS_AS(make_model(text_model(), {{1, 28, 28}, 10}), ConfigurationError);
}

}  // namespace sgd::worker
