// Batch normalization over ranks that are processes, beside PyTorch's over one batch. The numbers come from
// data/make_sync_batch_norm_reference.py.
#include <algorithm>
#include <cstring>
#include <fstream>

#include <fmt/format.h>
#include <torch/torch.h>
#include <catch2/catch.hpp>

#include "common/json/nlohmann.hpp"
#include "test/unit/worker/rank_processes.hpp"
#include "test/unit/worker_torch/parity_data.hpp"
#include "worker/collective/factory.hpp"
#include "worker/torch/sync_batch_norm.hpp"

namespace sgd::worker::sync_batch_norm {
namespace {

using testing::expect;
using testing::Memory;
using testing::RankContext;
using testing::run_ranks;

constexpr int kSteps = 50;
constexpr double kRate = 0.05;
constexpr std::int64_t kSamples = 6;
constexpr std::int64_t kClasses = 3;

struct Net : torch::nn::Module {
  Net() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("fc1", fc1);
    register_module("plain", plain);
    register_module("fc2", fc2);
  }
  at::Tensor forward(const at::Tensor& images) {
    const at::Tensor hidden = torch::relu(norm->forward(conv->forward(images)));
    return fc2->forward(torch::tanh(plain->forward(fc1->forward(hidden.flatten(1)))));
  }
  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(2, 4, 3)};
  torch::nn::BatchNorm2d norm{4};
  torch::nn::Linear fc1{36, 5};
  torch::nn::BatchNorm1d plain{torch::nn::BatchNorm1dOptions(5).affine(false)};
  torch::nn::Linear fc2{5, kClasses};
};

std::unique_ptr<Collective> group_of(const RankContext& context, const Memory& region) {
  at::set_num_threads(1);
  CollectiveSetup setup;
  setup.rank = setup.local_rank = context.rank;
  setup.world_size = setup.local_world_size = context.size;
  setup.region_fd = region.fd();
  setup.gradient_count = 16;
  setup.exchange = context.exchange;
  return make_collective(setup);
}

at::Tensor sum_over_ranks(Collective& collective, const at::Tensor& own) {
  const at::Tensor values = own.to(at::kDouble).contiguous();
  at::Tensor sum = at::zeros_like(values);
  const std::string bytes(static_cast<const char*>(values.data_ptr()), values.nbytes());
  for (const std::string& one : collective.all_gather(bytes)) {
    at::Tensor other = at::empty_like(values);
    std::memcpy(other.data_ptr(), one.data(), one.size());
    sum += other;
  }
  return sum;
}

void train_a_share(const RankContext& context, const Memory& region, const nlohmann::json& reference) {
  const auto collective = group_of(context, region);
  const SyncBatchNorm everywhere(*collective);
  Net net;
  net.to(at::kDouble);
  testing::fill_by_names(net);
  const std::int64_t share = kSamples / context.size;
  for (int step = 0; step < kSteps; ++step) {
    const at::Tensor images = testing::numbers_at(1000 + step, {kSamples, 2, 5, 5}) * 3 + 1;
    const at::Tensor targets = testing::classes_at(2000 + step, {kSamples}, kClasses);
    const at::Tensor loss = torch::cross_entropy_loss(net.forward(images.narrow(0, context.rank * share, share)),
                                                      targets.narrow(0, context.rank * share, share));
    net.zero_grad();
    loss.backward();
    const at::NoGradGuard no_gradients;
    for (at::Tensor& parameter : net.parameters())
      parameter -= kRate * sum_over_ranks(*collective, parameter.grad()) / context.size;
    const double mean = (sum_over_ranks(*collective, loss.data()) / context.size).item<double>();
    expect(std::abs(mean - reference["losses"][static_cast<std::size_t>(step)].get<double>()) < 1e-9,
           fmt::format("the loss {} of step {}", mean, step));
  }
  for (const auto& [name, tensor] : testing::tensors_of(net)) {
    const at::Tensor flat = tensor.data().to(at::kDouble).flatten();
    const auto theirs = reference["tensors"].at(name).get<std::vector<double>>();
    for (std::size_t i = 0; i < theirs.size(); ++i) {
      const auto ours = flat[static_cast<std::int64_t>(i)].item<double>();
      expect(std::abs(ours - theirs[i]) < 1e-9 * std::max(1.0, std::abs(theirs[i])), fmt::format("{}[{}]", name, i));
    }
  }
}

/// Ranks with different numbers of samples, in float, beside one process with all of them.
void normalize_unequal_shares(const RankContext& context, const Memory& region) {
  const auto collective = group_of(context, region);
  const std::int64_t first = context.rank * (context.rank + 1) / 2;
  const std::int64_t own = context.rank + 1;
  const std::int64_t all = context.size * (context.size + 1) / 2;
  const at::Tensor images = (testing::numbers_at(3, {all, 2, 4, 4}) * 5 + 20).to(at::kFloat);
  const at::Tensor pull = testing::numbers_at(9, {all, 2, 4, 4}).to(at::kFloat);
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    torch::nn::BatchNorm2d whole(2), shared(2);
    at::Tensor input = images.clone().requires_grad_();
    const at::Tensor expected = whole->forward(input);
    (expected * pull).sum().backward();
    at::Tensor part = images.narrow(0, first, own).contiguous(format).requires_grad_();
    const SyncBatchNorm everywhere(*collective);
    const at::Tensor output = shared->forward(part);
    (output * pull.narrow(0, first, own)).sum().backward();
    const auto near = [&](const char* what, const at::Tensor& left, const at::Tensor& right) {
      expect(at::allclose(left.to(at::kFloat), right.to(at::kFloat), 1e-5, 2e-6), what);
    };
    near("outputs", output, expected.narrow(0, first, own));
    near("gradients of inputs", part.grad(), input.grad().narrow(0, first, own));
    near("gradients of weights", sum_over_ranks(*collective, shared->weight.grad()), whole->weight.grad());
    near("gradients of biases", sum_over_ranks(*collective, shared->bias.grad()), whole->bias.grad());
    near("running means", shared->running_mean, whole->running_mean);
    near("running variances", shared->running_var, whole->running_var);
  }
}

void leave_others_alone(const RankContext& context, const Memory& region) {
  const auto collective = group_of(context, region);
  const at::Tensor own = (testing::numbers_at(context.rank, {3, 2, 4}) + context.rank).to(at::kFloat);
  torch::nn::BatchNorm1d batch(2);
  torch::nn::InstanceNorm1d instance(torch::nn::InstanceNorm1dOptions(2).track_running_stats(true));
  batch->eval();
  const at::Tensor alone[] = {batch->forward(own), at::instance_norm(own, {}, {}, {}, {}, true, 0.1, 1e-5, false)};
  SyncBatchNorm everywhere(*collective);
  expect(at::equal(alone[0], batch->forward(own)), "evaluation uses running statistics");
  expect(at::equal(alone[1], instance->forward(own)), "instances are each for itself");
  everywhere.set_on(false);
  batch->train();
  const at::Tensor in_validation = batch->forward(own.narrow(0, 0, 1 + context.rank));
  expect(std::abs(in_validation.mean().item<double>()) < 1e-5, "switched off, each rank has its own batch");
}

std::vector<std::string> none(int ranks) {
  return std::vector<std::string>(static_cast<std::size_t>(ranks));
}

}  // namespace

TEST_CASE("batch normalization over all ranks trains as PyTorch's does with all samples in one process") {
  std::ifstream file(SGD_SOURCE_DIR "/test/unit/worker_torch/data/sync_batch_norm_reference.json");
  const nlohmann::json reference = nlohmann::json::parse(file);
  for (const int ranks : {2, 3}) {
    const Memory region;
    CHECK(run_ranks({ranks, {}, std::chrono::seconds(60)},
                    [&](const RankContext& context) { train_a_share(context, region, reference); }) == none(ranks));
  }
}

TEST_CASE("batch normalization over ranks counts each rank's samples") {
  const Memory region;
  CHECK(run_ranks({3, {}, std::chrono::seconds(60)},
                  [&](const RankContext& context) { normalize_unequal_shares(context, region); }) == none(3));
}

TEST_CASE("batch normalization over ranks leaves evaluation, instances and validation alone") {
  const Memory region;
  CHECK(run_ranks({2, {}, std::chrono::seconds(60)},
                  [&](const RankContext& context) { leave_others_alone(context, region); }) == none(2));
}

TEST_CASE("batch normalization over ranks names ranks that come with other layers") {
  const Memory region;
  const auto errors = run_ranks({2, {}, std::chrono::seconds(60)}, [&](const RankContext& context) {
    const auto collective = group_of(context, region);
    const SyncBatchNorm everywhere(*collective);
    torch::nn::BatchNorm1d layer(2 + context.rank);
    (void)layer->forward(at::ones({4, 2 + context.rank}));
  });
  for (const std::string& error : errors)
    CHECK_THAT(error, Catch::Contains("sync_batchnorm") && Catch::Contains("in the same order"));
}

TEST_CASE("batch normalization over ranks refuses gradients of gradients") {
  const Memory region;
  const auto errors = run_ranks({2, {}, std::chrono::seconds(60)}, [&](const RankContext& context) {
    const auto collective = group_of(context, region);
    const SyncBatchNorm everywhere(*collective);
    torch::nn::BatchNorm1d layer(2);
    const at::Tensor input = testing::numbers_at(context.rank, {4, 2}).to(at::kFloat).requires_grad_();
    (void)torch::autograd::grad({layer->forward(input).square().sum()}, {input}, {}, true, true);
  });
  for (const std::string& error : errors) CHECK_THAT(error, Catch::Contains("create_graph"));
}

}  // namespace sgd::worker::sync_batch_norm
