#include "worker/torch/initial_weights.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/json/lenient.hpp"
#include "worker/core/safetensors.hpp"
#include "worker/torch/errors.hpp"
#include "worker/torch/tensor_types.hpp"

namespace sgd::worker {
namespace {

using Draw = std::function<void(const at::Tensor& weight)>;

Draw draw_of(const std::string& type, const nlohmann::json& init) {
  namespace draws = torch::nn::init;
  if (type == "xavier_uniform") return [](const at::Tensor& weight) { draws::xavier_uniform_(weight); };
  if (type == "xavier_normal") return [](const at::Tensor& weight) { draws::xavier_normal_(weight); };
  if (type == "kaiming_uniform")
    return [](const at::Tensor& weight) { draws::kaiming_uniform_(weight, 0, torch::kFanIn, torch::kReLU); };
  if (type == "kaiming_normal")
    return [](const at::Tensor& weight) { draws::kaiming_normal_(weight, 0, torch::kFanIn, torch::kReLU); };
  if (type == "normal")
    return [std = read_or(init, "std", 0.02)](const at::Tensor& weight) { draws::normal_(weight, 0, std); };
  throw ConfigurationError("unknown init \"" + type + "\"");
}

template <class Layer>
bool draw_if(torch::nn::Module& module, const Draw& draw) {
  const auto* layer = module.as<Layer>();
  if (layer != nullptr) draw(layer->weight);
  return layer != nullptr;
}

template <class... Layers>
void draw_layer(torch::nn::Module& module, const Draw& draw) {
  (void)(draw_if<Layers>(module, draw) || ...);
}

/// The tensors of a model by all their names: tied ones have several.
std::vector<std::pair<std::string, at::Tensor>> named_tensors(const torch::nn::Module& model) {
  std::vector<std::pair<std::string, at::Tensor>> all;
  for (const auto& item : model.named_parameters()) all.emplace_back(item.key(), item.value());
  for (const auto& item : model.named_buffers()) {
    if (item.value().defined()) all.emplace_back(item.key(), item.value());
  }
  return all;
}

template <class Sizes>
std::string shape_in_words(const Sizes& sizes) {
  return fmt::format("[{}]", fmt::join(sizes, ", "));
}

/// One pass over a file.
class WeightsFile {
 public:
  explicit WeightsFile(const nlohmann::json& weights)
      : path_(weights.is_string() ? weights.get<std::string>() : read_or(weights, "file", "")),
        is_partial_(read_or(weights, "partial", false)),
        prefix_(read_or(weights, "prefix", "")),
        file_(opened(path_)) {
    for (const nlohmann::json& name : member(weights, "exclude")) excluded_.push_back(name.get<std::string>());
  }

  void load_into(const torch::nn::Module& model) {
    const auto tensors = named_tensors(model);
    for (const auto& [name, tensor] : tensors) {
      if (!is_excluded(name)) copy(name, tensor);
    }
    if (!is_partial_) check_nothing_missing(tensors);
    if (!is_partial_) check_nothing_left();
    if (loaded_.empty())
      throw ConfigurationError(
          fmt::format("weights file {}: it has no tensor of the model; it has {}, and the model {}", path_,
                      first_names(names_of_file()), first_names(names_of(tensors))));
  }

 private:
  static SafetensorsFile opened(const std::string& path) {
    Result<SafetensorsFile> file = SafetensorsFile::open(path);
    if (!file) throw ConfigurationError("weights file " + file.error().message);
    return std::move(file).value();
  }

  bool is_excluded(const std::string& name) const {
    return std::any_of(excluded_.begin(), excluded_.end(), [&](const auto& front) { return name.starts_with(front); });
  }

  void copy(const std::string& name, const at::Tensor& tensor) {
    const TensorBytes* found = file_.find(prefix_ + name);
    if (found == nullptr) return;
    if (found->shape != tensor.sizes().vec())
      throw ConfigurationError(
          fmt::format("weights file {}: tensor {} has shape {}, expected {}; \"exclude\" leaves it as it is", path_,
                      found->name, shape_in_words(found->shape), shape_in_words(tensor.sizes().vec())));
    const at::Tensor given = at::empty(found->shape, at::TensorOptions().dtype(scalar_type_of(found->type)));
    if (!found->bytes.empty()) std::memcpy(given.data_ptr(), found->bytes.data(), found->bytes.size());
    if (given.is_floating_point() != tensor.is_floating_point())
      throw ConfigurationError(fmt::format("weights file {}: tensor {} has the type {}, and the model's has {}", path_,
                                           found->name, name_of(found->type), c10::toString(tensor.scalar_type())));
    const at::NoGradGuard no_gradients;
    at::Tensor(tensor).copy_(given);
    loaded_.push_back(name);
    tensors_loaded_.push_back(tensor);
  }

  using Tensors = std::vector<std::pair<std::string, at::Tensor>>;

  void check_nothing_missing(const Tensors& tensors) const {
    std::vector<std::string> missing;
    for (const auto& [name, tensor] : tensors) {
      const auto is_it = [&one = tensor](const at::Tensor& other) { return other.is_same(one); };
      const bool is_loaded = std::any_of(tensors_loaded_.begin(), tensors_loaded_.end(), is_it);
      if (is_loaded || is_excluded(name)) continue;
      missing.push_back(fmt::format("{} {}", prefix_ + name, shape_in_words(tensor.sizes().vec())));
    }
    if (missing.empty()) return;
    throw ConfigurationError(
        fmt::format("weights file {}: it lacks {} of the model; \"partial\" allows it", path_, first_names(missing)));
  }

  void check_nothing_left() const {
    std::vector<std::string> left;
    for (const std::string& name : names_of_file()) {
      if (!name.starts_with(prefix_)) continue;
      const std::string own = name.substr(prefix_.size());
      if (!is_excluded(own) && std::find(loaded_.begin(), loaded_.end(), own) == loaded_.end()) left.push_back(name);
    }
    if (left.empty()) return;
    throw ConfigurationError(fmt::format("weights file {}: the model has no tensor for its {}; \"partial\" allows it",
                                         path_, first_names(left)));
  }

  std::vector<std::string> names_of_file() const {
    std::vector<std::string> names;
    for (const TensorBytes& tensor : file_.tensors()) names.push_back(tensor.name);
    return names;
  }

  static std::vector<std::string> names_of(const Tensors& tensors) {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors) names.push_back(name);
    return names;
  }

  /// A few of many.
  static std::string first_names(const std::vector<std::string>& names) {
    constexpr std::size_t kNamed = 3;
    if (names.empty()) return "none";
    const auto end = names.begin() + static_cast<std::ptrdiff_t>(std::min(kNamed, names.size()));
    std::string text = fmt::format("{}", fmt::join(names.begin(), end, ", "));
    if (names.size() > kNamed) text += fmt::format(" and {} more", names.size() - kNamed);
    return text;
  }

  std::string path_;
  bool is_partial_;
  std::string prefix_;
  std::vector<std::string> excluded_;
  SafetensorsFile file_;
  std::vector<std::string> loaded_;
  std::vector<at::Tensor> tensors_loaded_;
};

}  // namespace

void initialize(torch::nn::Module& model, const nlohmann::json& init) {
  const std::string type = init.is_string() ? init.get<std::string>() : read_or(init, "type", "");
  if (type == "default") return;
  if (type == "zeros") {
    const at::NoGradGuard no_gradients;
    for (at::Tensor& parameter : model.parameters()) parameter.zero_();
    return;
  }
  const Draw draw = draw_of(type, init);
  for (const auto& module : model.modules()) {
    draw_layer<torch::nn::Linear, torch::nn::Bilinear, torch::nn::Conv1d, torch::nn::Conv2d, torch::nn::Conv3d,
               torch::nn::ConvTranspose1d, torch::nn::ConvTranspose2d, torch::nn::ConvTranspose3d>(*module, draw);
    if (const auto* attention = module->as<torch::nn::MultiheadAttention>();
        attention != nullptr && attention->in_proj_weight.defined())
      draw(attention->in_proj_weight);
  }
}

void load_weights(torch::nn::Module& model, const nlohmann::json& weights) {
  WeightsFile(weights).load_into(model);
}

}  // namespace sgd::worker
