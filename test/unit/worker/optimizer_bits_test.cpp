// The bits of weights and state after fifty steps, as they were when the first runs were trained: a run that goes on
// under a newer worker goes on bit for bit. And those of the others, which CPUs of other vector widths must have, too:
// ranks exchange gradients alone.

#include <catch2/catch.hpp>

#include <cstring>

#include "worker/core/step_optimizer.hpp"

namespace sgd::worker {
namespace {

/// Exact fractions from -1 to 1, in a fixed order.
class Fractions {
 public:
  float next() {
    state_ = state_ * 1664525u + 1013904223u;
    return static_cast<float>(static_cast<int>(state_ >> 8) - (1 << 23)) / static_cast<float>(1 << 23);
  }

 private:
  std::uint32_t state_ = 1;
};

std::uint64_t digest_of(std::span<const float> values, std::uint64_t digest) {
  for (const float value : values) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    digest = (digest ^ bits) * 0x100000001b3;
  }
  return digest;
}

std::uint64_t trained_bits(const job::Optimizer& settings) {
  constexpr std::size_t kParameters = 67;
  const auto optimizer = make_step_optimizer(settings, kParameters);
  Fractions fractions;
  std::vector<float> params(kParameters), grads(kParameters);
  for (float& one : params) one = fractions.next();
  for (int step = 0; step < 50; ++step) {
    for (float& one : grads) one = fractions.next();
    optimizer->step(params, grads, 0.05 / (1 + step % 7), 0.25f);
  }
  std::uint64_t digest = digest_of(params, 0xcbf29ce484222325);
  for (const OptimizerBuffer& buffer : optimizer->buffers()) digest = digest_of(buffer.values, digest);
  return digest;
}

struct KnownBits {
  const char* type;
  double momentum, dampening;
  bool nesterov;
  double weight_decay;
  std::uint64_t digest;
};

}  // namespace

TEST_CASE("optimizers: the bits of SGD, Adam and AdamW are those of the first runs") {
  for (const KnownBits& row : {
           KnownBits{"sgd", 0, 0, false, 0, 0x6cb2aac3eaa35137},
           KnownBits{"sgd", 0, 0, false, 0.1, 0x3565cc70012394cc},
           KnownBits{"sgd", 0.9, 0, false, 0, 0xcc09e71881b42b6b},
           KnownBits{"sgd", 0.9, 0.5, false, 0.01, 0x083aff46347c5da1},
           KnownBits{"sgd", 0.9, 0, true, 0.01, 0x336dad077597bd20},
           KnownBits{"adam", 0, 0, false, 0, 0x6730d6dcc7d90fea},
           KnownBits{"adam", 0, 0, false, 0.1, 0xe28b55449af22e73},
           KnownBits{"adamw", 0, 0, false, 0.1, 0xf3c95f1ba02b1d47},
       }) {
    CAPTURE(row.type, row.momentum, row.dampening, row.nesterov, row.weight_decay);
    job::Optimizer settings;
    settings.type = row.type;
    settings.momentum = row.momentum;
    settings.dampening = row.dampening;
    settings.nesterov = row.nesterov;
    settings.weight_decay = row.weight_decay;
    CHECK(trained_bits(settings) == row.digest);
  }
}

TEST_CASE("optimizers: RMSprop, Adagrad and AMSGrad have the same bits on every CPU") {
  struct Row {
    const char* type;
    double momentum;
    bool centered;
    std::uint64_t digest;
  };
  for (const Row& row : {
           Row{"rmsprop", 0, false, 0xc4d904a376942d25},
           Row{"rmsprop", 0.9, false, 0x6b96ede70b308e4a},
           Row{"rmsprop", 0, true, 0xccdc8b276e07e7f4},
           Row{"rmsprop", 0.9, true, 0xa422401c24558cee},
           Row{"adagrad", 0, false, 0xadfb8a155d5c9764},
           Row{"adam", 0, false, 0xa963501bff76e414},
       }) {
    CAPTURE(row.type, row.momentum, row.centered);
    job::Optimizer settings;
    settings.type = row.type;
    settings.momentum = row.momentum;
    settings.centered = row.centered;
    settings.amsgrad = settings.type == "adam";
    settings.weight_decay = 0.1;
    CHECK(trained_bits(settings) == row.digest);
  }
}

}  // namespace sgd::worker
