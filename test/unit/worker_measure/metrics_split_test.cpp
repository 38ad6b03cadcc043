// The promise of exact metrics: however samples are divided into batches and over ranks, in whatever order, with a save
// and a load between two batches, values and states are those of all samples at once, to the bit.
#include <catch2/catch.hpp>

#include <algorithm>
#include <bit>
#include <random>

#include "sgd/metrics.hpp"

namespace sgd {
namespace {

using Json = nlohmann::json;

struct Samples {
  at::Tensor output;
  at::Tensor target;
};

Samples class_samples() {
  Samples samples{at::randn({157, 7, 3}) * 4, at::randint(0, 7, {157, 3}, at::kLong)};
  samples.target.masked_fill_(at::rand({157, 3}).lt(0.1), 255);
  return samples;
}

Samples number_samples() {
  const at::Tensor target = at::randn({157, 2}, at::kFloat) * 3 + 1e4;
  return {target + at::randn({157, 2}), target};
}

/// Bits, so that NaN equals NaN and 0 does not equal -0.
Json as_bits(const nlohmann::ordered_json& values) {
  if (values.is_number_float()) return std::bit_cast<std::uint64_t>(values.get<double>());
  if (!values.is_structured()) return Json::parse(values.dump());
  Json bits = Json::array();
  for (const auto& [key, value] : values.items()) bits.push_back({key, as_bits(value)});
  return bits;
}

/// Places at which 0 .. count is cut into pieces.
std::vector<std::int64_t> cuts_of(std::mt19937_64& random, std::int64_t count) {
  std::vector<std::int64_t> cuts = {0, count};
  for (auto more = random() % 9; more > 0; --more)
    cuts.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(count)));
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

/// What comes out when the samples are shuffled, cut into batches and dealt out to ranks, which save and load at times.
std::unique_ptr<Metric> measured_in_pieces(const Json& settings, const Samples& samples, std::mt19937_64& random) {
  const auto world_size = static_cast<std::size_t>(1 + random() % 4);
  std::vector<std::unique_ptr<Metric>> ranks;
  for (std::size_t rank = 0; rank < world_size; ++rank) ranks.push_back(make_metric(settings));
  const std::int64_t count = samples.output.size(0);
  const at::Tensor order = at::randperm(count, at::kLong);
  const std::vector<std::int64_t> cuts = cuts_of(random, count);
  for (std::size_t piece = 0; piece + 1 < cuts.size(); ++piece) {
    std::unique_ptr<Metric>& rank = ranks[random() % world_size];
    const at::Tensor chosen = order.slice(0, cuts[piece], cuts[piece + 1]);
    rank->add(samples.output.index_select(0, chosen), samples.target.index_select(0, chosen));
    if (random() % 3 != 0) continue;
    const std::string text = rank->state().dump();
    rank = make_metric(settings);
    rank->load(Json::parse(text));
  }
  std::unique_ptr<Metric> all = make_metric(settings);
  for (const auto& rank : ranks) all->merge(Json::parse(rank->state().dump()));
  return all;
}

}  // namespace

TEST_CASE("metrics: any split over ranks and batches gives the same bits") {
  const char* settings_of_all[] = {R"({"type": "accuracy", "ignore_index": 255})",
                                   R"({"type": "top_k", "k": 3, "ignore_index": 255})",
                                   R"({"type": "precision", "ignore_index": 255})",
                                   R"({"type": "precision", "average": "micro", "ignore_index": 255})",
                                   R"({"type": "recall", "average": "per_class", "ignore_index": 255})",
                                   R"({"type": "f_beta", "beta": 0.5, "ignore_index": 255})",
                                   R"({"type": "confusion_matrix", "ignore_index": 255})",
                                   R"({"type": "perplexity", "ignore_index": 255})",
                                   R"({"type": "mae"})",
                                   R"({"type": "mse"})",
                                   R"({"type": "r2"})"};
  at::manual_seed(11);
  std::mt19937_64 random(5);
  for (const char* text : settings_of_all) {
    const Json settings = Json::parse(text);
    INFO(text);
    const bool of_classes = settings.contains("ignore_index");
    const Samples samples = of_classes ? class_samples() : number_samples();
    const std::unique_ptr<Metric> whole = make_metric(settings);
    whole->add(samples.output, samples.target);
    for (int trial = 0; trial < 40; ++trial) {
      const std::unique_ptr<Metric> pieces = measured_in_pieces(settings, samples, random);
      REQUIRE(as_bits(pieces->values()) == as_bits(whole->values()));
      REQUIRE(pieces->state() == whole->state());
    }
  }
}

TEST_CASE("metrics: states of others, and what is none, are refused") {
  const char* names[] = {"accuracy", "top_k", "precision", "confusion_matrix", "perplexity", "mae", "r2"};
  for (const char* name : names) {
    INFO(name);
    const auto metric = make_metric({{"type", name}});
    for (const char* text :
         {"null", "3", "[]", "{}", R"({"counted": -1})", R"({"counted": "many"})",
          R"({"right": [1], "predicted": [1, 2], "actual": [1]})", R"({"classes": 2, "cells": [4], "counts": [1]})",
          R"({"classes": 4000000000, "cells": [], "counts": []})", R"({"counted": 1, "columns": [{}]})"}) {
      INFO(text);
      const auto fresh = make_metric({{"type", name}});
      CHECK_THROWS_AS(fresh->merge(Json::parse(text)), std::invalid_argument);
    }
  }
  CHECK_THROWS_AS(make_metric({{"type", "accurcy"}}), std::invalid_argument);
  CHECK_THROWS_AS(make_metric({{"type", "top_k"}, {"k", "five"}}), std::invalid_argument);
  CHECK_THROWS_AS(make_metric(Json()), std::invalid_argument);
}

}  // namespace sgd
