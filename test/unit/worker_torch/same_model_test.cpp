// Models of equal size that differ in names or shapes.
#include <catch2/catch.hpp>

#include "worker/collective/solo_collective.hpp"
#include "worker/torch/same_model.hpp"

namespace sgd::worker {
namespace {

StateTensors of(const std::vector<ParameterPlace>& places, const std::string& optimizer = "sgd") {
  StateTensors tensors;
  tensors.flat.push_back({"", {}, places, 0});
  tensors.optimizers = {{"optimizer", optimizer}};
  return tensors;
}

/// Rank 0 of two; what rank 1 gives to each all_gather, by what rank 0 gives.
class FakePair final : public Collective {
 public:
  explicit FakePair(std::vector<ParameterPlace> others) : others_(std::move(others)) {}

  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int world_size() const override { return 2; }
  [[nodiscard]] std::span<float> gradients() override { return {}; }
  [[nodiscard]] std::uint32_t all_reduce(std::uint32_t word, std::size_t, std::size_t) override { return word; }
  using Collective::agree;
  [[nodiscard]] std::uint32_t agree(std::uint32_t word, const Call&) override { return word; }
  void broadcast(std::span<std::byte>, int) override {}
  void barrier() override {}
  void abort() noexcept override {}
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& bytes) override {
    if (const auto* recorded = others_said_.empty() ? nullptr : &others_said_[gathered_++]) return {bytes, *recorded};
    said_.push_back(bytes);
    return {bytes, bytes + "?"};
  }

  /// What the other rank would say: all that check_same_model() gathers of its places.
  void listen_to_other() {
    FakePair other({});
    CHECK_THROWS(check_same_model(other, of(others_)));
    others_said_ = other.said_;
  }

 private:
  std::vector<ParameterPlace> others_;
  std::vector<std::string> others_said_;
  std::vector<std::string> said_;
  std::size_t gathered_ = 0;
};

ParameterPlace place(const std::string& name, std::vector<std::int64_t> shape) {
  return {name, std::move(shape), 0, 6};
}

void check(std::vector<ParameterPlace> ours, std::vector<ParameterPlace> theirs) {
  FakePair pair(std::move(theirs));
  pair.listen_to_other();
  check_same_model(pair, of(ours));
}

}  // namespace

TEST_CASE("same model: equal ones pass, also those of one rank alone") {
  CHECK_NOTHROW(check({place("a", {2, 3}), place("b", {6})}, {place("a", {2, 3}), place("b", {6})}));
  SoloCollective alone(16);
  CHECK_NOTHROW(check_same_model(alone, of({})));
}

TEST_CASE("same model: another shape, name, order or number is named") {
  CHECK_THROWS_WITH(check({place("a", {2, 3}), place("b", {2, 3})}, {place("a", {2, 3}), place("b", {3, 2})}),
                    Catch::Contains("the model of rank 1") &&
                        Catch::Contains("rank 1 has parameter b [3, 2] where rank 0 has parameter b [2, 3]"));
  CHECK_THROWS_WITH(check({place("a", {6})}, {place("c", {6})}), Catch::Contains("has parameter c [6] where"));
  CHECK_THROWS_WITH(check({place("a", {6}), place("b", {6})}, {place("b", {6}), place("a", {6})}),
                    Catch::Contains("rank 1 has parameter b [6] where rank 0 has parameter a [6]"));
  CHECK_THROWS_WITH(check({place("a", {6}), place("b", {6})}, {place("a", {6})}),
                    Catch::Contains("rank 1 has nothing where rank 0 has parameter b [6]"));
}

}  // namespace sgd::worker
