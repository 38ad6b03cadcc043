// RaySGD's creators: all four, and a model alone, of which the job says the rest.
#include <sgd/sgd.hpp>

namespace {

struct Net : torch::nn::Module {
  explicit Net(std::int64_t hidden)
      : in(register_module("in", torch::nn::Linear(784, hidden))),
        out(register_module("out", torch::nn::Linear(hidden, 10))) {}
  at::Tensor forward(const at::Tensor& images) { return out->forward(torch::relu(in->forward(images.flatten(1)))); }
  torch::nn::Linear in, out;
};

std::shared_ptr<Net> make_net(const nlohmann::json& config) {
  return std::make_shared<Net>(config.at("hidden").get<std::int64_t>());
}

torch::optim::SGD make_optimizer(Net& net, const nlohmann::json& config) {
  return torch::optim::SGD(net.parameters(), torch::optim::SGDOptions(config.at("lr")).momentum(0.9));
}

sgd::Loss make_loss(const nlohmann::json& config) {
  const double smoothing = config.at("smoothing");
  return [smoothing](const at::Tensor& output, const at::Tensor& target) {
    return at::cross_entropy_loss(output, target, {}, at::Reduction::Mean, -100, smoothing);
  };
}

nlohmann::json make_scheduler(const nlohmann::json&) {
  return {{"type", "exponential"}, {"gamma", 0.5}};
}

/// A model, and an optimizer of a class of its own, that are lists of their parts as well.
torch::nn::Sequential make_list(const nlohmann::json&) {
  return torch::nn::Sequential(torch::nn::Linear(1, 1));
}

struct ListedSgd : torch::optim::SGD {
  using torch::optim::SGD::SGD;
  auto begin() { return param_groups().begin(); }
  auto end() { return param_groups().end(); }
};

ListedSgd make_listed_optimizer(torch::nn::SequentialImpl& net, const nlohmann::json&) {
  return ListedSgd(net.parameters(), torch::optim::SGDOptions(0.01));
}

}  // namespace

SGD_REGISTER_CREATORS("all_created", sgd::operator_from_creators(make_net, make_optimizer, make_loss, make_scheduler),
                      R"({
  "hidden": {"type": "integer", "minimum": 1, "default": 32},
  "lr": {"type": "number", "default": 0.05},
  "smoothing": {"type": "number", "default": 0.1}
})");
SGD_REGISTER_CREATORS("model_created", sgd::operator_from_creators([](const nlohmann::json&) {
                        return torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(784, 10));
                      }),
                      "{}");
SGD_REGISTER_CREATORS("loss_created",
                      sgd::operator_from_creators(make_net, sgd::by_job,
                                                  [](const at::Tensor& output, const at::Tensor& target) {
                                                    return torch::cross_entropy_loss(output, target) * 2;
                                                  }),
                      R"({"hidden": {"type": "integer", "default": 16}})");
SGD_REGISTER_CREATORS("list_created", sgd::operator_from_creators(make_list), "{}");
SGD_REGISTER_CREATORS("listed_optimizer_created", sgd::operator_from_creators(make_list, make_listed_optimizer), "{}");
