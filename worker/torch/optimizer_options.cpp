#include "worker/torch/optimizer_options.hpp"

#include <tuple>
#include <typeinfo>
#include <utility>

#include "common/base/assert.hpp"

namespace sgd::worker {
namespace {

namespace optim = torch::optim;

/// Adam's and AdamW's options are classes of their own, with the same members.
template <class Options>
job::Optimizer settings_of_adam(const Options& options) {
  job::Optimizer settings;
  std::tie(settings.beta1, settings.beta2) = options.betas();
  settings.eps = options.eps();
  settings.weight_decay = options.weight_decay();
  settings.amsgrad = options.amsgrad();
  return settings;
}

template <class Options>
void set_adam(const job::Optimizer& settings, optim::OptimizerOptions& options) {
  static_cast<Options&>(options)
      .betas({settings.beta1, settings.beta2})
      .eps(settings.eps)
      .weight_decay(settings.weight_decay)
      .amsgrad(settings.amsgrad);
}

job::Optimizer settings_of_sgd(const optim::SGDOptions& options) {
  job::Optimizer settings;
  settings.momentum = options.momentum();
  settings.dampening = options.dampening();
  settings.nesterov = options.nesterov();
  settings.weight_decay = options.weight_decay();
  return settings;
}

job::Optimizer settings_of_rmsprop(const optim::RMSpropOptions& options) {
  job::Optimizer settings;
  settings.alpha = options.alpha();
  settings.eps = options.eps();
  settings.momentum = options.momentum();
  settings.centered = options.centered();
  settings.weight_decay = options.weight_decay();
  return settings;
}

job::Optimizer settings_of_adagrad(const optim::AdagradOptions& options) {
  job::Optimizer settings;
  settings.lr_decay = options.lr_decay();
  settings.initial_accumulator_value = options.initial_accumulator_value();
  settings.eps = options.eps();
  settings.weight_decay = options.weight_decay();
  return settings;
}

}  // namespace

std::string optimizer_type_of(const optim::Optimizer& optimizer) {
  const std::type_info& type = typeid(optimizer);
  if (type == typeid(optim::SGD)) return "sgd";
  if (type == typeid(optim::Adam)) return "adam";
  if (type == typeid(optim::AdamW)) return "adamw";
  if (type == typeid(optim::RMSprop)) return "rmsprop";
  if (type == typeid(optim::Adagrad)) return "adagrad";
  return "";
}

job::Optimizer settings_of(const std::string& type, const optim::OptimizerOptions& options) {
  job::Optimizer settings;
  if (type == "sgd") {
    settings = settings_of_sgd(static_cast<const optim::SGDOptions&>(options));
  } else if (type == "adam") {
    settings = settings_of_adam(static_cast<const optim::AdamOptions&>(options));
  } else if (type == "adamw") {
    settings = settings_of_adam(static_cast<const optim::AdamWOptions&>(options));
  } else if (type == "rmsprop") {
    settings = settings_of_rmsprop(static_cast<const optim::RMSpropOptions&>(options));
  } else {
    SGD_ASSERT(type == "adagrad");
    settings = settings_of_adagrad(static_cast<const optim::AdagradOptions&>(options));
  }
  settings.type = type;
  settings.lr = options.get_lr();
  return settings;
}

void set_options(const job::Optimizer& settings, optim::OptimizerOptions& options) {
  options.set_lr(settings.lr);
  if (settings.type == "sgd") {
    static_cast<optim::SGDOptions&>(options)
        .momentum(settings.momentum)
        .dampening(settings.dampening)
        .nesterov(settings.nesterov)
        .weight_decay(settings.weight_decay);
  } else if (settings.type == "adam") {
    set_adam<optim::AdamOptions>(settings, options);
  } else if (settings.type == "adamw") {
    set_adam<optim::AdamWOptions>(settings, options);
  } else if (settings.type == "rmsprop") {
    static_cast<optim::RMSpropOptions&>(options)
        .alpha(settings.alpha)
        .eps(settings.eps)
        .momentum(settings.momentum)
        .centered(settings.centered)
        .weight_decay(settings.weight_decay);
  } else {
    SGD_ASSERT(settings.type == "adagrad");
    static_cast<optim::AdagradOptions&>(options)
        .lr_decay(settings.lr_decay)
        .initial_accumulator_value(settings.initial_accumulator_value)
        .eps(settings.eps)
        .weight_decay(settings.weight_decay);
  }
}

void add_group(const job::Optimizer& settings, std::vector<at::Tensor> parameters, optim::Optimizer& made) {
  auto options = std::as_const(made).param_groups().front().options().clone();
  set_options(settings, *options);
  // Not add_param_group(): it takes settings that are LibTorch's defaults for ones that were not given.
  made.param_groups().emplace_back(std::move(parameters), std::move(options));
}

std::unique_ptr<optim::Optimizer> make_torch_optimizer(const job::Optimizer& settings,
                                                       std::vector<at::Tensor> parameters) {
  std::unique_ptr<optim::Optimizer> made;
  if (settings.type == "sgd") {
    made = std::make_unique<optim::SGD>(std::move(parameters), optim::SGDOptions(settings.lr));
  } else if (settings.type == "adam") {
    made = std::make_unique<optim::Adam>(std::move(parameters));
  } else if (settings.type == "adamw") {
    made = std::make_unique<optim::AdamW>(std::move(parameters));
  } else if (settings.type == "rmsprop") {
    made = std::make_unique<optim::RMSprop>(std::move(parameters));
  } else {
    SGD_ASSERT(settings.type == "adagrad");
    made = std::make_unique<optim::Adagrad>(std::move(parameters));
  }
  set_options(settings, made->param_groups().front().options());
  return made;
}

nlohmann::json to_json(const job::Optimizer& settings) {
  nlohmann::json json;
  json["type"] = settings.type;
  json["lr"] = settings.lr;
  json["weight_decay"] = settings.weight_decay;
  json["momentum"] = settings.momentum;
  json["dampening"] = settings.dampening;
  json["nesterov"] = settings.nesterov;
  json["betas"] = {settings.beta1, settings.beta2};
  json["eps"] = settings.eps;
  json["amsgrad"] = settings.amsgrad;
  json["alpha"] = settings.alpha;
  json["centered"] = settings.centered;
  json["lr_decay"] = settings.lr_decay;
  json["initial_accumulator_value"] = settings.initial_accumulator_value;
  return json;
}

job::Optimizer settings_from(const nlohmann::json& json) {
  job::Optimizer settings;
  json.at("type").get_to(settings.type);
  json.at("lr").get_to(settings.lr);
  json.at("weight_decay").get_to(settings.weight_decay);
  json.at("momentum").get_to(settings.momentum);
  json.at("dampening").get_to(settings.dampening);
  json.at("nesterov").get_to(settings.nesterov);
  json.at("betas").at(0).get_to(settings.beta1);
  json.at("betas").at(1).get_to(settings.beta2);
  json.at("eps").get_to(settings.eps);
  json.at("amsgrad").get_to(settings.amsgrad);
  json.at("alpha").get_to(settings.alpha);
  json.at("centered").get_to(settings.centered);
  json.at("lr_decay").get_to(settings.lr_decay);
  json.at("initial_accumulator_value").get_to(settings.initial_accumulator_value);
  return settings;
}

}  // namespace sgd::worker
