// Models from files of torch.jit.save: names, training, modes, and files that are none.
#include <catch2/catch.hpp>

#include <set>

#include <torch/script.h>

#include "test/unit/worker/temporary_directory.hpp"
#include "worker/torch/flat_parameters.hpp"
#include "worker/torch/models.hpp"
#include "worker/torch/module_buffers.hpp"

namespace sgd::worker {
namespace {

/// x * inner.weight + bias, and 1 more in training; a buffer counts nothing.
std::string script_file(const testing::TemporaryDirectory& folder) {
  torch::jit::Module inner("Inner");
  inner.register_parameter("weight", at::full({2}, 3.0), false);
  inner.define("def forward(self, x):\n    return x * self.weight\n");
  torch::jit::Module whole("Whole");
  whole.register_module("inner", inner);
  whole.register_parameter("bias", at::full({2}, 5.0), false);
  whole.register_buffer("seen", at::zeros({}, at::kLong));
  whole.register_attribute("training", c10::BoolType::get(), true);
  whole.define(
      "def forward(self, x):\n    y = self.inner.forward(x) + self.bias\n    if self.training:\n        y = y + 1\n"
      "    return y\n");
  whole.save(folder.file("model.pt"));
  return folder.file("model.pt");
}

std::shared_ptr<Model> script_model(const std::string& file) {
  return make_model({{"type", "torchscript"}, {"file", file}}, {{2}, 0});
}

}  // namespace

TEST_CASE("torchscript: parameters and buffers have the file's names, and are what is trained") {
  const testing::TemporaryDirectory folder;
  const auto model = script_model(script_file(folder));
  for (at::Tensor& parameter : model->parameters()) parameter.set_requires_grad(true);
  FlatParameters flat(trainable_parameters({{"", model}}));
  std::set<std::string> names;
  for (const ParameterPlace& place : flat.places()) names.insert(place.name);
  CHECK(names == std::set<std::string>{"bias", "inner.weight"});
  REQUIRE(module_buffers({{"", model}}, flat.places()).size() == 1);
  CHECK(module_buffers({{"", model}}, flat.places()).front().name == "seen");
  model->eval();
  for (int call = 0; call < 4; ++call) {  // Whatever the executor makes of it after a few calls.
    CHECK(model->forward(at::ones({1, 2})).equal(at::full({1, 2}, 8.0)));
    model->forward(at::ones({1, 2})).sum().backward();
  }
  for (float& value : flat.values()) value = 2;  // As an optimizer does, in the flat buffer.
  CHECK(model->forward(at::ones({1, 2})).equal(at::full({1, 2}, 4.0)));
  model->train();
  CHECK(model->forward(at::ones({1, 2})).equal(at::full({1, 2}, 5.0)));
}

TEST_CASE("torchscript: a file that cannot be loaded is a configuration error that names it") {
  const testing::TemporaryDirectory folder;
  testing::write_file(folder.file("text.pt"), "this is no archive");
  CHECK_THROWS_AS(script_model(folder.file("text.pt")), ConfigurationError);
  CHECK_THROWS_WITH(script_model(folder.file("text.pt")), Catch::Contains("text.pt cannot be loaded: "));
  CHECK_THROWS_WITH(script_model(folder.file("none.pt")), Catch::Contains("none.pt cannot be loaded: "));
  torch::jit::Module empty("Empty");
  empty.define("def forward(self, x):\n    return x\n");
  empty.save(folder.file("empty.pt"));
  CHECK_THROWS_WITH(script_model(folder.file("empty.pt")),
                    Catch::Contains("it has no parameter that could be trained"));
  torch::jit::Module silent("Silent");
  silent.register_parameter("weight", at::ones({2}), false);
  silent.save(folder.file("silent.pt"));
  CHECK_THROWS_WITH(script_model(folder.file("silent.pt")), Catch::Contains("it has no method forward"));
  torch::jit::Module two("Two");
  two.register_parameter("weight", at::ones({2}), false);
  two.define("def forward(self, x):\n    return (x, self.weight)\n");
  two.save(folder.file("two.pt"));
  CHECK_THROWS_WITH(script_model(folder.file("two.pt"))->forward(at::ones({2})), Catch::Contains("gives Tuple"));
}

}  // namespace sgd::worker
