#include "worker/core/step_optimizer.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>

#include "worker/core/linear_dataset.hpp"
#include "worker/core/sampler.hpp"

namespace sgd::worker {
namespace {

// PyTorch's documented formulas for one parameter, in double precision.
struct Reference {
  job::Optimizer s;
  double param = 0, buffer = 0, mean = 0, square = 0, largest = 0;
  int step = 0;

  void apply(double grad, double lr) {
    ++step;
    if (s.type == "rmsprop" || s.type == "adagrad") {
      grad += s.weight_decay * param;
      s.type == "rmsprop" ? apply_rmsprop(grad, lr) : apply_adagrad(grad, lr);
      return;
    }
    if (s.type == "sgd") {
      grad += s.weight_decay * param;
      if (s.momentum != 0) {
        buffer = step == 1 ? grad : s.momentum * buffer + (1 - s.dampening) * grad;
        grad = s.nesterov ? grad + s.momentum * buffer : buffer;
      }
      param -= lr * grad;
      return;
    }
    if (s.type == "adamw") {
      param -= lr * s.weight_decay * param;
    } else {
      grad += s.weight_decay * param;
    }
    mean = s.beta1 * mean + (1 - s.beta1) * grad;
    square = s.beta2 * square + (1 - s.beta2) * grad * grad;
    largest = std::max(largest, square);
    const double corrected_mean = mean / (1 - std::pow(s.beta1, step));
    const double corrected_square = (s.amsgrad ? largest : square) / (1 - std::pow(s.beta2, step));
    param -= lr * corrected_mean / (std::sqrt(corrected_square) + s.eps);
  }

  void apply_rmsprop(double grad, double lr) {
    square = s.alpha * square + (1 - s.alpha) * grad * grad;
    mean = s.alpha * mean + (1 - s.alpha) * grad;
    const double divisor = std::sqrt(s.centered ? square - mean * mean : square) + s.eps;
    buffer = s.momentum * buffer + grad / divisor;
    param -= lr * buffer;
  }

  void apply_adagrad(double grad, double lr) {
    if (step == 1) square = s.initial_accumulator_value;
    square += grad * grad;
    param -= lr / (1 + (step - 1) * s.lr_decay) * grad / (std::sqrt(square) + s.eps);
  }
};

job::Optimizer settings(const std::string& type, double momentum = 0, double dampening = 0, bool nesterov = false,
                        double weight_decay = 0) {
  job::Optimizer s;
  s.type = type;
  s.momentum = momentum;
  s.dampening = dampening;
  s.nesterov = nesterov;
  s.weight_decay = weight_decay;
  return s;
}

job::Optimizer amsgrad(const std::string& type) {
  job::Optimizer s = settings(type, 0, 0, false, 0.1);
  s.amsgrad = true;
  return s;
}

job::Optimizer rmsprop(double momentum, bool centered) {
  job::Optimizer s = settings("rmsprop", momentum, 0, false, 0.01);
  s.centered = centered;
  return s;
}

job::Optimizer adagrad(double lr_decay, double initial) {
  job::Optimizer s = settings("adagrad", 0, 0, false, 0.01);
  s.lr_decay = lr_decay;
  s.initial_accumulator_value = initial;
  s.eps = 1e-10;
  return s;
}

const std::vector<job::Optimizer> kCases = {
    settings("sgd"),
    settings("sgd", 0, 0, false, 0.1),
    settings("sgd", 0.9),
    settings("sgd", 0.9, 0.5, false, 0.01),
    settings("sgd", 0.9, 0, true, 0.01),
    settings("adam"),
    settings("adam", 0, 0, false, 0.1),
    settings("adamw", 0, 0, false, 0.1),
    amsgrad("adam"),
    amsgrad("adamw"),
    rmsprop(0, false),
    rmsprop(0.9, false),
    rmsprop(0, true),
    rmsprop(0.9, true),
    adagrad(0, 0),
    adagrad(0.1, 0.5),
};

TEST_CASE("optimizers: ten steps agree with PyTorch's formulas in double precision") {
  for (const job::Optimizer& s : kCases) {
    for (const std::size_t count : {1ul, 15ul, 64ul, 1003ul}) {
      CAPTURE(s.type, s.momentum, s.nesterov, s.weight_decay, count);
      const auto optimizer = make_step_optimizer(s, count);
      std::vector<float> params(count), grads(count);
      std::vector<Reference> reference(count);
      for (std::size_t i = 0; i < count; ++i) {
        params[i] = static_cast<float>(std::cos(static_cast<double>(i)));
        reference[i].s = s;
        reference[i].param = static_cast<double>(params[i]);
      }
      for (int step = 0; step < 10; ++step) {
        const double lr = 0.05 / (1 + step);
        for (std::size_t i = 0; i < count; ++i) {
          grads[i] = static_cast<float>(std::sin(static_cast<double>(i) * 3 + step));
          reference[i].apply(static_cast<double>(grads[i]) * 0.25, lr);  // Scale: the sum of four ranks.
        }
        optimizer->step(params, grads, lr, 0.25f);
      }
      CHECK(optimizer->steps() == 10);
      double worst = 0;
      for (std::size_t i = 0; i < count; ++i) {
        worst = std::max(worst, std::abs(static_cast<double>(params[i]) - reference[i].param));
      }
      CHECK(worst < 2e-6);
    }
  }
}

TEST_CASE("optimizers: values worked out by hand") {
  std::vector<float> params = {1.0f};
  const std::vector<float> grads = {0.5f};
  const auto sgd = make_step_optimizer(settings("sgd", 0.5, 0.5), 1);
  sgd->step(params, grads, 0.5, 1.0f);  // The first buffer is the gradient, without dampening: 0.5.
  CHECK(params[0] == 0.75f);
  CHECK(sgd->buffers()[0].values[0] == 0.5f);
  sgd->step(params, grads, 0.5, 1.0f);  // 0.5*0.5 + 0.5*0.5 = 0.5.
  CHECK(params[0] == 0.5f);
  sgd->step(params, grads, 0.5, 2.0f);  // 0.5*0.5 + 0.5*1 = 0.75.
  CHECK(params[0] == 0.125f);
  std::vector<float> other = {1.0f};
  const auto adam = make_step_optimizer(settings("adam"), 1);
  adam->step(other, grads, 0.1, 1.0f);  // The first step of Adam is lr, whatever the gradient.
  CHECK(other[0] == Approx(0.9));
}

TEST_CASE("optimizers: centered RMSprop outlives a variance that rounding makes negative") {
  for (const double momentum : {0.0, 0.9}) {
    const auto optimizer = make_step_optimizer(rmsprop(momentum, true), 29);
    std::vector<float> params(29, 0.5f), grads(29);
    for (std::size_t i = 0; i < grads.size(); ++i) {
      grads[i] = static_cast<float>(static_cast<int>(i * 7 % 29) - 13) / 16 + 1.0f / 64;
    }
    job::Optimizer settings = rmsprop(momentum, true);
    settings.weight_decay = 0;
    settings.lr = 1e-12;
    bool was_negative = false;
    for (int step = 0; step < 1500; ++step) {
      optimizer->step(params, grads, settings, 1.0f);
      const auto squares = optimizer->buffers().front().values, means = optimizer->buffers().back().values;
      for (std::size_t i = 0; i < grads.size(); ++i) was_negative |= squares[i] - means[i] * means[i] < 0;
    }
    CHECK(was_negative);
    for (const float param : params) CHECK(std::isfinite(param));
  }
}

TEST_CASE("optimizers: going on from saved buffers and steps is bit-equal") {
  for (const job::Optimizer& s : kCases) {
    std::vector<float> straight = {0.1f, -0.2f, 0.3f}, resumed = straight;
    const std::vector<float> grads = {0.7f, 0.5f, -0.3f};
    const auto whole = make_step_optimizer(s, 3);
    const auto first = make_step_optimizer(s, 3);
    for (int i = 0; i < 3; ++i) {
      whole->step(straight, grads, 0.01, 0.5f);
      first->step(resumed, grads, 0.01, 0.5f);
    }
    const auto second = make_step_optimizer(s, 3);
    auto from = first->buffers(), to = second->buffers();
    REQUIRE(from.size() == to.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
      CHECK(from[i].name == to[i].name);
      std::copy(from[i].values.begin(), from[i].values.end(), to[i].values.begin());
    }
    second->set_steps(first->steps());
    for (int i = 0; i < 3; ++i) {
      whole->step(straight, grads, 0.01, 0.5f);
      second->step(resumed, grads, 0.01, 0.5f);
    }
    CHECK(std::memcmp(straight.data(), resumed.data(), 12) == 0);
  }
}

TEST_CASE("linear regression: RaySGD's data, sampler and SGD give the reference table") {
  struct Row {
    int world;
    std::int64_t batch;
    int epochs;
    double train_loss, val_loss, w, b;
  };
  const LinearDataset train(1000), validation(400);
  CHECK(train.x()[999] == 9.99f);
  CHECK(train.y()[0] == 5.0f);
  for (const Row& row : {Row{1, 32, 1, 13.30967, 4.36208, 2.36146, 1.38800},
                         {2, 16, 1, 13.30967, 4.36208, 2.36146, 1.38800},
                         {1, 32, 3, 1.64378, 2.89575, 2.29450, 2.05706},
                         {2, 32, 3, 2.73219, 4.11989, 2.35081, 1.49125},
                         {1, 4, 3, 0.07361, 0.18220, 2.07385, 4.26189}}) {
    const auto optimizer = make_step_optimizer(settings("sgd"), 2);
    std::vector<float> params = {0, 0};
    double loss = 0, samples = 0;
    for (int epoch = 1; epoch <= row.epochs; ++epoch) {
      const Sampler sampler(0, epoch, train.count(), row.world, false);
      loss = samples = 0;
      for (std::int64_t position = 0; sampler.batches_left(position, row.batch) > 0;) {
        std::vector<float> grads = {0, 0};
        for (int rank = 0; rank < row.world; ++rank) {
          std::vector<std::int64_t> indices;
          sampler.batch(position, rank, row.batch, indices);
          std::vector<float> x(indices.size()), y(indices.size());
          train.gather(indices, x.data(), y.data());
          const auto n = static_cast<float>(indices.size());
          for (std::size_t i = 0; i < x.size(); ++i) {
            const float error = params[0] * x[i] + params[1] - y[i];
            grads[0] += 2 * error * x[i] / n;
            grads[1] += 2 * error / n;
            loss += static_cast<double>(error) * static_cast<double>(error);
          }
          samples += static_cast<double>(n);
        }
        optimizer->step(params, grads, 0.01, 1.0f / static_cast<float>(row.world));
        position = sampler.advance(position, row.batch);
      }
    }
    double val_loss = 0;
    for (std::size_t i = 0; i < 400; ++i) {
      val_loss += std::pow(static_cast<double>(params[0] * validation.x()[i] + params[1] - validation.y()[i]), 2) / 400;
    }
    CAPTURE(row.world, row.batch, row.epochs);
    CHECK(loss / samples == Approx(row.train_loss).margin(1e-3));
    CHECK(val_loss == Approx(row.val_loss).margin(1e-3));
    CHECK(static_cast<double>(params[0]) == Approx(row.w).margin(1e-3));
    CHECK(static_cast<double>(params[1]) == Approx(row.b).margin(1e-3));
  }
}

}  // namespace
}  // namespace sgd::worker
