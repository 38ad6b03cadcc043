// Models of equal size that differ in names or shapes, and data sets that differ in what they say of themselves.
#include <catch2/catch.hpp>

#include "worker/collective/solo_collective.hpp"
#include "worker/torch/named_datasets.hpp"
#include "worker/torch/same_model.hpp"

namespace sgd::worker {
namespace {

StateTensors of(const std::vector<ParameterPlace>& places, const std::string& optimizer = "sgd") {
  StateTensors tensors;
  tensors.flat.push_back({"", {}, places, 0});
  tensors.optimizers = {{"optimizer", optimizer}};
  return tensors;
}

/// What a data set says of itself.
struct FakeData final : Dataset {
  std::int64_t train = 8, validation = 4;
  SampleShape sample{{3}, 2};
  std::vector<std::string> names;
  bool streams = false;

  [[nodiscard]] SampleShape shape() const override { return sample; }
  [[nodiscard]] std::vector<std::string> classes() const override { return names; }
  [[nodiscard]] std::int64_t count(Split split) const override { return split == Split::kTrain ? train : validation; }
  [[nodiscard]] bool is_stream(Split) const override { return streams; }
  [[nodiscard]] Batch gather(Split, int, std::span<const std::int64_t>) const override {
    throw std::logic_error("samples are not to be read");
  }
};

/// Rank 0 of two; what rank 1 gives to each all_gather, by what rank 0 gives.
class FakePair final : public Collective {
 public:
  explicit FakePair(std::vector<ParameterPlace> others, const Dataset* data = nullptr)
      : others_(std::move(others)), others_data_(data) {}

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
    // Another digest, so that all is gathered; then no difference, so that nothing ends the gathering.
    return {bytes, said_.size() == 1 ? bytes + "?" : bytes};
  }

  /// What the other rank would say: all that check_same_model() gathers of its places.
  void listen_to_other() {
    FakePair other({});
    check_same_model(other, of(others_), others_data_);
    others_said_ = other.said_;
  }
  [[nodiscard]] std::size_t gathered() const { return gathered_; }

 private:
  std::vector<ParameterPlace> others_;
  const Dataset* others_data_;
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
  check_same_model(pair, of(ours), nullptr);
}

/// How often they gather where the same model has that data.
std::size_t check_data(const Dataset& ours, const Dataset& theirs) {
  const std::vector<ParameterPlace> places = {place("a", {6})};
  FakePair pair(places, &theirs);
  pair.listen_to_other();
  check_same_model(pair, of(places), &ours);
  return pair.gathered();
}

}  // namespace

TEST_CASE("same model: equal ones pass, also those of one rank alone") {
  CHECK_NOTHROW(check({place("a", {2, 3}), place("b", {6})}, {place("a", {2, 3}), place("b", {6})}));
  SoloCollective alone(16);
  CHECK_NOTHROW(check_same_model(alone, of({}), nullptr));
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

TEST_CASE("same data: counts, shapes, outputs and classes are named, and cost no exchange of their own") {
  FakeData ours, theirs;
  CHECK(check_data(ours, theirs) == 1);
  theirs.train = 7;
  CHECK_THROWS_WITH(check_data(ours, theirs),
                    "the data set of rank 1 is another one than that of rank 0: rank 1 has 7 samples to train on in "
                    "\"training.dataset\" where rank 0 has 8 samples to train on in \"training.dataset\". Every rank "
                    "must see the same data: compare the files on the ranks' machines");
  theirs = ours;
  theirs.validation = 5;
  CHECK_THROWS_WITH(check_data(ours, theirs), Catch::Contains("rank 1 has 5 samples to validate on in"));
  theirs = ours;
  theirs.sample.features = {4};
  CHECK_THROWS_WITH(check_data(ours, theirs), Catch::Contains("rank 1 has samples of shape [4] and 2 outputs in"));
  theirs = ours;
  theirs.sample.outputs = 3;
  CHECK_THROWS_WITH(check_data(ours, theirs), Catch::Contains("where rank 0 has samples of shape [3] and 2 outputs"));
  theirs = ours;
  ours.names = {"cat", "dog"};
  theirs.names = {"cat", "fox"};
  CHECK_THROWS_WITH(check_data(ours, theirs),
                    Catch::Contains("rank 1 has class 1 \"fox\" in \"training.dataset\" where"));
}

TEST_CASE("same data: streams may differ, and each of several sets is compared in the part that is used") {
  const auto train = std::make_shared<FakeData>(), other = std::make_shared<FakeData>();
  const NamedDatasets ours({{"train", train}, {"test", train}});
  other->validation = 3;  // Nobody validates on the set that is trained on.
  CHECK_NOTHROW(check_data(ours, NamedDatasets({{"train", other}, {"test", train}})));
  CHECK_THROWS_WITH(check_data(ours, NamedDatasets({{"train", train}, {"test", other}})),
                    Catch::Contains("rank 1 has 3 samples to validate on in \"training.datasets.test\""));
  FakeData stream = *train, other_stream = *other;
  stream.streams = other_stream.streams = true;
  CHECK_NOTHROW(check_data(stream, other_stream));
}

}  // namespace sgd::worker
