// Batches made ahead: the same as without threads, to the bit, from any position; errors at their batch.
#include <catch2/catch.hpp>

#include <csignal>

#include "worker/link/stack_signal.hpp"
#include "worker/torch/indexed_batches.hpp"
#include "worker/torch/loader.hpp"
#include "worker/torch/phase_stream.hpp"

namespace sgd::worker {
namespace {

/// Samples whose features say epoch, split and number; one of them is bad.
class NumberedSamples : public Dataset {
 public:
  explicit NumberedSamples(std::int64_t bad = -1) : bad_(bad) {}
  SampleShape shape() const override { return {{3}, 1}; }
  std::int64_t count(Split) const override { return 23; }
  Batch gather(Split split, int epoch, std::span<const std::int64_t> indices) const override {
    at::Tensor features = at::empty({static_cast<std::int64_t>(indices.size()), 3});
    for (std::size_t i = 0; i < indices.size(); ++i) {
      if (indices[i] == bad_) throw std::runtime_error("sample " + std::to_string(bad_) + " is bad");
      const auto row = static_cast<std::int64_t>(i);
      features[row][0] = epoch;
      features[row][1] = split == Split::kTrain ? 0 : 1;
      features[row][2] = indices[i];
    }
    sigset_t own;
    blocks_stack_signal = ::pthread_sigmask(SIG_BLOCK, nullptr, &own) == 0 && ::sigismember(&own, kStackSignal) == 1;
    return {features, at::zeros({static_cast<std::int64_t>(indices.size())})};
  }
  mutable std::atomic<bool> blocks_stack_signal{false};

 private:
  std::int64_t bad_;
};

const Sampler& shuffled_order() {
  static const Sampler sampler(5, 2, 23, 2, true);
  return sampler;
}

LoaderPhase phase_from(std::int64_t consumed) {
  return {Split::kTrain, 2, 1, 4, consumed};
}

std::vector<at::Tensor> all_features(const Dataset& dataset, std::int64_t consumed) {
  Loader loader(phase_from(consumed), shuffled_order(), dataset);
  std::vector<at::Tensor> features;
  const std::int64_t batches = shuffled_order().batches_left(consumed, 4);
  for (std::int64_t i = 0; i < batches; ++i) features.push_back(loader.next().features);
  return features;
}

}  // namespace

TEST_CASE("loader: threads change no batch") {
  NumberedSamples dataset;
  for (const std::int64_t consumed : {0, 8, 16}) {
    dataset.set_loader({0, 1});
    const std::vector<at::Tensor> expected = all_features(dataset, consumed);
    CHECK(expected.size() == static_cast<std::size_t>(3 - consumed / 8));
    for (const int threads : {1, 2, 4}) {
      dataset.set_loader({threads, 3});
      const std::vector<at::Tensor> features = all_features(dataset, consumed);
      REQUIRE(features.size() == expected.size());
      for (std::size_t i = 0; i < features.size(); ++i) CHECK(features[i].equal(expected[i]));
    }
  }
}

TEST_CASE("loader: its threads leave the signal for stacks to the training thread") {
  NumberedSamples dataset;
  dataset.set_loader({1, 1});
  (void)all_features(dataset, 0);
  CHECK(dataset.blocks_stack_signal);
  dataset.set_loader({0, 1});
  (void)all_features(dataset, 0);
  CHECK_FALSE(dataset.blocks_stack_signal);
}

TEST_CASE("loader: an error comes with its batch, and the end does not hang") {
  std::vector<std::int64_t> second;
  shuffled_order().batch(8, 1, 4, second);
  NumberedSamples dataset(second[2]);
  const std::string words = "sample " + std::to_string(second[2]) + " is bad";
  for (const int threads : {0, 1, 3}) {
    dataset.set_loader({threads, 2});
    Loader loader(phase_from(0), shuffled_order(), dataset);
    CHECK_NOTHROW(loader.next());
    CHECK_THROWS_WITH(loader.next(), words);
  }
}

TEST_CASE("loader: a phase is left inside of it, and gone on with") {
  NumberedSamples dataset;
  dataset.set_loader({2, 2});
  MetricsAccumulator metrics;
  PhaseSettings settings;
  settings.epoch = 2;
  const auto run = [&](std::int64_t consumed, bool goes_on) {
    const auto order = [](int) { return shuffled_order(); };
    PhaseStream stream(
        settings, std::make_shared<IndexedBatches>(phase_from(consumed), order, dataset), metrics, [] { return 0; },
        [&](const BatchMetrics&) { return goes_on; });
    std::vector<at::Tensor> features;
    while (const auto batch = stream.next()) {
      features.push_back(batch->features);
      stream.add({batch->features.size(0), {}});
    }
    CHECK(stream.interrupted() == !goes_on);
    return std::pair(at::cat(features), stream.consumed());
  };
  const auto [whole, end] = run(0, true);
  const auto [first, middle] = run(0, false);
  CHECK(middle == 8);
  const auto [rest, same_end] = run(middle, true);
  CHECK(end == same_end);
  CHECK(at::cat({first, rest}).equal(whole));
}

TEST_CASE("loader: as the job says, or as the data set needs") {
  const auto threads_of = [](const nlohmann::json& dataset, std::optional<int> threads) {
    job::Training training;
    training.dataset = dataset;
    training.model = {{"outputs", 10}};
    training.loader.threads = threads;
    training.loader.prefetch = 9;
    const auto made = make_dataset(training);
    CHECK(made->loader().prefetch == 9);
    return made->loader().threads;
  };
  const nlohmann::json small{{"type", "synthetic"}, {"shape", {4}}, {"samples", 4}, {"classes", 3}};
  const nlohmann::json large{{"type", "synthetic"}, {"shape", {3, 64, 64}}, {"samples", 4}, {"classes", 3}};
  CHECK(threads_of(small, std::nullopt) == 0);
  CHECK(threads_of(small, 3) == 3);
  CHECK(threads_of(large, std::nullopt) == 2);
  CHECK(threads_of(large, 0) == 0);
}

}  // namespace sgd::worker
