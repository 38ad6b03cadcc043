// A model from a file of torch.jit.save, trained as it is: its parameters and buffers are those of the module that the
// worker sees, under the same names and in the same memory, also where the script assigns a buffer
// (self.seen = self.seen + 1): what is saved is what it computes with, and what is restored counts in its next call.
#include <algorithm>
#include <cstddef>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include <c10/core/InferenceMode.h>
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

std::string kind_of(const at::Tensor& tensor) {
  return c10::str(tensor.sizes(), " of ", tensor.scalar_type(), " on ", tensor.device());
}

bool is_of_kind(const at::Tensor& tensor, const at::Tensor& other) {
  return tensor.sizes().equals(other.sizes()) && tensor.scalar_type() == other.scalar_type() &&
         tensor.device() == other.device();
}

/// Another tensor in the same memory; one that an inference mode makes could not be used in training.
at::Tensor beside(const at::Tensor& tensor) {
  const c10::InferenceMode no_inference(false);
  at::Tensor other = at::empty({0}, tensor.options());
  other.set_data(tensor);
  return other;
}

class TorchScriptModel : public Model {
 public:
  explicit TorchScriptModel(torch::jit::Module script) : script_(std::move(script)) {
    for (const auto& item : script_.named_parameters()) {
      const auto [folder, name] = place_of(item.name);
      folder->register_parameter(name, item.value, item.value.requires_grad());
    }
    for (const auto& part : script_.named_modules())
      for (const auto& item : part.value.named_buffers(/*recurse=*/false)) add_buffer(part.name, part.value, item);
  }

  void train(bool on = true) override {
    Model::train(on);
    script_.train(on);
  }

  at::Tensor forward(const at::Tensor& features) override {
    // What the executor makes faster after a few calls has other rounding: a recovery would change results.
    const torch::jit::GraphOptimizerEnabledGuard as_written(false);
    give_moved();
    const c10::IValue output = script_.forward({features});
    take_assigned();
    if (!output.isTensor())
      throw std::invalid_argument("the TorchScript model gives " + output.tagKind() + " and not one tensor");
    return output.toTensor();
  }

 private:
  /// The script's tensor of a buffer and the module's: two, since the backward pass may need the script's as it was,
  /// while the module's goes on to the memory of the next one.
  struct Buffer {
    std::string name;
    torch::jit::ObjectPtr object;  // Of the script, with the slot that forward assigns.
    std::size_t slot;
    at::Tensor given;  // What the slot has had since it was looked at.
    at::Tensor registered;
  };

  void add_buffer(const std::string& path, const torch::jit::Module& part, const torch::jit::NameTensor& item) {
    const std::string name = path.empty() ? item.name : path + "." + item.name;
    const std::size_t slot = part.type()->getAttributeSlot(item.name);
    // A part that the script has under two names has one slot for both.
    const auto found = std::find_if(script_buffers_.begin(), script_buffers_.end(), [&](const Buffer& one) {
      return one.object == part._ivalue() && one.slot == slot;
    });
    const at::Tensor registered = found == script_buffers_.end() ? beside(item.value) : found->registered;
    if (found == script_buffers_.end()) script_buffers_.push_back({name, part._ivalue(), slot, item.value, registered});
    const auto [folder, key] = place_of(name);
    folder->register_buffer(key, registered);
  }

  /// What went to another device after the last call.
  void give_moved() {
    for (Buffer& buffer : script_buffers_)
      if (!buffer.given.is_alias_of(buffer.registered)) give(buffer, beside(buffer.registered));
  }

  /// As copies: what a script assigns may be a view of the batch, carry its graph, or be made in an inference mode.
  void take_assigned() {
    const c10::InferenceMode no_inference(false);
    const at::NoGradGuard no_gradients;
    for (Buffer& buffer : script_buffers_) {
      const at::Tensor& assigned = buffer.object->getSlot(buffer.slot).toTensor();
      if (assigned.is_same(buffer.given)) continue;
      if (!is_of_kind(assigned, buffer.registered))
        throw std::invalid_argument("the TorchScript model assigns its buffer " + buffer.name + " a tensor " +
                                    kind_of(assigned) + ", and the file has it as " + kind_of(buffer.registered) +
                                    ": assign one of the same shape and type");
      give(buffer, assigned.clone(at::MemoryFormat::Contiguous));
      buffer.registered.set_data(buffer.given);
    }
  }

  static void give(Buffer& buffer, at::Tensor tensor) {
    buffer.given = std::move(tensor);
    buffer.object->setSlot(buffer.slot, buffer.given);
  }

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
  std::vector<Buffer> script_buffers_;
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
