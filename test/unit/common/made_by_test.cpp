#include "common/checkpoint/made_by.hpp"

#include <catch2/catch.hpp>

using namespace sgd;
namespace {

nlohmann::json made_by() {
  return {{"training",
           {{"seed", 1},
            {"shuffle", true},
            {"epochs", 5},
            {"batch_size", 32},
            {"dataset", {{"type", "idx"}, {"path", "/data"}}}}},
          {"cpus", 1},
          {"samples", {{"train", 1000}, {"validation", 100}}}};
}

nlohmann::json changed(const char* pointer, const nlohmann::json& value) {
  nlohmann::json json = made_by();
  json[nlohmann::json::json_pointer(pointer)] = value;
  return json;
}

}  // namespace

TEST_CASE("a place in the middle of an epoch holds under the order that made it") {
  const checkpoint::PlaceInEpoch begin{3, "train", 0}, middle{3, "train", 64}, validating{3, "validate", 0};
  struct Case {
    const char* key;
    nlohmann::json value;
    bool in_training, in_validation;
  };
  const Case cases[] = {{"/training/seed", 2, true, false},
                        {"/training/shuffle", false, true, false},
                        {"/training/dataset/path", "/other", true, true},
                        {"/samples/train", 999, true, false},
                        {"/samples/validation", 99, false, true},
                        {"/training/batch_size", 16, false, false},
                        {"/training/epochs", 9, false, false},
                        {"/training/seed", nullptr, false, false}};
  for (const Case& one : cases) {
    INFO(one.key);
    const nlohmann::json after = changed(one.key, one.value);
    CHECK(checkpoint::order_conflict(begin, made_by(), after).empty());
    CHECK(checkpoint::order_conflict(middle, made_by(), after).empty() != one.in_training);
    CHECK(checkpoint::order_conflict(validating, made_by(), after).empty() != one.in_validation);
  }
  CHECK(checkpoint::order_conflict(middle, made_by(), changed("/training/seed", 2)) ==
        "training.seed was 1 and is 2, in the middle of epoch 3: some of its samples would be used twice and others "
        "never. "
        "Keep it until that epoch is trained (--set training.epochs=3), and change it then");
  CHECK(checkpoint::order_conflict(middle, nullptr, made_by()).empty());
}

TEST_CASE("a pass that goes on in the next epoch holds to its order while an epoch is validated, too") {
  const checkpoint::PlaceInEpoch validating{3, "validate", 0, 64};
  nlohmann::json before = changed("/training/steps_per_epoch", 10);
  nlohmann::json after = before;
  after["training"]["seed"] = 2;
  CHECK(checkpoint::order_conflict(validating, before, after) ==
        "training.seed was 1 and is 2, in the middle of a pass over the data: some samples would be used twice and "
        "others never. Keep it until a pass ends with an epoch");
  after = before;
  after["samples"]["train"] = 999;
  CHECK_FALSE(checkpoint::order_conflict(validating, before, after).empty());
  CHECK(checkpoint::order_conflict({3, "validate", 0, 0}, before, after).empty());
  CHECK(checkpoint::place_of({{"position", {{"pass_consumed", 5}}}}).pass_consumed == 5);
}

TEST_CASE("only more epochs, and who makes batches, leave the arithmetic of steps as it was") {
  CHECK(checkpoint::is_same_arithmetic(made_by(), changed("/training/epochs", 9)));
  CHECK(checkpoint::is_same_arithmetic(made_by(), changed("/training/metrics", nlohmann::json::array())));
  CHECK(checkpoint::is_same_arithmetic(made_by(), changed("/training/profile", true)));
  CHECK(checkpoint::is_same_arithmetic(made_by(), changed("/training/loader", {{"threads", 4}})));
  CHECK_FALSE(checkpoint::is_same_arithmetic(made_by(), changed("/training/batch_size", 16)));
  CHECK_FALSE(checkpoint::is_same_arithmetic(made_by(), changed("/cpus", 2)));
  CHECK_FALSE(checkpoint::is_same_arithmetic(nullptr, made_by()));
}

TEST_CASE("the place of a state that does not say is the first epoch's beginning") {
  const checkpoint::PlaceInEpoch place = checkpoint::place_of({{"position", {{"epoch", "x"}}}});
  CHECK(place.epoch == 1);
  CHECK(place.consumed == 0);
  CHECK(checkpoint::place_of({{"position", {{"epoch", 2}, {"phase", "validate"}, {"consumed", 7}}}}).consumed == 7);
}
