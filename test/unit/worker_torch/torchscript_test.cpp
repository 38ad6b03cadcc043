// Models from files of torch.jit.save: names, training, modes, and files that are none.
#include <catch2/catch.hpp>

#include <algorithm>
#include <set>

#include <c10/core/InferenceMode.h>
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

/// x * weight * seen; then `seen` is another tensor: itself and the weight, with a graph behind it. In a part that has
/// two names, `last` becomes a view of the batch, transposed.
std::string assigning_file(const testing::TemporaryDirectory& folder) {
  torch::jit::Module part("Part");
  part.register_buffer("last", at::zeros({2, 2}));
  part.define("def forward(self, x):\n    self.last = x.t()\n    return x\n");
  torch::jit::Module whole("Whole");
  whole.register_module("one", part);
  whole.register_module("two", part);
  whole.register_parameter("weight", at::full({2}, 3.0), false);
  whole.register_buffer("seen", at::ones({2}));
  whole.define(
      "def forward(self, x):\n    y = self.one.forward(x) * self.weight * self.seen\n"
      "    self.seen = self.seen + self.weight\n    return y\n");
  whole.save(folder.file("assigns.pt"));
  return folder.file("assigns.pt");
}

at::Tensor buffer_of(Model& model, const std::string& name) {
  return model.named_buffers()[name];
}

/// As a restore does.
void copy_buffers(const std::shared_ptr<Model>& from, const std::shared_ptr<Model>& to) {
  const std::vector<ModuleBuffer> source = module_buffers({{"", from}}, {});
  const std::vector<ModuleBuffer> target = module_buffers({{"", to}}, {});
  REQUIRE(source.size() == target.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    REQUIRE(source[i].name == target[i].name);
    std::copy(source[i].bytes.begin(), source[i].bytes.end(), target[i].bytes.begin());
  }
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

TEST_CASE("torchscript: a buffer that forward assigns is the module's, in training and in validation") {
  const testing::TemporaryDirectory folder;
  const auto model = script_model(assigning_file(folder));
  at::Tensor weight = model->named_parameters()["weight"];
  weight.set_requires_grad(true);
  const at::Tensor batch = at::arange(4, at::kFloat).view({2, 2});
  const at::Tensor first = model->forward(batch);
  CHECK(buffer_of(*model, "seen").equal(at::full({2}, 4.0)));
  CHECK_FALSE(buffer_of(*model, "seen").requires_grad());
  first.sum().backward();  // With the values that the buffer had.
  CHECK(weight.grad().equal(at::tensor({2.0F, 4.0F})));
  CHECK(buffer_of(*model, "one.last").equal(batch.t()));
  batch.fill_(1);
  CHECK(buffer_of(*model, "one.last")[0][1].item<float>() == 2);
  {
    const c10::InferenceMode validation;
    CHECK(model->forward(batch).equal(at::full({2, 2}, 12.0)));
  }
  CHECK(buffer_of(*model, "seen").equal(at::full({2}, 7.0)));
  weight.mutable_grad().zero_();
  model->forward(batch).sum().backward();
  CHECK(weight.grad().equal(at::full({2}, 14.0)));
  for (const char* name : {"seen", "one.last", "two.last"}) CHECK_FALSE(buffer_of(*model, name).is_inference());
  CHECK(buffer_of(*model, "one.last").is_same(buffer_of(*model, "two.last")));
}

TEST_CASE("torchscript: what is restored into a buffer that forward assigns counts in the next call") {
  const testing::TemporaryDirectory folder;
  const std::string file = assigning_file(folder);
  const auto undisturbed = script_model(file);
  const auto disturbed = script_model(file);
  const auto batch = [](double value) { return at::full({2, 2}, value); };
  for (const double value : {1.0, 2.0}) {
    undisturbed->forward(batch(value));
    disturbed->forward(batch(value));
  }
  disturbed->forward(batch(3));  // What a killed rank did beyond its checkpoint.
  copy_buffers(undisturbed, disturbed);
  const auto anew = script_model(file);
  copy_buffers(undisturbed, anew);
  const at::Tensor expected = undisturbed->forward(batch(4));
  CHECK(expected.equal(batch(4 * 3 * 7)));
  for (const auto& model : {disturbed, anew}) {
    CHECK(model->forward(batch(4)).equal(expected));
    CHECK(buffer_of(*model, "seen").equal(buffer_of(*undisturbed, "seen")));
  }
}

TEST_CASE("torchscript: a buffer that forward gives another shape or type is named") {
  const testing::TemporaryDirectory folder;
  for (const std::string assigned : {"x", "self.seen.to(7)"}) {  // at::kDouble
    torch::jit::Module part("Part");
    part.register_buffer("seen", at::zeros({2}));
    part.define("def forward(self, x):\n    self.seen = " + assigned + "\n    return x\n");
    torch::jit::Module whole("Whole");
    whole.register_module("inner", part);
    whole.register_parameter("weight", at::ones({2}), false);
    whole.define("def forward(self, x):\n    return self.inner.forward(x) * self.weight\n");
    whole.save(folder.file("changes.pt"));
    CHECK_THROWS_WITH(script_model(folder.file("changes.pt"))->forward(at::ones({3, 2})),
                      Catch::Contains("assigns its buffer inner.seen a tensor [") &&
                          Catch::Contains("and the file has it as [2] of Float on cpu: assign one of the same shape"));
  }
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
