// The batches of a phase, its position and what user code may do wrong.
#include <catch2/catch.hpp>

#include "worker/torch/indexed_batches.hpp"
#include "worker/torch/phase_stream.hpp"

namespace sgd::worker {
namespace {

/// Of ten samples for two ranks.
Sampler in_order(int pass) {
  return Sampler(1, pass, 10, 2, false);
}

/// Ten samples whose feature is their number.
class Numbers : public Dataset {
 public:
  SampleShape shape() const override { return {{1}, 1}; }
  std::int64_t count(Split) const override { return 10; }
  Batch gather(Split, int, std::span<const std::int64_t> indices) const override {
    const std::vector<std::int64_t> numbers(indices.begin(), indices.end());
    return {at::tensor(numbers), at::zeros({static_cast<std::int64_t>(indices.size())})};
  }
};

struct StreamFixture {
  std::vector<std::int64_t> drain(PhaseStream& stream) {
    std::vector<std::int64_t> seen;
    while (const auto batch = stream.next()) {
      for (std::int64_t i = 0; i < batch->features.size(0); ++i)
        seen.push_back(batch->features[i].item<std::int64_t>());
      infos.push_back(stream.info());
      stream.add({batch->features.size(0), {{"train_loss", 2.0}}});
    }
    return seen;
  }
  PhaseStream stream(int rank, std::int64_t consumed, bool go_on = true) {
    PhaseSettings settings;
    settings.epoch = 4;
    auto batches =
        std::make_shared<IndexedBatches>(LoaderPhase{Split::kTrain, 4, rank, 2, consumed}, in_order, dataset);
    return PhaseStream(
        settings, std::move(batches), metrics, [this] { return steps++; },
        [go_on](const BatchMetrics&) { return go_on; });
  }
  Numbers dataset;
  MetricsAccumulator metrics;
  std::vector<BatchInfo> infos;
  std::int64_t steps = 100;
};

}  // namespace

TEST_CASE("the ranks share an epoch, and every batch knows its place") {
  StreamFixture fixture;
  PhaseStream first = fixture.stream(0, 0);
  CHECK(fixture.drain(first) == std::vector<std::int64_t>{0, 2, 4, 6, 8});
  CHECK(first.consumed() == 10);
  REQUIRE(fixture.infos.size() == 3);
  CHECK(fixture.infos[2].epoch == 4);
  CHECK(fixture.infos[2].batch_index == 2);
  CHECK(fixture.infos[2].global_step == 102);
  CHECK(fixture.metrics.num_samples() == 5);
  PhaseStream second = fixture.stream(1, 0);
  CHECK(fixture.drain(second) == std::vector<std::int64_t>{1, 3, 5, 7, 9});
}

TEST_CASE("time inside collectives is not a rank's own") {
  StreamFixture fixture;
  std::atomic<std::int64_t> waited_ns{0};
  PhaseSettings settings;
  settings.waited_ns = &waited_ns;
  constexpr auto kLong = std::chrono::hours(1);  // Longer than the test: what is left is nothing.
  PhaseStream stream(
      settings, std::make_shared<IndexedBatches>(LoaderPhase{Split::kTrain, 1, 0, 2, 0}, in_order, fixture.dataset),
      fixture.metrics, [] { return 0; },
      [&](const BatchMetrics&) {
        waited_ns += std::chrono::nanoseconds(kLong).count();
        return true;
      });
  (void)fixture.drain(stream);
  CHECK(stream.own_timer().count() == stream.timer().count());
  CHECK(stream.timer().quantile_ms(1) > 0);
  CHECK(stream.own_timer().quantile_ms(0.6) == 0);
}

TEST_CASE("a phase goes on where it was left") {
  StreamFixture fixture;
  PhaseStream rest = fixture.stream(1, 4);
  CHECK(fixture.drain(rest) == std::vector<std::int64_t>{5, 7, 9});
}

TEST_CASE("an interrupted phase ends after the batch in work, which counts") {
  StreamFixture fixture;
  PhaseStream stream = fixture.stream(0, 0, false);
  CHECK(fixture.drain(stream) == std::vector<std::int64_t>{0, 2});
  CHECK(stream.interrupted());
  CHECK(stream.consumed() == 4);
}

TEST_CASE("a number of batches ends a phase, and passes go on in the next and end within one") {
  StreamFixture fixture;
  PhaseSettings settings;
  LoaderPhase phase{Split::kTrain, 1, 0, 2, 0};
  settings.batches_max = 4;
  std::vector<int> passes;
  const auto order = [&passes](int pass) {
    passes.push_back(pass);
    return in_order(pass);
  };
  const auto stream = [&] {
    return PhaseStream(
        settings, std::make_shared<IndexedBatches>(phase, order, fixture.dataset), fixture.metrics, [] { return 0; },
        [](const BatchMetrics&) { return true; });
  };
  PhaseStream first = stream();
  // Three batches of a rank are a pass.
  CHECK(fixture.drain(first) == std::vector<std::int64_t>{0, 2, 4, 6, 8, 0, 2});
  CHECK(first.pass() == 2);
  CHECK(first.consumed() == 4);
  CHECK(first.batches() == 4);
  CHECK_FALSE(first.is_pass_done());
  CHECK(fixture.infos[2].is_last == false);
  CHECK(fixture.infos[3].is_last);
  phase.epoch = first.pass();
  phase.consumed = first.consumed();
  PhaseStream second = stream();
  CHECK(fixture.drain(second) == std::vector<std::int64_t>{4, 6, 8, 0, 2, 4, 6});
  CHECK(passes == std::vector<int>{1, 2, 2, 3});
  CHECK_FALSE(second.is_pass_done());
  // Left inside a phase: the batches done before count.
  settings.batches = 3;
  phase.epoch = 3;
  phase.consumed = 8;
  PhaseStream rest = stream();
  CHECK(fixture.drain(rest) == std::vector<std::int64_t>{8});
  CHECK(rest.is_pass_done());
}

TEST_CASE("a batch is completed once") {
  StreamFixture fixture;
  PhaseStream stream = fixture.stream(0, 0);
  CHECK_THROWS_AS(stream.add({1, {}}), std::logic_error);
  REQUIRE(stream.next());
  CHECK_THROWS_AS(stream.next(), std::logic_error);
  CHECK_THROWS_WITH(stream.check_completed("train_epoch()"),
                    Catch::Contains("train_epoch() has ended before add() completed the last batch"));
  stream.add({1, {}});
  CHECK_NOTHROW(stream.check_completed("train_epoch()"));
  CHECK_THROWS_AS(stream.add({1, {}}), std::logic_error);
}

TEST_CASE("a batch has no less than no samples") {
  StreamFixture fixture;
  PhaseStream stream = fixture.stream(0, 0);
  REQUIRE(stream.next());
  CHECK_THROWS_WITH(stream.add({-1, {}}), "num_samples of a batch is -1: it must be at least 0");
  CHECK(fixture.metrics.batch_count() == 0);
  stream.add({0, {}});
  CHECK(fixture.metrics.num_samples() == 0);
}

}  // namespace sgd::worker
