// Residual networks. Modules have torchvision's names and are made in its order, so that a seed gives its first values;
// the "cifar" stem is the one of networks for images of 32 x 32 pixels.
#include "worker/builtin/models/factories.hpp"

namespace sgd::builtin {
namespace {

struct BlockShape {
  std::int64_t inputs = 0;
  std::int64_t planes = 0;
  std::int64_t stride = 1;
};

torch::nn::Conv2d convolution(std::int64_t inputs, std::int64_t outputs, std::int64_t kernel, std::int64_t stride = 1) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(inputs, outputs, kernel).stride(stride).padding(kernel / 2).bias(false));
}

/// What is added to a block's input; the sum goes through ReLU.
class Block : public torch::nn::Module {
 public:
  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor inner = residual(input);
    return at::relu(inner + (downsample_ ? downsample_->forward(input) : input));
  }

 protected:
  virtual at::Tensor residual(const at::Tensor& input) = 0;

  /// Where input and output have other sizes. Registered behind the block's own modules, as in torchvision.
  void add_downsample(const BlockShape& shape, std::int64_t outputs) {
    if (shape.stride == 1 && shape.inputs == outputs) return;
    downsample_ = register_module(
        "downsample",
        torch::nn::Sequential(convolution(shape.inputs, outputs, 1, shape.stride), torch::nn::BatchNorm2d(outputs)));
  }

 private:
  torch::nn::Sequential downsample_ = nullptr;
};

class BasicBlock : public Block {
 public:
  static constexpr std::int64_t kExpansion = 1;

  explicit BasicBlock(const BlockShape& shape)
      : conv1_(register_module("conv1", convolution(shape.inputs, shape.planes, 3, shape.stride))),
        bn1_(register_module("bn1", torch::nn::BatchNorm2d(shape.planes))),
        conv2_(register_module("conv2", convolution(shape.planes, shape.planes, 3))),
        bn2_(register_module("bn2", torch::nn::BatchNorm2d(shape.planes))) {
    add_downsample(shape, shape.planes * kExpansion);
  }

 protected:
  at::Tensor residual(const at::Tensor& input) override {
    const at::Tensor values = at::relu(bn1_->forward(conv1_->forward(input)));
    return bn2_->forward(conv2_->forward(values));
  }

 private:
  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  torch::nn::Conv2d conv2_;
  torch::nn::BatchNorm2d bn2_;
};

/// The stride is that of the 3 x 3 convolution, as torchvision has it.
class Bottleneck : public Block {
 public:
  static constexpr std::int64_t kExpansion = 4;

  explicit Bottleneck(const BlockShape& shape)
      : conv1_(register_module("conv1", convolution(shape.inputs, shape.planes, 1))),
        bn1_(register_module("bn1", torch::nn::BatchNorm2d(shape.planes))),
        conv2_(register_module("conv2", convolution(shape.planes, shape.planes, 3, shape.stride))),
        bn2_(register_module("bn2", torch::nn::BatchNorm2d(shape.planes))),
        conv3_(register_module("conv3", convolution(shape.planes, shape.planes * kExpansion, 1))),
        bn3_(register_module("bn3", torch::nn::BatchNorm2d(shape.planes * kExpansion))) {
    add_downsample(shape, shape.planes * kExpansion);
  }

 protected:
  at::Tensor residual(const at::Tensor& input) override {
    at::Tensor values = at::relu(bn1_->forward(conv1_->forward(input)));
    values = at::relu(bn2_->forward(conv2_->forward(values)));
    return bn3_->forward(conv3_->forward(values));
  }

 private:
  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  torch::nn::Conv2d conv2_;
  torch::nn::BatchNorm2d bn2_;
  torch::nn::Conv2d conv3_;
  torch::nn::BatchNorm2d bn3_;
};

/// Blocks of one width, one behind the other: "0", "1", ...
class Stage : public torch::nn::Module {
 public:
  template <class Kind>
  void add(const BlockShape& shape) {
    blocks_.push_back(register_module(std::to_string(blocks_.size()), std::make_shared<Kind>(shape)));
  }

  at::Tensor forward(at::Tensor values) {
    for (const std::shared_ptr<Block>& block : blocks_) values = block->forward(values);
    return values;
  }

 private:
  std::vector<std::shared_ptr<Block>> blocks_;
};

struct ResNetSizes {
  std::int64_t image_channels = 3;
  bool has_cifar_stem = false;
  std::int64_t width = 64;
  std::vector<int> blocks;  ///< Of each stage.
  std::int64_t outputs = 10;
};

class ResNet : public Model {
 public:
  explicit ResNet(const ResNetSizes& sizes)
      : has_cifar_stem_(sizes.has_cifar_stem),
        conv1_(register_module("conv1", has_cifar_stem_ ? convolution(sizes.image_channels, sizes.width, 3)
                                                        : convolution(sizes.image_channels, sizes.width, 7, 2))),
        bn1_(register_module("bn1", torch::nn::BatchNorm2d(sizes.width))) {}

  template <class Kind>
  void add_stages(const ResNetSizes& sizes) {
    std::int64_t inputs = sizes.width;
    std::int64_t planes = sizes.width;
    for (const int count : sizes.blocks) {
      const auto stage = std::make_shared<Stage>();
      for (int i = 0; i < count; ++i) {
        stage->add<Kind>({inputs, planes, i == 0 && !stages_.empty() ? 2 : 1});
        inputs = planes * Kind::kExpansion;
      }
      stages_.push_back(register_module("layer" + std::to_string(stages_.size() + 1), stage));
      planes *= 2;
    }
    fc_ = register_module("fc", torch::nn::Linear(inputs, sizes.outputs));
  }

  /// As torchvision: behind the defaults, which it draws, too.
  void draw_convolutions() {
    for (const auto& module : modules()) {
      if (const auto* found = module->as<torch::nn::Conv2d>())
        torch::nn::init::kaiming_normal_(found->weight, 0, torch::kFanOut, torch::kReLU);
    }
  }

  at::Tensor forward(const at::Tensor& features) override {
    at::Tensor values = at::relu(bn1_->forward(conv1_->forward(features)));
    if (!has_cifar_stem_) values = at::max_pool2d(values, 3, 2, 1);
    for (const std::shared_ptr<Stage>& stage : stages_) values = stage->forward(values);
    return fc_->forward(at::adaptive_avg_pool2d(values, {1, 1}).flatten(1));
  }

 private:
  bool has_cifar_stem_;
  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  std::vector<std::shared_ptr<Stage>> stages_;
  torch::nn::Linear fc_ = nullptr;
};

}  // namespace

std::shared_ptr<Model> make_resnet(const nlohmann::json& settings, const SampleShape& sample) {
  const std::string type = settings.at("type");
  ResNetSizes sizes;
  sizes.image_channels = image_channels(type, sample, 1);
  sizes.has_cifar_stem = settings.value("stem", std::string("imagenet")) == "cifar";
  sizes.width = settings.value("width", std::int64_t{64});
  sizes.blocks = type == "resnet18" ? std::vector<int>{2, 2, 2, 2} : std::vector<int>{3, 4, 6, 3};
  sizes.outputs = settings.value("outputs", sample.outputs);
  const auto made = std::make_shared<ResNet>(sizes);
  if (type == "resnet50")
    made->add_stages<Bottleneck>(sizes);
  else
    made->add_stages<BasicBlock>(sizes);
  made->draw_convolutions();
  return made;
}

}  // namespace sgd::builtin
