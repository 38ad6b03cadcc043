// LeNet-5 with ReLU and max-pools: conv1, conv2, fc1, fc2, ... With dropout it is the network that the MNIST examples
// of PyTorch, Horovod and RaySGD share.
#include "worker/builtin/models/factories.hpp"

namespace sgd::builtin {
namespace {

constexpr std::int64_t kKernel = 5;
constexpr std::int64_t kImageSide = 16;  // Less leaves nothing behind the second pool.

/// Of an image's side, behind both convolutions and pools.
std::int64_t pooled_side(std::int64_t side) {
  return ((side - kKernel + 1) / 2 - kKernel + 1) / 2;
}

class LeNet : public Model {
 public:
  LeNet(std::int64_t image_channels, const std::vector<std::int64_t>& channels, const std::vector<std::int64_t>& widths,
        double dropout)
      : conv1_(register_module("conv1", torch::nn::Conv2d(image_channels, channels.at(0), kKernel))),
        conv2_(register_module("conv2", torch::nn::Conv2d(channels.at(0), channels.at(1), kKernel))),
        dropout_(dropout) {
    for (std::size_t i = 0; i + 1 < widths.size(); ++i)
      layers_.push_back(register_module("fc" + std::to_string(i + 1), torch::nn::Linear(widths[i], widths[i + 1])));
  }

  at::Tensor forward(const at::Tensor& features) override {
    at::Tensor values = at::relu(at::max_pool2d(conv1_->forward(features), 2));
    values = conv2_->forward(values);
    if (dropout_ > 0) values = at::feature_dropout(values, dropout_, is_training());
    values = at::relu(at::max_pool2d(values, 2)).flatten(1);
    for (std::size_t i = 0; i + 1 < layers_.size(); ++i) values = at::relu(layers_[i]->forward(values));
    if (dropout_ > 0) values = at::dropout(values, dropout_, is_training());
    return layers_.back()->forward(values);
  }

 private:
  torch::nn::Conv2d conv1_;
  torch::nn::Conv2d conv2_;
  std::vector<torch::nn::Linear> layers_;
  double dropout_;
};

}  // namespace

std::shared_ptr<Model> make_lenet(const nlohmann::json& settings, const SampleShape& sample) {
  const std::int64_t colours = image_channels("lenet", sample, kImageSide);
  const auto channels = settings.value("channels", std::vector<std::int64_t>{6, 16});
  std::vector<std::int64_t> widths{channels.at(1) * pooled_side(sample.features[1]) * pooled_side(sample.features[2])};
  for (const std::int64_t hidden : settings.value("hidden", std::vector<std::int64_t>{120, 84}))
    widths.push_back(hidden);
  widths.push_back(settings.value("outputs", sample.outputs));
  return std::make_shared<LeNet>(colours, channels, widths, settings.value("dropout", 0.0));
}

}  // namespace sgd::builtin
