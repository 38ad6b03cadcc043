// Flat buffers and what user code may do to gradients.
#include <catch2/catch.hpp>

#include "worker/torch/flat_parameters.hpp"
#include "worker/torch/gradient_place.hpp"
#include "worker/torch/linear_function.hpp"
#include "worker/torch/models.hpp"

namespace sgd::worker {
namespace {

struct Fixture {
  Fixture()
      : model(make_model({{"type", "mlp"}, {"hidden", {7}}}, {{5}, 3})), flat(trainable_parameters({{"", model}})) {
    buffer = AlignedFloats(flat.size());
    flat.attach_gradients(buffer.span());
  }
  std::vector<bool> collect() { return flat.collect_gradients(flat.all()); }
  at::Tensor parameter(const char* name) { return model->named_parameters()[name]; }
  std::shared_ptr<Model> model;
  FlatParameters flat;
  AlignedFloats buffer;
};

}  // namespace

TEST_CASE("parameters become views of one aligned buffer and keep their values") {
  at::manual_seed(1);
  const auto model = make_model({{"type", "mlp"}, {"hidden", {7}}}, {{5}, 3});
  std::vector<at::Tensor> before;
  for (const at::Tensor& parameter : model->parameters()) before.push_back(parameter.clone());
  FlatParameters flat(trainable_parameters({{"", model}}));
  const auto after = model->parameters();
  REQUIRE(flat.places().size() == 4);
  for (std::size_t i = 0; i < after.size(); ++i) {
    CHECK(at::equal(before[i], after[i]));
    CHECK(after[i].data_ptr<float>() == flat.values().data() + flat.places()[i].offset);
    CHECK(reinterpret_cast<std::uintptr_t>(after[i].data_ptr()) % 64 == 0);
  }
  CHECK(flat.places()[0].name == "fc1.weight");
  const at::NoGradGuard no_gradients;
  const std::uint64_t hash = FlatParameters::hash(flat.values());
  model->named_parameters()["fc2.bias"][2] += 1e-6;
  CHECK(FlatParameters::hash(flat.values()) != hash);
}

TEST_CASE("a parameter without elements has a place like any other") {
  std::vector<TrainedParameter> parameters;
  for (const auto& [name, shape] :
       {std::pair("first", std::vector<std::int64_t>{0, 3}), {"weight", {2}}, {"last", {0}}})
    parameters.push_back({name, at::ones(shape).requires_grad_()});
  const at::Tensor first = parameters[0].tensor;
  const at::Tensor weight = parameters[1].tensor;
  FlatParameters flat(parameters);
  AlignedFloats buffer(flat.size());
  flat.attach_gradients(buffer.span());
  CHECK(flat.places()[0].count == 0);
  CHECK(flat.size() == 16);
  (weight.sum() + first.sum()).backward();
  CHECK(flat.collect_gradients(flat.all()) == std::vector<bool>{true, true, false});
  CHECK(at::equal(weight.grad(), at::ones({2})));
  CHECK(first.grad().sizes() == at::IntArrayRef{0, 3});
  flat.drop_gradients(flat.all());
  CHECK_FALSE(flat.has_gradients(flat.all()));
}

TEST_CASE("backward writes into the flat gradients") {
  Fixture fixture;
  fixture.model->forward(at::ones({2, 5})).sum().backward();
  (void)fixture.collect();
  const at::Tensor bias = fixture.parameter("fc2.bias").grad();
  CHECK(bias.data_ptr<float>() == fixture.buffer.data() + fixture.flat.places()[3].offset);
  CHECK(at::equal(bias, at::full({3}, 2.0f)));
}

TEST_CASE("a replaced gradient is copied in and re-attached, a dropped one counts as zero") {
  Fixture fixture;
  fixture.buffer.data()[fixture.flat.places()[2].offset] = 9;
  at::Tensor first = fixture.parameter("fc1.bias");
  first.mutable_grad() = at::arange(7, at::kFloat);
  at::Tensor second = fixture.parameter("fc2.weight");
  second.mutable_grad() = at::Tensor();
  (void)fixture.collect();
  CHECK(fixture.buffer.data()[fixture.flat.places()[1].offset + 6] == 6);
  CHECK(first.grad().data_ptr<float>() == fixture.buffer.data() + fixture.flat.places()[1].offset);
  CHECK(fixture.buffer.data()[fixture.flat.places()[2].offset] == 0);
  CHECK(second.grad().defined());
}

TEST_CASE("gradients add up over backward passes until they are dropped") {
  Fixture fixture;
  for (const float samples : {2.0f, 5.0f}) {
    for (const float passes : {1.0f, 2.0f, 3.0f}) {
      const FlatParameters::Backward claims(fixture.flat);
      fixture.model->forward(at::ones({static_cast<std::int64_t>(samples), 5})).sum().backward();
      CHECK(at::equal(fixture.parameter("fc2.bias").grad(), at::full({3}, samples * passes)));
      CHECK(fixture.parameter("fc2.bias").grad().data_ptr<float>() ==
            fixture.buffer.data() + fixture.flat.places()[3].offset);
    }
    CHECK(fixture.collect() == std::vector<bool>(4, true));
    fixture.flat.drop_gradients(fixture.flat.all());
    CHECK_FALSE(fixture.flat.has_gradients(fixture.flat.all()));
  }
}

TEST_CASE("what user code writes into gradients between a backward pass and the update is seen") {
  Fixture fixture;
  const at::Tensor input = at::ones({2, 5});
  const auto backward = [&] { fixture.model->forward(input).sum().backward(); };
  const auto is_seen = [&] {
    (void)fixture.collect();
    const bool seen = fixture.flat.take_rewritten();
    CHECK_FALSE(fixture.flat.take_rewritten());
    fixture.flat.drop_gradients(fixture.flat.all());
    return seen;
  };
  backward();
  CHECK_FALSE(is_seen());
  backward();
  backward();  // Adds up.
  (void)fixture.collect();
  CHECK_FALSE(is_seen());                                   // Collected twice.
  fixture.parameter("fc2.bias").square().sum().backward();  // The others have none.
  CHECK_FALSE(is_seen());
  backward();
  fixture.flat.scale_gradients(fixture.flat.all(), 0.5);
  CHECK_FALSE(is_seen());
  fixture.parameter("fc1.bias").mutable_grad() = at::ones({7});
  CHECK_FALSE(is_seen());
  backward();
  (void)torch::nn::utils::clip_grad_norm_(fixture.model->parameters(), 1e6);
  CHECK_FALSE(is_seen());  // Within the limit: nothing is changed.
  backward();
  (void)torch::nn::utils::clip_grad_norm_(fixture.model->parameters(), 1e-3);
  CHECK(is_seen());
  backward();
  fixture.parameter("fc2.bias").mutable_grad().mul_(0.5);
  CHECK(is_seen());
  backward();
  CHECK_FALSE(is_seen());
}

TEST_CASE("a range of parameters is collected and dropped for itself") {
  Fixture fixture;
  const ParameterRange last = fixture.flat.range(2, 2);
  CHECK(last.floats.offset == fixture.flat.places()[2].offset);
  CHECK(last.floats.offset + last.floats.count == fixture.flat.size());
  fixture.model->forward(at::ones({2, 5})).sum().backward();
  fixture.flat.drop_gradients(last);
  CHECK_FALSE(fixture.flat.has_gradients(last));
  CHECK(fixture.flat.has_gradients(fixture.flat.range(0, 2)));
  CHECK(fixture.flat.collect_gradients(last) == std::vector<bool>{false, false});
  CHECK(fixture.parameter("fc2.bias").grad().defined());  // Zeros, at its place.
}

TEST_CASE("a place is given once a backward pass, to its own parameter, while it holds no gradient") {
  Fixture fixture;
  const at::Tensor weight = fixture.parameter("fc1.weight");
  CHECK_FALSE(claim_gradient_place(weight).defined());
  {
    const FlatParameters::Backward claims(fixture.flat);
    const at::Tensor place = claim_gradient_place(weight);
    CHECK(place.data_ptr<float>() == fixture.buffer.data() + fixture.flat.places()[0].offset);
    CHECK_FALSE(claim_gradient_place(weight).defined());
    CHECK_FALSE(claim_gradient_place(at::ones({7, 5})).defined());
    CHECK(claim_gradient_place(fixture.parameter("fc2.weight")).defined());
  }
  {
    const FlatParameters::Backward claims(fixture.flat);
    CHECK(claim_gradient_place(weight).defined());
  }
  CHECK_FALSE(claim_gradient_place(fixture.parameter("fc2.weight")).defined());
  fixture.model->forward(at::ones({2, 5})).sum().backward();
  const FlatParameters::Backward claims(fixture.flat);
  CHECK_FALSE(claim_gradient_place(weight).defined());
}

// One row takes the place, more rows go through oneDNN or MKL and are copied there; used twice, a weight has a sum.
TEST_CASE("gradients of a linear layer are the same on every way to their place") {
  for (const std::int64_t rows : {1, 3}) {
    for (const int uses : {1, 2}) {
      CAPTURE(rows, uses);
      at::manual_seed(5);
      torch::nn::Linear layer(6, 6);
      const at::Tensor input = at::randn({rows, 6});
      const auto loss = [&](const auto& apply) {
        at::Tensor values = input;
        for (int use = 0; use < uses; ++use) values = apply(values);
        return (values * values).sum();
      };
      loss([&](const at::Tensor& values) { return torch::linear(values, layer->weight, layer->bias); }).backward();
      const at::Tensor expected = layer->weight.grad().clone();
      FlatParameters flat(trainable_parameters({{"", layer.ptr()}}));
      AlignedFloats buffer(flat.size());
      flat.attach_gradients(buffer.span());
      const FlatParameters::Backward claims(flat);
      loss([&](const at::Tensor& values) { return linear(values, layer->weight, layer->bias, false); }).backward();
      (void)flat.collect_gradients(flat.all());
      CHECK(layer->weight.grad().data_ptr<float>() == buffer.data());
      CHECK(at::allclose(layer->weight.grad(), expected));
    }
  }
}

TEST_CASE("a sparse gradient is an error that names the parameter") {
  Fixture fixture;
  fixture.parameter("fc2.weight").mutable_grad() = at::zeros({3, 7}).to_sparse();
  CHECK_THROWS_WITH(fixture.collect(), Catch::Contains("fc2.weight") && Catch::Contains("sparse"));
}

TEST_CASE("a model without float32 parameters is refused by name") {
  torch::nn::Linear layer(2, 2);
  layer->to(at::kDouble);
  CHECK_THROWS_WITH(FlatParameters(trainable_parameters({{"", layer.ptr()}})), Catch::Contains("weight"));
}

TEST_CASE("a parameter that two modules share has one place and both names") {
  struct Tied : torch::nn::Module {
    torch::nn::Linear in = register_module("in", torch::nn::Linear(3, 3));
    torch::nn::Linear out = register_module("out", torch::nn::Linear(3, 3));
    Tied() { out->weight = out->register_parameter("weight_2", in->weight); }
  };
  const auto model = std::make_shared<Tied>();
  FlatParameters flat(trainable_parameters({{"", model}}));
  std::size_t shared = 0;
  for (const ParameterPlace& place : flat.places()) {
    if (place.name != "in.weight") continue;
    ++shared;
    CHECK(place.also == std::vector<std::string>{"out.weight_2"});
  }
  CHECK(shared == 1);
  CHECK(model->in->weight.data_ptr() == model->out->weight.data_ptr());
}

TEST_CASE("a model that is converted after setup() is an error that names the parameter") {
  Fixture fixture;
  fixture.model->to(at::kDouble);
  CHECK_THROWS_WITH(fixture.collect(), Catch::Contains("parameter fc1.weight has been moved or converted"));
}

}  // namespace sgd::worker
