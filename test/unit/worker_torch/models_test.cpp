// The built-in models against the same networks written with LibTorch's own operators.
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include <torch/csrc/autograd/generated/Functions.h>
#include <catch2/catch.hpp>

#include "worker/torch/linear_function.hpp"
#include "worker/torch/models.hpp"
#include "worker/torch/relu_max_pool.hpp"

namespace sgd::worker {
namespace {

/// |a - b| relative to the largest value of b.
double difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).abs().max() / b.abs().max().clamp_min(1e-12)).item<double>();
}

at::Tensor reference_cnn(Model& model, const at::Tensor& images) {
  const auto parameters = model.named_parameters();
  at::Tensor values = at::relu(at::conv2d(images, parameters["conv1.weight"], parameters["conv1.bias"]));
  values = at::relu(at::conv2d(values, parameters["conv2.weight"], parameters["conv2.bias"]));
  values = at::max_pool2d(values, 2).flatten(1);
  values = at::relu(at::linear(values, parameters["fc1.weight"], parameters["fc1.bias"]));
  return at::linear(values, parameters["fc2.weight"], parameters["fc2.bias"]);
}

std::vector<at::Tensor> gradients_of(const at::Tensor& loss, const std::vector<at::Tensor>& inputs) {
  return torch::autograd::grad({loss}, inputs);
}

void check_against_reference(const SampleShape& sample, std::int64_t batch,
                             const std::vector<std::int64_t>& channels = {32, 64}) {
  at::manual_seed(3);
  const std::shared_ptr<Model> model = make_model({{"type", "cnn"}, {"channels", channels}}, sample);
  std::vector<std::int64_t> sizes = sample.features;
  sizes.insert(sizes.begin(), batch);
  const at::Tensor images = at::rand(sizes);
  const at::Tensor labels = at::randint(sample.outputs, {batch}, at::kLong);
  const at::Tensor output = model->forward(images);
  const at::Tensor expected = reference_cnn(*model, images);
  CHECK(difference(output, expected) < 1e-5);
  const auto parameters = model->parameters();
  const auto ours = gradients_of(at::cross_entropy_loss(output, labels), parameters);
  const auto theirs = gradients_of(at::cross_entropy_loss(expected, labels), parameters);
  for (std::size_t i = 0; i < parameters.size(); ++i) CHECK(difference(ours[i], theirs[i]) < 1e-4);
  const c10::InferenceMode no_gradients;
  CHECK(at::equal(model->forward(images), output));
}

}  // namespace

TEST_CASE("the cnn equals the same network of LibTorch's operators") {
  check_against_reference({{1, 28, 28}, 10}, 64);
  check_against_reference({{1, 28, 28}, 10}, 1);
  check_against_reference({{1, 28, 28}, 10}, 3, {5, 12});
  check_against_reference({{3, 33, 31}, 7}, 5);  // An odd last row and column do not reach the pool.
}

TEST_CASE("a cnn of images that are too small is a configuration error") {
  CHECK_THROWS_AS(make_model({{"type", "cnn"}}, {{1, 5, 28}, 10}), ConfigurationError);
}

TEST_CASE("linear() and its gradients equal LibTorch's, below and above the size where oneDNN is used") {
  at::manual_seed(4);
  for (const std::int64_t width : {3, 512}) {
    for (const bool relu : {false, true}) {
      const at::Tensor x = at::randn({64, width}).requires_grad_();
      const at::Tensor weight = at::randn({width + 5, width}).requires_grad_();
      const at::Tensor bias = at::randn({width + 5}).requires_grad_();
      const at::Tensor ours = linear(x, weight, bias, relu);
      const at::Tensor plain = at::linear(x, weight, bias);
      const at::Tensor theirs = relu ? at::relu(plain) : plain;
      CHECK(difference(ours, theirs) < 1e-5);
      const at::Tensor direction = at::randn(ours.sizes());
      const auto a = gradients_of((ours * direction).sum(), {x, weight, bias});
      const auto b = gradients_of((theirs * direction).sum(), {x, weight, bias});
      for (std::size_t i = 0; i < a.size(); ++i) CHECK(difference(a[i], b[i]) < 1e-5);
    }
  }
}

TEST_CASE("linear() keeps NaN, so that a broken model is seen") {
  at::Tensor x = at::zeros({64, 512});
  x[0][0] = std::nan("");
  CHECK(linear(x, at::ones({128, 512}), at::zeros({128}), true).isnan().any().item<bool>());
}

TEST_CASE("pooling and its gradient are bit-equal to max_pool2d of relu") {
  at::manual_seed(5);
  for (const PoolShape shape : {PoolShape{24, 24, 64}, PoolShape{7, 5, 3}, PoolShape{2, 2, 1}}) {
    at::Tensor image = at::randn({1, shape.channels, shape.rows, shape.columns}).round();  // Whole numbers: many ties.
    image = image.contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
    std::vector<float> out(static_cast<std::size_t>(shape.pooled_count()));
    std::vector<float> scratch(out.size());
    std::vector<std::int32_t> origins(out.size());
    relu_max_pool(shape, image.data_ptr<float>(), out.data(), origins.data(), scratch.data());
    const at::Tensor expected = at::max_pool2d(at::relu(image), 2).flatten(1);
    CHECK(at::equal(at::from_blob(out.data(), expected.sizes()), expected));
    const at::Tensor direction = at::randn(expected.sizes());
    const at::Tensor gradient = gradients_of((expected * direction).sum(), {image})[0];
    at::Tensor ours = at::empty(image.sizes(), at::TensorOptions().memory_format(at::MemoryFormat::ChannelsLast));
    std::vector<float> sums(static_cast<std::size_t>(shape.channels));
    relu_max_pool_backward(shape, direction.contiguous().data_ptr<float>(), origins.data(), ours.data_ptr<float>(),
                           sums.data(), scratch.data());
    CHECK(at::equal(ours, gradient));
    CHECK(difference(at::from_blob(sums.data(), {shape.channels}), gradient.sum({0, 2, 3})) < 1e-5);
  }
}

TEST_CASE("an unknown name is a configuration error that lists the known ones") {
  CHECK_THROWS_WITH(make_model({{"type", "cnnn"}}, {{1, 28, 28}, 10}),
                    "unknown model \"cnnn\"; known: cnn, fcn, lenet, linear, mlp, resnet18, resnet34, "
                    "resnet50, torchscript, transformer");
  CHECK_THROWS_AS(make_loss("hinge"), ConfigurationError);
}

TEST_CASE("weights of a loss are where the outputs are") {
  const auto meta = at::TensorOptions().device(at::kMeta);
  const at::Tensor outputs = at::empty({4, 3}, meta).requires_grad_();
  for (const char* type : {"cross_entropy", "nll"}) {
    const Loss loss = make_loss({{"type", type}, {"weight", {1, 2, 3}}});
    const at::Tensor value = loss(outputs, at::empty({4}, meta.dtype(at::kLong)));
    auto* made_by = dynamic_cast<torch::autograd::generated::NllLossBackward0*>(value.grad_fn().get());
    REQUIRE(made_by != nullptr);
    CHECK(made_by->weight_.unpack().is_meta());
  }
  const Loss loss = make_loss({{"type", "bce_with_logits"}, {"pos_weight", {1, 2, 3}}});
  CHECK(loss(at::zeros({4, 3}), at::ones({4, 3})).item<float>() == Approx(2 * std::log(2)));
}

TEST_CASE("losses of numbers take outputs without the dimension of one number, and refuse other shapes") {
  at::manual_seed(6);
  const at::Tensor outputs = at::randn({5, 1});
  const at::Tensor targets = at::rand({5, 1});
  for (const char* type : {"mse", "l1", "smooth_l1", "huber", "bce_with_logits"}) {
    CAPTURE(type);
    nlohmann::json settings = {{"type", type}};
    if (std::string(type) == "bce_with_logits") settings["pos_weight"] = nlohmann::json::array({3});
    const Loss loss = make_loss(settings);
    const auto value_and_gradient = [&](at::Tensor output, const at::Tensor& target) {
      output = output.clone().requires_grad_();
      const at::Tensor value = loss(output, target);
      return std::pair(value.data(), gradients_of(value, {output})[0].reshape({5, 1}));
    };
    const auto whole = value_and_gradient(outputs, targets);
    for (const auto& [output, target] :
         {std::pair(outputs.squeeze(-1), targets), std::pair(outputs, targets.squeeze(-1))}) {
      const auto squeezed = value_and_gradient(output, target);
      CHECK(at::equal(squeezed.first, whole.first));
      CHECK(at::equal(squeezed.second, whole.second));
    }
    const std::string words = std::string(type) +
                              ": outputs of shape [5, 1] and targets of shape [5, 2] do not fit: as many numbers of as "
                              "many samples are expected";
    CHECK_THROWS_WITH(loss(outputs, at::zeros({5, 2})), words);
    CHECK_THROWS_AS(loss(outputs, at::zeros({1, 5})), std::invalid_argument);
    CHECK_THROWS_AS(loss(outputs.sum(), targets), std::invalid_argument);
  }
  const Loss loss = make_loss({{"type", "bce_with_logits"}, {"pos_weight", {1, 2, 3}}});
  CHECK_THROWS_WITH(loss(at::zeros({3}), at::ones({3, 1})), Catch::Contains("\"pos_weight\" has 3 numbers"));
  CHECK_THROWS_WITH(loss(at::zeros({4, 1}), at::ones({4, 1})), Catch::Contains("a sample has 1 output: "));
}

TEST_CASE("a model whose inputs do not fit the data is a configuration error with both numbers") {
  CHECK_THROWS_WITH(make_model({{"type", "mlp"}, {"inputs", 784}}, {{1}, 1}),
                    "model \"mlp\" takes 784 inputs, but a sample of the data set has 1");
}

TEST_CASE("init zeros sets every parameter to 0") {
  const auto model = make_model({{"type", "linear"}, {"init", "zeros"}}, {{1}, 1});
  for (const at::Tensor& parameter : model->parameters()) CHECK(parameter.eq(0).all().item<bool>());
}

}  // namespace sgd::worker
