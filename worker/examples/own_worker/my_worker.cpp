// A worker of one's own: a program that trains in place of sgd-worker, with a model, an optimizer and a loss that
// RaySGD's creators make.
#include <sgd/main.hpp>

namespace {

struct Net : torch::nn::Module {
  explicit Net(std::int64_t hidden)
      : first(register_module("first", torch::nn::Linear(784, hidden))),
        last(register_module("last", torch::nn::Linear(hidden, 10))) {}

  at::Tensor forward(const at::Tensor& images) { return last->forward(torch::relu(first->forward(images.flatten(1)))); }

  torch::nn::Linear first, last;
};

std::shared_ptr<Net> model_creator(const nlohmann::json& config) {
  return std::make_shared<Net>(config.at("hidden").get<std::int64_t>());
}

torch::optim::SGD optimizer_creator(Net& net, const nlohmann::json& config) {
  return torch::optim::SGD(net.parameters(), torch::optim::SGDOptions(config.at("lr")).momentum(0.9));
}

at::Tensor loss(const at::Tensor& output, const at::Tensor& target) {
  return torch::cross_entropy_loss(output, target);
}

}  // namespace

SGD_REGISTER_CREATORS("created", sgd::operator_from_creators(model_creator, optimizer_creator, loss), R"({
  "hidden": {"type": "integer", "minimum": 1, "default": 128},
  "lr": {"type": "number", "exclusiveMinimum": 0, "default": 0.05}
})");

int main(int argc, char** argv) {
  return sgd::worker_main(argc, argv);
}
