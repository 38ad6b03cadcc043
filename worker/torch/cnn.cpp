// The convolutional network. Its convolutional part is one autograd function whose values have
// their channels last from end to end, where oneDNN and the pooling are vectorised; LibTorch's
// separate operators convert layouts between them, which costs as much as the arithmetic of the
// smaller layers. Parameters keep PyTorch's layout and names.
#include "worker/torch/autocast.hpp"
#include "worker/torch/first_convolution.hpp"
#include "worker/torch/linear_function.hpp"
#include "worker/torch/models.hpp"
#include "worker/torch/relu_max_pool.hpp"

namespace sgd::worker {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr at::MemoryFormat kChannelsLast = at::MemoryFormat::ChannelsLast;
constexpr std::int64_t kKernel = 3;
const std::vector<std::int64_t> kOne{1, 1};
const std::vector<std::int64_t> kNone{0, 0};

PoolShape pool_shape(const at::Tensor& image) {
  return {image.size(2), image.size(3), image.size(1)};
}

/// n x channels x rows x columns with channels last -> n x (channels * rows/2 * columns/2).
at::Tensor pool(const at::Tensor& images, at::Tensor* origins) {
  const PoolShape shape = pool_shape(images);
  const std::int64_t count = images.size(0);
  at::Tensor out = at::empty({count, shape.pooled_count()}, images.options().memory_format(std::nullopt));
  at::Tensor scratch = at::empty({shape.pooled_count()}, out.options());
  if (origins != nullptr) *origins = at::empty({count, shape.pooled_count()}, out.options().dtype(at::kInt));
  std::int32_t* origin = origins != nullptr ? origins->data_ptr<std::int32_t>() : nullptr;
  const float* from = images.data_ptr<float>();
  float* to = out.data_ptr<float>();
  float* work = scratch.data_ptr<float>();
  for (std::int64_t i = 0; i < count; ++i) {
    relu_max_pool(shape, from + i * shape.count(), to + i * shape.pooled_count(),
                  origin != nullptr ? origin + i * shape.pooled_count() : nullptr, work);
  }
  return out;
}

/// The gradient of pool()'s images; `sums` gets its sum per channel: the gradient of the bias before it.
at::Tensor unpool(const at::Tensor& gradient, const at::Tensor& origins, const std::vector<std::int64_t>& image_sizes,
                  at::Tensor* sums) {
  at::Tensor images = at::empty(image_sizes, gradient.options().memory_format(kChannelsLast));
  const PoolShape shape = pool_shape(images);
  at::Tensor scratch = at::empty({shape.pooled_count()}, gradient.options());
  *sums = at::zeros({shape.channels}, gradient.options());
  for (std::int64_t i = 0; i < images.size(0); ++i) {
    relu_max_pool_backward(shape, gradient.data_ptr<float>() + i * shape.pooled_count(),
                           origins.data_ptr<std::int32_t>() + i * shape.pooled_count(),
                           images.data_ptr<float>() + i * shape.count(), sums->data_ptr<float>(),
                           scratch.data_ptr<float>());
  }
  return images;
}

/// Images of one channel have a kernel of their own for the first layer.
bool has_first_convolution(const at::Tensor& images, const at::Tensor& weight) {
  return images.size(1) == 1 && weight.size(0) == FirstConvolution::kChannels;
}

/// relu(conv(images)), channels last.
at::Tensor first_layer(const at::Tensor& images, const at::Tensor& weight, const at::Tensor& bias) {
  if (!has_first_convolution(images, weight)) return at::conv2d(images, weight, bias).relu_().contiguous(kChannelsLast);
  const FirstConvolution convolution(images.size(2), images.size(3));
  at::Tensor out =
      at::empty({images.size(0), FirstConvolution::kChannels, convolution.out_rows(), convolution.out_columns()},
                images.options().memory_format(kChannelsLast));
  for (std::int64_t i = 0; i < images.size(0); ++i) {
    convolution.forward(images.data_ptr<float>() + i * convolution.image_count(), weight.data_ptr<float>(),
                        bias.data_ptr<float>(), out.data_ptr<float>() + i * convolution.out_count());
  }
  return out;
}

/// Gradients of the images (if wanted), the weight and the bias.
variable_list first_layer_backward(const at::Tensor& images, const at::Tensor& weight, const at::Tensor& out,
                                   const at::Tensor& out_gradient, bool wants_images) {
  if (wants_images || !has_first_convolution(images, weight)) {
    const at::Tensor gradient = at::threshold_backward(out_gradient, out, 0);
    auto [to_images, to_weight, to_bias] =
        at::convolution_backward(gradient, images, weight, at::IntArrayRef(weight.size(0)), kOne, kNone, kOne, false,
                                 kNone, 1, {wants_images, true, true});
    return {to_images, to_weight, to_bias};
  }
  const FirstConvolution convolution(images.size(2), images.size(3));
  at::Tensor to_weight = at::zeros_like(weight);
  at::Tensor to_bias = at::zeros({weight.size(0)}, weight.options());
  for (std::int64_t i = 0; i < images.size(0); ++i) {
    convolution.backward(images.data_ptr<float>() + i * convolution.image_count(),
                         out.data_ptr<float>() + i * convolution.out_count(),
                         out_gradient.data_ptr<float>() + i * convolution.out_count(), to_weight.data_ptr<float>(),
                         to_bias.data_ptr<float>());
  }
  return {at::Tensor(), to_weight, to_bias};
}

/// conv, ReLU, conv, max-pool, ReLU, flatten.
struct Features : torch::autograd::Function<Features> {
  static at::Tensor compute(const at::Tensor& images, const at::Tensor& weight1, const at::Tensor& bias1,
                            const at::Tensor& weight2, const at::Tensor& bias2, at::Tensor* hidden,
                            at::Tensor* origins) {
    *hidden = first_layer(images, weight1, bias1);
    return pool(at::conv2d(*hidden, weight2, bias2).contiguous(kChannelsLast), origins);
  }

  static at::Tensor forward(AutogradContext* context, const at::Tensor& features, const at::Tensor& weight1,
                            const at::Tensor& bias1, const at::Tensor& weight2, const at::Tensor& bias2) {
    const at::Tensor images = features.contiguous();
    at::Tensor hidden;
    at::Tensor origins;
    const at::Tensor out = compute(images, weight1, bias1, weight2, bias2, &hidden, &origins);
    context->save_for_backward({images, weight1, weight2, hidden, origins});
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& images = saved[0];
    const at::Tensor& weight2 = saved[2];
    const at::Tensor& hidden = saved[3];
    const std::vector<std::int64_t> sizes{hidden.size(0), weight2.size(0), hidden.size(2) - kKernel + 1,
                                          hidden.size(3) - kKernel + 1};
    at::Tensor to_bias2;
    const at::Tensor to_second = unpool(gradients[0].contiguous(), saved[4], sizes, &to_bias2);
    auto [to_hidden, to_weight2, none] =
        at::convolution_backward(to_second, hidden, weight2, at::IntArrayRef(weight2.size(0)), kOne, kNone, kOne, false,
                                 kNone, 1, {true, true, false});
    const variable_list first = first_layer_backward(images, saved[1], hidden, to_hidden.contiguous(kChannelsLast),
                                                     context->needs_input_grad(0));
    return {first[0], first[1], first[2], to_weight2, to_bias2};
  }
};

class Cnn : public Model {
 public:
  struct Sizes {
    std::int64_t image_channels;
    std::vector<std::int64_t> channels;  // Of the two convolutions.
    std::int64_t pooled_pixels;
    std::int64_t hidden;
    std::int64_t outputs;
  };

  explicit Cnn(const Sizes& sizes)
      : conv1_(torch::nn::Conv2dOptions(sizes.image_channels, sizes.channels[0], kKernel)),
        conv2_(torch::nn::Conv2dOptions(sizes.channels[0], sizes.channels[1], kKernel)),
        fc1_(sizes.channels[1] * sizes.pooled_pixels, sizes.hidden),
        fc2_(sizes.hidden, sizes.outputs) {
    register_module("conv1", conv1_);
    register_module("conv2", conv2_);
    register_module("fc1", fc1_);
    register_module("fc2", fc2_);
  }

  at::Tensor forward(const at::Tensor& features) override {
    at::Tensor values = convolutions(features);
    values = linear(values, fc1_->weight, fc1_->bias, true);
    return linear(values, fc2_->weight, fc2_->bias, false);
  }

 private:
  at::Tensor convolutions(const at::Tensor& features) {
    if (is_autocast() || !features.is_cpu()) return by_operators(features);
    if (at::GradMode::is_enabled())
      return Features::apply(features, conv1_->weight, conv1_->bias, conv2_->weight, conv2_->bias);
    at::Tensor hidden;
    return Features::compute(features.contiguous(), conv1_->weight, conv1_->bias, conv2_->weight, conv2_->bias, &hidden,
                             nullptr);
  }

  /// The same by LibTorch's operators, for which types are chosen, and which GPUs have.
  at::Tensor by_operators(const at::Tensor& features) {
    const at::Tensor images = features.contiguous(kChannelsLast);
    const at::Tensor hidden = at::conv2d(images, conv1_->weight, conv1_->bias).relu();
    return at::max_pool2d(at::conv2d(hidden, conv2_->weight, conv2_->bias), 2).relu().flatten(1);
  }

  torch::nn::Conv2d conv1_;
  torch::nn::Conv2d conv2_;
  torch::nn::Linear fc1_;
  torch::nn::Linear fc2_;
};

}  // namespace

std::shared_ptr<Model> make_cnn(const nlohmann::json& settings, const SampleShape& sample) {
  constexpr std::int64_t kBorder = 2 * (kKernel - 1);  // Two convolutions without padding.
  if (sample.features.size() != 3 || sample.features[1] < kBorder + 2 || sample.features[2] < kBorder + 2)
    throw ConfigurationError("model \"cnn\" needs images of at least 6 x 6 pixels");
  Cnn::Sizes sizes;
  sizes.image_channels = sample.features[0];
  sizes.channels = settings.value("channels", std::vector<std::int64_t>{32, 64});
  if (sizes.channels.size() != 2) throw ConfigurationError("model \"cnn\" has two numbers of channels");
  sizes.pooled_pixels = ((sample.features[1] - kBorder) / 2) * ((sample.features[2] - kBorder) / 2);
  sizes.hidden = settings.value("hidden", std::int64_t{128});
  sizes.outputs = settings.value("outputs", sample.outputs);
  return std::make_shared<Cnn>(sizes);
}

}  // namespace sgd::worker
