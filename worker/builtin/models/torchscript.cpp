// A model from a file of torch.jit.save, trained as it is: its parameters and buffers are those of the module that the
// worker sees, under the same names.
#include <map>
#include <stdexcept>
#include <utility>

#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>

#include "worker/builtin/models/factories.hpp"

namespace sgd::builtin {
namespace {

/// The first line of what LibTorch says; the rest is for programmers.
std::string first_line(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  return text.substr(0, text.find('\n'));
}

class TorchScriptModel : public Model {
 public:
  explicit TorchScriptModel(torch::jit::Module script) : script_(std::move(script)) {
    for (const auto& item : script_.named_parameters()) {
      const auto [folder, name] = place_of(item.name);
      folder->register_parameter(name, item.value, item.value.requires_grad());
    }
    for (const auto& item : script_.named_buffers()) {
      const auto [folder, name] = place_of(item.name);
      folder->register_buffer(name, item.value);
    }
  }

  void train(bool on = true) override {
    Model::train(on);
    script_.train(on);
  }

  at::Tensor forward(const at::Tensor& features) override {
    // What the executor makes faster after a few calls has other rounding: a recovery would change results.
    const torch::jit::GraphOptimizerEnabledGuard as_written(false);
    const c10::IValue output = script_.forward({features});
    if (!output.isTensor())
      throw std::invalid_argument("the TorchScript model gives " + output.tagKind() + " and not one tensor");
    return output.toTensor();
  }

 private:
  /// The module that holds what is called `name`, "a.b.weight", and the last part of it.
  std::pair<torch::nn::Module*, std::string> place_of(const std::string& name) {
    const std::size_t dot = name.rfind('.');
    if (dot == std::string::npos) return {this, name};
    return {folder_of(name.substr(0, dot)), name.substr(dot + 1)};
  }

  torch::nn::Module* folder_of(const std::string& path) {
    std::shared_ptr<torch::nn::Module>& folder = folders_[path];
    if (!folder) {
      folder = std::make_shared<torch::nn::Module>();
      const auto [parent, name] = place_of(path);
      parent->register_module(name, folder);
    }
    return folder.get();
  }

  torch::jit::Module script_;
  std::map<std::string, std::shared_ptr<torch::nn::Module>> folders_;
};

}  // namespace

std::shared_ptr<Model> make_torchscript(const nlohmann::json& settings, const SampleShape&) {
  const std::string file = settings.at("file");
  const auto failed = [&file](const std::string& why) {
    return std::invalid_argument("the TorchScript file " + file + " cannot be loaded: " + why);
  };
  torch::jit::Module script;
  try {
    script = torch::jit::load(file, at::kCPU);
  } catch (const c10::Error& error) {
    throw failed(first_line(error));
  } catch (const torch::jit::ErrorReport& error) {
    throw failed(error.what());
  }
  if (!script.find_method("forward")) throw failed("it has no method forward");
  if (script.parameters().size() == 0) throw failed("it has no parameter that could be trained");
  return std::make_shared<TorchScriptModel>(std::move(script));
}

}  // namespace sgd::builtin
