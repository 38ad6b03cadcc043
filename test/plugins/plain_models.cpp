// The built-in mlp and cnn as users write them: LibTorch's own modules and operations.
#include <sgd/sgd.hpp>

namespace {

namespace nn = torch::nn;

class Plain : public sgd::Model {
 public:
  explicit Plain(nn::Sequential layers) : layers_(register_module("layers", std::move(layers))) {}
  at::Tensor forward(const at::Tensor& features) override { return layers_->forward(features); }

 private:
  nn::Sequential layers_;
};

std::shared_ptr<sgd::Model> make_mlp(const nlohmann::json&, const sgd::SampleShape&) {
  return std::make_shared<Plain>(nn::Sequential(nn::Flatten(), nn::Linear(784, 256), nn::ReLU(), nn::Linear(256, 128),
                                                nn::ReLU(), nn::Linear(128, 10)));
}

std::shared_ptr<sgd::Model> make_cnn(const nlohmann::json&, const sgd::SampleShape&) {
  return std::make_shared<Plain>(nn::Sequential(
      nn::Conv2d(nn::Conv2dOptions(1, 32, 3)), nn::ReLU(), nn::Conv2d(nn::Conv2dOptions(32, 64, 3)), nn::ReLU(),
      nn::MaxPool2d(2), nn::Flatten(), nn::Linear(64 * 12 * 12, 128), nn::ReLU(), nn::Linear(128, 10)));
}

}  // namespace

SGD_REGISTER_MODEL("plain_mlp", make_mlp, "{}");
SGD_REGISTER_MODEL("plain_cnn", make_cnn, "{}");
