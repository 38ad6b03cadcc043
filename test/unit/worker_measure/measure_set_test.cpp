// A job's metrics over ranks, without a training loop.
#include <catch2/catch.hpp>

#include <stdexcept>

#include "worker/measure/measure_set.hpp"

namespace sgd::worker {
namespace {

using Json = nlohmann::json;

/// What the other ranks have told stands beforehand.
class ToldGroup final : public Collective {
 public:
  ToldGroup(int rank, std::vector<std::string> told) : rank_(rank), told_(std::move(told)) {}
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int world_size() const override { return static_cast<int>(told_.size()); }
  [[nodiscard]] std::span<float> gradients() override { return {}; }
  using Collective::all_reduce;
  [[nodiscard]] std::uint32_t all_reduce(std::uint32_t word, std::size_t, std::size_t) override { return word; }
  using Collective::agree;
  [[nodiscard]] std::uint32_t agree(std::uint32_t word, const Call&) override { return word; }
  void broadcast(std::span<std::byte>, int) override {}
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& bytes) override {
    ++calls;
    told_[static_cast<std::size_t>(rank_)] = bytes;
    return told_;
  }
  void barrier() override {}
  void abort() noexcept override {}
  int calls = 0;

 private:
  int rank_;
  std::vector<std::string> told_;
};

MeasureSet set_of(const char* text) {
  return MeasureSet(Json::parse(text).get<std::vector<Json>>());
}

constexpr const char* kBoth =
    R"([{"type": "accuracy", "on": "both"}, {"type": "top_k", "k": 2, "on": "validation"}, {"type": "f_beta", "on": "train"}])";
constexpr MeasuredPhase kTrain = MeasuredPhase::kTraining;
constexpr MeasuredPhase kVal = MeasuredPhase::kValidation;

void add_right(MeasureSet& set, MeasuredPhase phase, std::int64_t right, std::int64_t wrong) {
  const at::Tensor target = at::zeros({right + wrong}, at::kLong);
  at::Tensor output = at::zeros({right + wrong, 3});
  output.slice(0, 0, right).select(1, 0).fill_(1);
  output.slice(0, right).select(1, 2).fill_(1);
  set.add(phase, output, target);
}

}  // namespace

TEST_CASE("measure set: one merge over all ranks at a phase's end, equal on every rank, and then all is clear") {
  std::vector<std::string> told;
  for (int rank = 0; rank < 3; ++rank) {
    MeasureSet other = set_of(kBoth);
    add_right(other, kVal, rank, 1);
    told.push_back(other.state().dump());
  }
  for (int rank = 0; rank < 3; ++rank) {
    MeasureSet set = set_of(kBoth);
    add_right(set, kVal, rank, 1);
    ToldGroup group(rank, told);
    const nlohmann::ordered_json values = set.finish(kVal, group);
    CHECK(group.calls == 1);
    CHECK(values.dump() == R"({"val_accuracy":0.5,"val_top_2":1.0})");
    CHECK(set.state().empty());
  }
}

TEST_CASE("measure set: training and validation are apart, and nothing is gathered for what is not measured") {
  MeasureSet set = set_of(kBoth);
  CHECK(set.is_on(kTrain));
  add_right(set, kTrain, 3, 1);
  ToldGroup alone(0, {""});
  CHECK(set.finish(kTrain, alone).dump() == R"({"train_accuracy":0.75,"train_f1":0.42857142857142855})");
  MeasureSet none;
  CHECK_FALSE(none.is_on(kVal));
  ToldGroup untouched(0, {""});
  CHECK(none.finish(kVal, untouched).empty());
  CHECK(untouched.calls == 0);
  CHECK_FALSE(set_of(R"([{"type": "r2"}])").is_on(kTrain));
}

TEST_CASE("measure set: a rank that goes on with the records of several counts each sample once") {
  MeasureSet first = set_of(kBoth);
  MeasureSet second = set_of(kBoth);
  add_right(first, kVal, 1, 0);
  add_right(second, kVal, 0, 3);
  MeasureSet joined = set_of(kBoth);
  joined.load({Json::parse(first.state().dump()), nullptr, Json::parse(second.state().dump())});
  add_right(joined, kVal, 4, 0);
  ToldGroup alone(0, {""});
  CHECK(joined.finish(kVal, alone).at("val_accuracy") == 5.0 / 8);
  joined.load({first.state()});
  joined.load({});
  CHECK(joined.state().empty());
}

TEST_CASE("measure set: metrics that change within a phase are refused by name, at a phase's end they may") {
  MeasureSet before = set_of(R"([{"type": "accuracy"}, {"type": "recall"}])");
  MeasureSet after = set_of(R"([{"type": "accuracy"}, {"type": "perplexity"}])");
  CHECK_NOTHROW(after.load({before.state()}));
  add_right(before, kVal, 1, 1);
  CHECK_THROWS_WITH(after.load({before.state()}), Catch::Contains("\"val_recall\", which this job does not measure"));
  MeasureSet more = set_of(R"([{"type": "accuracy"}, {"type": "recall"}, {"type": "perplexity"}])");
  CHECK_THROWS_WITH(more.load({before.state()}), Catch::Contains("has not counted \"val_perplexity\""));
  CHECK_THROWS_AS(more.load({Json(3)}), std::invalid_argument);
}

TEST_CASE("measure set: a rank that tells something else is named") {
  MeasureSet set = set_of(R"([{"type": "accuracy"}])");
  ToldGroup garbled(0, {"", "no state"});
  CHECK_THROWS_WITH(set.finish(kVal, garbled), "rank 1 has told no state of its metrics");
  ToldGroup other(0, {"", R"({"val_accuracy": {"correct": 1}})"});
  CHECK_THROWS_WITH(set.finish(kVal, other), "the metrics of rank 1: the state of accuracy: counted is missing");
}

}  // namespace sgd::worker
