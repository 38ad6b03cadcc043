#include "worker/core/sampler.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace sgd::worker {
namespace {

const std::vector<std::int64_t> kOrderOfSeed1Epoch1 = {0, 1, 3, 6, 2, 4, 7, 5};

// All samples of a step, over all ranks.
std::multiset<std::int64_t> step_samples(const Sampler& sampler, std::int64_t position, std::int64_t batch) {
  std::multiset<std::int64_t> all;
  std::vector<std::int64_t> indices;
  for (int rank = 0; rank < sampler.world_size(); ++rank) {
    sampler.batch(position, rank, batch, indices);
    REQUIRE(static_cast<std::int64_t>(indices.size()) == sampler.batch_length(position, batch));
    all.insert(indices.begin(), indices.end());
  }
  return all;
}

// Counts uses of each sample from `position` on, for `steps` steps or to the end; returns the new position.
std::int64_t run_steps(const Sampler& sampler, std::int64_t position, std::int64_t batch, std::int64_t steps,
                       std::map<std::int64_t, int>& uses) {
  const std::int64_t length = sampler.length(position);
  for (; steps != 0 && sampler.batch_length(position, batch) > 0; --steps) {
    for (const std::int64_t sample : step_samples(sampler, position, batch)) ++uses[sample];
    position = sampler.advance(position, batch);
    CHECK(sampler.length(position) == length);  // The same at every step.
  }
  return position;
}

TEST_CASE("sampler: an epoch uses each sample once, and its padding a second time") {
  for (const std::int64_t samples : {1, 2, 3, 10, 63, 64, 65, 1000}) {
    for (const int world : {1, 2, 3, 4, 7}) {
      for (const std::int64_t batch : {1, 3, 32}) {
        CAPTURE(samples, world, batch);
        const Sampler sampler(1, 1, samples, world, true);
        const std::int64_t per_rank = (samples + world - 1) / world;
        CHECK(sampler.length() == per_rank * world);
        CHECK(sampler.batches_left(0, batch) == (per_rank + batch - 1) / batch);
        std::map<std::int64_t, int> uses;
        CHECK(run_steps(sampler, 0, batch, -1, uses) == sampler.length());
        CHECK(static_cast<std::int64_t>(uses.size()) == samples);
        std::int64_t total = 0;
        for (const auto& [sample, count] : uses) total += count;
        CHECK(total == sampler.length());
        const int most =
            std::max_element(uses.begin(), uses.end(), [](auto& a, auto& b) { return a.second < b.second; })->second;
        CHECK(most <= (samples >= world ? 2 : world));
      }
    }
  }
}

TEST_CASE("sampler: after a change of world size each remaining sample is used once") {
  for (const auto& [samples, from, to, steps] : {std::tuple<int, int, int, int>{1000, 2, 1, 7},
                                                 {1000, 1, 2, 3},
                                                 {1001, 4, 3, 10},
                                                 {37, 3, 2, 1},
                                                 {64, 2, 3, 2}}) {
    CAPTURE(samples, from, to, steps);
    const Sampler before(5, 2, samples, from, true), after(5, 2, samples, to, true);
    std::map<std::int64_t, int> uses;
    const std::int64_t position = run_steps(before, 0, 8, steps, uses);
    REQUIRE(position < samples);
    for (const auto& [sample, count] : uses) CHECK(count == 1);
    const std::int64_t end = run_steps(after, position, 8, -1, uses);
    CHECK(end == position + (samples - position + to - 1) / to * to);
    CHECK(static_cast<int>(uses.size()) == samples);
    std::int64_t repeated = 0;
    for (const auto& [sample, count] : uses) repeated += count - 1;
    CHECK(repeated == end - samples);
    CHECK(repeated < to);
  }
}

TEST_CASE("sampler: a resize after the epoch's last sample leaves nothing to do") {
  const Sampler two(1, 1, 5, 2, true);
  std::map<std::int64_t, int> uses;
  const std::int64_t end = run_steps(two, 0, 4, -1, uses);
  CHECK(end == 6);
  for (const int world : {1, 2, 3}) {
    const Sampler sampler(1, 1, 5, world, true);
    CHECK(sampler.batches_left(end, 4) == 0);
    CHECK(sampler.batch_length(end, 4) == 0);
    CHECK(sampler.advance(end, 4) == end);
  }
}

TEST_CASE("sampler: one rank with 32 and two with 16 take the same samples at each step") {
  for (const bool shuffle : {false, true}) {
    const Sampler one(9, 4, 1000, 1, shuffle), two(9, 4, 1000, 2, shuffle);
    CHECK(one.batches_left(0, 32) == 32);
    CHECK(two.batches_left(0, 16) == 32);
    for (std::int64_t position = 0; position < 1000; position = one.advance(position, 32)) {
      CHECK(step_samples(one, position, 32) == step_samples(two, position, 16));
      CHECK(one.advance(position, 32) == two.advance(position, 16));
    }
  }
}

TEST_CASE("sampler: without shuffle rank r takes r, r+W, ...") {
  const Sampler sampler(3, 1, 10, 4, false);
  std::vector<std::int64_t> indices;
  sampler.batch(0, 1, 2, indices);
  CHECK(indices == std::vector<std::int64_t>{1, 5});
  sampler.batch(8, 1, 2, indices);
  CHECK(indices == std::vector<std::int64_t>{9});
  sampler.batch(8, 3, 2, indices);
  CHECK(indices == std::vector<std::int64_t>{1});  // Entry 11 of 10, wrapped.
}

TEST_CASE("sampler: the order comes from seed and epoch alone, and is this one") {
  const auto order = [](std::uint64_t seed, int epoch, int world) {
    std::vector<std::int64_t> entries;
    const Sampler sampler(seed, epoch, 8, world, true);
    for (std::int64_t entry = 0; entry < 8; ++entry) entries.push_back(sampler.at(entry));
    return entries;
  };
  CHECK(order(1, 1, 1) == order(1, 1, 4));
  CHECK(order(1, 1, 1) != order(1, 2, 1));
  CHECK(order(1, 1, 1) != order(2, 1, 1));
  CHECK(order(1, 1, 1) == kOrderOfSeed1Epoch1);  // A change here changes every user's results.
}

TEST_CASE("sampler: shuffles are uniform") {
  constexpr int kEpochs = 6000;
  std::map<std::vector<std::int64_t>, int> seen;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const Sampler sampler(42, epoch, 3, 1, true);
    ++seen[{sampler.at(0), sampler.at(1), sampler.at(2)}];
  }
  CHECK(seen.size() == 6);
  for (const auto& [order, count] : seen) CHECK(std::abs(count - kEpochs / 6) < 150);  // 5 standard deviations.
}

TEST_CASE("sampler: step seeds differ by seed, epoch, step and rank") {
  std::set<std::uint64_t> seeds;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    for (int epoch = 0; epoch < 8; ++epoch) {
      for (int step = 0; step < 8; ++step) {
        for (int rank = 0; rank < 8; ++rank) seeds.insert(step_seed(seed, epoch, step, rank));
      }
    }
  }
  CHECK(seeds.size() == 4 * 8 * 8 * 8);
  CHECK(step_seed(1, 2, 3, 4) == step_seed(1, 2, 3, 4));
}

}  // namespace
}  // namespace sgd::worker
