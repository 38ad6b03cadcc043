// A small fully convolutional network: stages that halve the image, a head that gives outputs for each place, as
// torchvision's FCNHead, and bilinear interpolation back to the image's size.
#include <algorithm>

#include "worker/builtin/models/factories.hpp"

namespace sgd::builtin {
namespace {

torch::nn::Conv2d padded(std::int64_t inputs, std::int64_t outputs, std::int64_t stride) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(inputs, outputs, 3).stride(stride).padding(1).bias(false));
}

class HalvingStage : public torch::nn::Module {
 public:
  HalvingStage(std::int64_t inputs, std::int64_t outputs)
      : conv1_(register_module("conv1", padded(inputs, outputs, 2))),
        bn1_(register_module("bn1", torch::nn::BatchNorm2d(outputs))),
        conv2_(register_module("conv2", padded(outputs, outputs, 1))),
        bn2_(register_module("bn2", torch::nn::BatchNorm2d(outputs))) {}

  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor values = at::relu(bn1_->forward(conv1_->forward(input)));
    return at::relu(bn2_->forward(conv2_->forward(values)));
  }

 private:
  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  torch::nn::Conv2d conv2_;
  torch::nn::BatchNorm2d bn2_;
};

class Fcn : public Model {
 public:
  Fcn(std::int64_t image_channels, const std::vector<std::int64_t>& channels, std::int64_t outputs, double dropout) {
    const auto backbone = std::make_shared<torch::nn::Module>();
    std::int64_t inputs = image_channels;
    for (const std::int64_t next : channels) {
      stages_.push_back(
          backbone->register_module(std::to_string(stages_.size()), std::make_shared<HalvingStage>(inputs, next)));
      inputs = next;
    }
    register_module("backbone", backbone);
    const std::int64_t head = std::max<std::int64_t>(1, inputs / 4);
    classifier_ = register_module(
        "classifier", torch::nn::Sequential(padded(inputs, head, 1), torch::nn::BatchNorm2d(head), torch::nn::ReLU(),
                                            torch::nn::Dropout(dropout), torch::nn::Conv2d(head, outputs, 1)));
  }

  at::Tensor forward(const at::Tensor& features) override {
    at::Tensor values = features;
    for (const std::shared_ptr<HalvingStage>& stage : stages_) values = stage->forward(values);
    values = classifier_->forward(values);
    const std::vector<std::int64_t> size{features.size(2), features.size(3)};
    return at::upsample_bilinear2d(values, size, false);
  }

 private:
  std::vector<std::shared_ptr<HalvingStage>> stages_;
  torch::nn::Sequential classifier_ = nullptr;
};

}  // namespace

std::shared_ptr<Model> make_fcn(const nlohmann::json& settings, const SampleShape& sample) {
  return std::make_shared<Fcn>(image_channels("fcn", sample, 1),
                               settings.value("channels", std::vector<std::int64_t>{32, 64, 128}),
                               settings.value("outputs", sample.outputs), settings.value("dropout", 0.1));
}

}  // namespace sgd::builtin
