// What a model begins with: drawn weights, and tensors of a file with their names, shapes and gaps.
#include <catch2/catch.hpp>

#include "test/unit/worker/temporary_directory.hpp"
#include "worker/core/safetensors.hpp"
#include "worker/torch/models.hpp"
#include "worker/torch/tensor_types.hpp"

namespace sgd::worker {
namespace {

using Json = nlohmann::json;
using NamedList = std::vector<std::pair<std::string, at::Tensor>>;

Json small_resnet(const Json& weights = nullptr, std::int64_t outputs = 3) {
  Json settings{{"type", "resnet18"}, {"stem", "cifar"}, {"width", 2}, {"outputs", outputs}};
  if (!weights.is_null()) settings["weights"] = weights;
  return settings;
}

NamedList list_of(const torch::nn::Module& model) {
  NamedList all;
  for (const auto& item : model.named_parameters()) all.emplace_back(item.key(), item.value().data().clone());
  for (const auto& item : model.named_buffers()) all.emplace_back(item.key(), item.value().clone());
  return all;
}

void write_weights(const std::string& path, const NamedList& list, const std::string& prefix = "") {
  std::vector<TensorBytes> tensors;
  for (const auto& [name, tensor] : list)
    tensors.push_back({prefix + name,
                       *tensor_type_of(tensor.scalar_type()),
                       tensor.sizes().vec(),
                       {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()}});
  REQUIRE(write_safetensors(path, tensors));
}

std::shared_ptr<Model> resnet_with(const Json& weights, std::int64_t outputs = 3) {
  return make_model(small_resnet(weights, outputs), {{3, 8, 8}, 0});
}

/// All but `left_out` have the values of `list`.
bool has_values(const torch::nn::Module& model, const NamedList& list, const std::string& left_out = "none") {
  const NamedList own = list_of(model);
  for (std::size_t i = 0; i < own.size(); ++i)
    if (!own[i].first.starts_with(left_out) && !at::equal(own[i].second, list[i].second)) return false;
  return true;
}

/// A file of another such network, which has seen a batch.
struct Trained {
  explicit Trained(const std::string& prefix = "") {
    at::manual_seed(7);
    const auto model = make_model(small_resnet(), {{3, 8, 8}, 0});
    (void)model->forward(at::rand({4, 3, 8, 8}));
    list = list_of(*model);
    write_weights(path, list, prefix);
    at::manual_seed(8);
  }
  testing::TemporaryDirectory folder;
  std::string path = folder.file("w.safetensors");
  NamedList list;
};

}  // namespace

TEST_CASE("weights: parameters and buffers of a file, in whatever float they are") {
  const Trained trained;
  CHECK(has_values(*resnet_with(trained.path), trained.list));
  CHECK(has_values(*resnet_with({{"file", trained.path}, {"partial", false}}), trained.list));
  CHECK_FALSE(has_values(*make_model(small_resnet(), {{3, 8, 8}, 0}), trained.list));
  NamedList doubles = trained.list;
  for (auto& [name, tensor] : doubles)
    if (tensor.is_floating_point()) tensor = tensor.to(at::kDouble);
  write_weights(trained.folder.file("doubles"), doubles);
  CHECK(has_values(*resnet_with(trained.folder.file("doubles")), trained.list));
}

TEST_CASE("weights: a part of a file, under a prefix, or for a part of the model") {
  const Trained trained("net.");
  CHECK(has_values(*resnet_with({{"file", trained.path}, {"prefix", "net."}}), trained.list));
  // Other classes: the last layer keeps what was drawn.
  const auto other = resnet_with({{"file", trained.path}, {"prefix", "net."}, {"exclude", {"fc."}}}, 5);
  CHECK(has_values(*other, trained.list, "fc."));
  NamedList few(trained.list.begin(), trained.list.begin() + 3);
  few.emplace_back("of.others", at::ones({2}));
  write_weights(trained.folder.file("few"), few);
  const auto model = resnet_with({{"file", trained.folder.file("few")}, {"partial", true}});
  const NamedList own = list_of(*model);
  for (std::size_t i = 0; i < 3; ++i) CHECK(at::equal(own[i].second, few[i].second));
  CHECK_FALSE(at::equal(own[3].second, trained.list[3].second));
}

TEST_CASE("weights: errors name file, tensor and what was expected") {
  const Trained trained;
  const auto says = [&](const Json& weights, const std::string& words, std::int64_t outputs = 3) {
    CHECK_THROWS_AS(resnet_with(weights, outputs), ConfigurationError);
    CHECK_THROWS_WITH(resnet_with(weights, outputs), Catch::Contains(words));
  };
  says(trained.path, "w.safetensors: tensor fc.weight has shape [3, 16], expected [5, 16]", 5);
  says(trained.folder.file("none"), "none");
  testing::write_file(trained.folder.file("text"), "no weights at all");
  says(trained.folder.file("text"), "not a valid safetensors file");
  says({{"file", trained.path}, {"prefix", "net."}}, "it lacks net.conv1.weight [2, 3, 3, 3], net.bn1.weight [2], ");
  says({{"file", trained.path}, {"prefix", "net."}, {"partial", true}}, "it has no tensor of the model; it has ");
  NamedList more = trained.list;
  more.emplace_back("extra", at::ones({2}));
  write_weights(trained.folder.file("more"), more);
  says(trained.folder.file("more"), "more: the model has no tensor for its extra; \"partial\" allows it");
  NamedList whole = trained.list;
  whole[0].second = whole[0].second.to(at::kLong);
  write_weights(trained.folder.file("whole"), whole);
  says(trained.folder.file("whole"), "tensor conv1.weight has the type I64");
}

TEST_CASE("weights: of tied tensors one name is enough") {
  const Json settings{{"type", "transformer"}, {"vocabulary", 5}, {"embedding", 4}, {"heads", 1},
                      {"feedforward", 4},      {"layers", 1},     {"tied", true},   {"dropout", 0}};
  const testing::TemporaryDirectory folder;
  at::manual_seed(1);
  NamedList list = list_of(*make_model(settings, {{3}, 0}));
  std::erase_if(list, [](const auto& one) { return one.first == "head.weight"; });
  write_weights(folder.file("tied"), list);
  Json with_file = settings;
  with_file["weights"] = folder.file("tied");
  const auto model = make_model(with_file, {{3}, 0});
  CHECK(at::equal(model->named_parameters()["head.weight"], list[0].second));
}

TEST_CASE("init: weights of layers are drawn, and nothing else") {
  const auto with_init = [](const Json& init) {
    Json settings = small_resnet();
    settings["init"] = init;
    at::manual_seed(3);
    return make_model(settings, {{3, 8, 8}, 0});
  };
  const auto plain = with_init("default");
  const auto normal = with_init({{"type", "normal"}, {"std", 0.5}});
  const auto a = plain->named_parameters(), b = normal->named_parameters();
  CHECK(at::equal(a["bn1.weight"], b["bn1.weight"]));
  CHECK(at::equal(a["fc.bias"], b["fc.bias"]));
  CHECK_FALSE(at::equal(a["layer4.1.conv2.weight"], b["layer4.1.conv2.weight"]));
  CHECK(std::abs(b["layer4.1.conv2.weight"].std().item<double>() - 0.5) < 0.05);
  CHECK(std::abs(with_init("normal")->named_parameters()["layer4.1.conv2.weight"].std().item<double>() - 0.02) < 0.002);
  for (const at::Tensor& parameter : with_init("zeros")->parameters()) CHECK(parameter.eq(0).all().item<bool>());
  CHECK_THROWS_AS(with_init("orthogonal"), ConfigurationError);
  const Json attention{
      {"type", "transformer"}, {"embedding", 32}, {"heads", 2}, {"init", {{"type", "normal"}, {"std", 3}}}};
  const auto text = make_model(attention, {{3}, 0})->named_parameters();
  CHECK(std::abs(text["encoder.layers.0.self_attn.in_proj_weight"].std().item<double>() - 3) < 0.3);
  CHECK(text["embedding.weight"].std().item<double>() < 0.03);
}

}  // namespace sgd::worker
