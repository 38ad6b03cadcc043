// Two networks that train against each other, each with an optimizer of its own: a deep convolutional GAN.
#include <sgd/sgd.hpp>

namespace {

namespace nn = torch::nn;
namespace optim = torch::optim;

nn::Sequential make_generator(std::int64_t latent, std::int64_t features) {
  const auto up = [](std::int64_t in, std::int64_t out, int kernel, int stride, int padding) {
    return nn::ConvTranspose2d(nn::ConvTranspose2dOptions(in, out, kernel).stride(stride).padding(padding).bias(false));
  };
  return nn::Sequential(up(latent, 4 * features, 7, 1, 0), nn::BatchNorm2d(4 * features), nn::ReLU(),        // 7 x 7
                        up(4 * features, 2 * features, 4, 2, 1), nn::BatchNorm2d(2 * features), nn::ReLU(),  // 14 x 14
                        up(2 * features, 1, 4, 2, 1), nn::Tanh());                                           // 28 x 28
}

nn::Sequential make_discriminator(std::int64_t features) {
  const auto down = [](std::int64_t in, std::int64_t out, int kernel, int stride, int padding) {
    return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(padding).bias(false));
  };
  const auto leaky = [] { return nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)); };
  return nn::Sequential(down(1, 2 * features, 4, 2, 1), leaky(),                                            // 14 x 14
                        down(2 * features, 4 * features, 4, 2, 1), nn::BatchNorm2d(4 * features), leaky(),  // 7 x 7
                        down(4 * features, 1, 7, 1, 0), nn::Flatten());
}

void initialize(nn::Sequential& network) {
  const at::NoGradGuard no_gradients;
  for (const auto& item : network->named_parameters()) {
    if (item.value().dim() > 1) nn::init::normal_(item.value(), 0.0, 0.02);
  }
}

at::Tensor loss_of(const at::Tensor& output, float wanted) {
  return at::binary_cross_entropy_with_logits(output, at::full_like(output, wanted));
}

class Dcgan : public sgd::TrainingOperator {
 public:
  void setup(sgd::Setup& setup) override {
    latent_ = config().at("latent");
    generator_ = setup.model("generator", make_generator(latent_, config().at("features")));
    discriminator_ = setup.model("discriminator", make_discriminator(config().at("features")));
    initialize(generator_);
    initialize(discriminator_);
    const auto options = optim::AdamOptions(config().at("lr").get<double>()).betas({0.5, 0.999});
    generator_optimizer_ = setup.optimizer("generator", optim::Adam(generator_->parameters(), options));
    discriminator_optimizer_ = setup.optimizer("discriminator", optim::Adam(discriminator_->parameters(), options));
  }

  sgd::BatchMetrics train_batch(const sgd::Batch& batch, sgd::Step& step) override {
    const at::Tensor real = batch.features * 2 - 1;
    const at::Tensor fake = generator_->forward(at::randn({real.size(0), latent_, 1, 1}));

    const at::Tensor loss_d =
        loss_of(discriminator_->forward(real), 1) + loss_of(discriminator_->forward(fake.detach()), 0);
    step.backward(loss_d);
    step.update(*discriminator_optimizer_);  // The mean over all workers, then Adam.

    const at::Tensor loss_g = loss_of(discriminator_->forward(fake), 1);
    step.backward(loss_g, *generator_optimizer_);  // The discriminator's gradients are not needed.
    step.update(*generator_optimizer_);
    return {real.size(0), {{"loss_d", loss_d.item<double>()}, {"loss_g", loss_g.item<double>()}}};
  }

  sgd::BatchMetrics validate_batch(const sgd::Batch& batch, const sgd::BatchInfo&) override {
    const at::Tensor real = torch::sigmoid(discriminator_->forward(batch.features * 2 - 1));
    const at::Tensor made = generator_->forward(at::randn({batch.features.size(0), latent_, 1, 1}));
    const at::Tensor fake = torch::sigmoid(discriminator_->forward(made));
    return {batch.features.size(0),
            {{"real_is_real", real.mean().item<double>()}, {"fake_is_real", fake.mean().item<double>()}}};
  }

 private:
  std::int64_t latent_ = 0;
  nn::Sequential generator_{nullptr}, discriminator_{nullptr};
  std::shared_ptr<optim::Optimizer> generator_optimizer_, discriminator_optimizer_;
};

}  // namespace

SGD_REGISTER_OPERATOR("dcgan", Dcgan, R"({
  "latent": {"type": "integer", "minimum": 1, "default": 100},
  "features": {"type": "integer", "minimum": 1, "maximum": 256, "default": 32},
  "lr": {"type": "number", "exclusiveMinimum": 0, "default": 0.0002}
})");
