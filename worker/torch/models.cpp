#include "worker/torch/models.hpp"

#include <functional>
#include <map>
#include <numeric>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>

#include "worker/builtin/models.hpp"
#include "worker/plugin/registered.hpp"
#include "worker/torch/initial_weights.hpp"
#include "worker/torch/linear_function.hpp"

namespace sgd::worker {
namespace {

std::int64_t feature_count(const SampleShape& sample) {
  return std::accumulate(sample.features.begin(), sample.features.end(), std::int64_t{1}, std::multiplies<>());
}

/// One affine map.
class LinearModel : public Model {
 public:
  LinearModel(std::int64_t inputs, std::int64_t outputs) : linear_(inputs, outputs) {
    register_module("linear", linear_);
  }
  at::Tensor forward(const at::Tensor& features) override {
    return linear(features.flatten(1), linear_->weight, linear_->bias, false);
  }

 private:
  torch::nn::Linear linear_;
};

/// Affine maps with ReLU between them: fc1, fc2, ...
class Mlp : public Model {
 public:
  explicit Mlp(const std::vector<std::int64_t>& widths) {
    for (std::size_t i = 0; i + 1 < widths.size(); ++i)
      layers_.push_back(register_module("fc" + std::to_string(i + 1), torch::nn::Linear(widths[i], widths[i + 1])));
  }
  at::Tensor forward(const at::Tensor& features) override {
    at::Tensor values = features.flatten(1);
    for (auto& layer : layers_) values = linear(values, layer->weight, layer->bias, &layer != &layers_.back());
    return values;
  }

 private:
  std::vector<torch::nn::Linear> layers_;
};

/// The job says how many numbers the model takes; the data must give as many.
void check_inputs(const nlohmann::json& settings, const SampleShape& sample) {
  const std::int64_t given = feature_count(sample);
  const std::int64_t taken = settings.value("inputs", given);
  if (taken != given)
    throw ConfigurationError(fmt::format("model \"{}\" takes {} inputs, but a sample of the data set has {}",
                                         settings.value("type", std::string()), taken, given));
}

std::shared_ptr<Model> make_linear(const nlohmann::json& settings, const SampleShape& sample) {
  check_inputs(settings, sample);
  return std::make_shared<LinearModel>(feature_count(sample), settings.value("outputs", sample.outputs));
}

std::shared_ptr<Model> make_mlp(const nlohmann::json& settings, const SampleShape& sample) {
  check_inputs(settings, sample);
  std::vector<std::int64_t> widths{feature_count(sample)};
  for (const std::int64_t hidden : settings.value("hidden", std::vector<std::int64_t>{256, 128}))
    widths.push_back(hidden);
  widths.push_back(settings.value("outputs", sample.outputs));
  return std::make_shared<Mlp>(widths);
}

/// What a factory of worker/builtin says of settings and samples that do not go together is the job's mistake.
std::shared_ptr<Model> make_built_in(const ModelFactory& factory, const nlohmann::json& settings,
                                     const SampleShape& sample) {
  try {
    return factory(settings, sample);
  } catch (const std::invalid_argument& error) {
    throw ConfigurationError(error.what());
  }
}

}  // namespace

Registry<ModelFactory>& model_registry() {
  static Registry<ModelFactory> registry("model", [] {
    std::map<std::string, ModelFactory> all = builtin::models();
    all.merge(std::map<std::string, ModelFactory>{{"linear", make_linear}, {"mlp", make_mlp}, {"cnn", make_cnn}});
    return all;
  }());
  return registry;
}

std::shared_ptr<Model> make_model(const nlohmann::json& settings, const SampleShape& sample) {
  const std::string type = settings.value("type", std::string());
  const auto& own = registered_types();
  const auto found = own.models.find(type);
  const bool is_own = found != own.models.end();
  std::shared_ptr<Model> model =
      is_own ? found->second(settings, sample) : make_built_in(model_registry().find(type), settings, sample);
  if (!model) throw std::logic_error("the model \"" + type + "\": its factory has made nothing");
  // A plug-in's own settings may mean something else by these names.
  const nlohmann::json own_settings = is_own ? own.properties.at("model").at(type) : nlohmann::json::object();
  if (settings.contains("init") && !own_settings.contains("init")) initialize(*model, settings.at("init"));
  if (settings.contains("weights") && !own_settings.contains("weights")) load_weights(*model, settings.at("weights"));
  return model;
}

Registry<builtin::LossFactory>& loss_registry() {
  static Registry<builtin::LossFactory> registry("loss", builtin::losses());
  return registry;
}

Loss make_loss(const nlohmann::json& settings) {
  if (settings.is_string()) return make_loss(nlohmann::json{{"type", settings}});
  const std::string type = settings.value("type", std::string());
  const auto own = registered_types().losses.find(type);
  if (own == registered_types().losses.end()) return loss_registry().find(type)(settings);
  Loss loss = own->second(settings);
  if (!loss) throw std::logic_error("the loss \"" + type + "\": its factory has made nothing");
  return loss;
}

}  // namespace sgd::worker
