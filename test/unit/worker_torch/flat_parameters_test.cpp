// Flat buffers and what user code may do to gradients.
#include <catch2/catch.hpp>

#include "worker/torch/flat_parameters.hpp"
#include "worker/torch/models.hpp"

namespace sgd::worker {
namespace {

struct Fixture {
  Fixture() : model(make_model({{"type", "mlp"}, {"hidden", {7}}}, {{5}, 3})), flat(*model) {
    buffer = AlignedFloats(flat.size());
    flat.attach_gradients(buffer.span());
  }
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
  FlatParameters flat(*model);
  const auto after = model->parameters();
  REQUIRE(flat.places().size() == 4);
  for (std::size_t i = 0; i < after.size(); ++i) {
    CHECK(at::equal(before[i], after[i]));
    CHECK(after[i].data_ptr<float>() == flat.values().data() + flat.places()[i].offset);
    CHECK(reinterpret_cast<std::uintptr_t>(after[i].data_ptr()) % 64 == 0);
  }
  CHECK(flat.places()[0].name == "fc1.weight");
  const at::NoGradGuard no_gradients;
  const std::uint64_t hash = flat.hash();
  model->named_parameters()["fc2.bias"][2] += 1e-6;
  CHECK(flat.hash() != hash);
}

TEST_CASE("backward writes into the flat gradients") {
  Fixture fixture;
  fixture.model->forward(at::ones({2, 5})).sum().backward();
  fixture.flat.collect_gradients();
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
  fixture.flat.collect_gradients();
  CHECK(fixture.buffer.data()[fixture.flat.places()[1].offset + 6] == 6);
  CHECK(first.grad().data_ptr<float>() == fixture.buffer.data() + fixture.flat.places()[1].offset);
  CHECK(fixture.buffer.data()[fixture.flat.places()[2].offset] == 0);
  CHECK(second.grad().defined());
}

TEST_CASE("a sparse gradient is an error that names the parameter") {
  Fixture fixture;
  fixture.parameter("fc2.weight").mutable_grad() = at::zeros({3, 7}).to_sparse();
  CHECK_THROWS_WITH(fixture.flat.collect_gradients(), Catch::Contains("fc2.weight") && Catch::Contains("sparse"));
}

TEST_CASE("a model without float32 parameters is refused by name") {
  torch::nn::Linear layer(2, 2);
  layer->to(at::kDouble);
  CHECK_THROWS_WITH(FlatParameters(*layer), Catch::Contains("weight"));
}

}  // namespace sgd::worker
