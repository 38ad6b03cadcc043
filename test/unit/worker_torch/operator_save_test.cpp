// What an operator keeps of its own, from state() to load_states(): equal to the bit, at any world size.
#include "worker/torch/operator_save.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <catch2/catch.hpp>

#include "worker/torch/rank_message.hpp"
#include "worker/torch/tensor_types.hpp"

namespace sgd::worker::operator_save {
namespace {

/// Keeps what it is told to, and what it gets.
class Keeping : public TrainingOperator {
 public:
  [[nodiscard]] nlohmann::json state() const override { return own; }
  [[nodiscard]] NamedTensors state_tensors() const override { return tensors; }
  [[nodiscard]] nlohmann::json shared_state() const override { return shared; }
  void load_state(const nlohmann::json& state) override { own = state; }
  void load_state_tensors(NamedTensors given) override { tensors = std::move(given); }
  void load_shared_state(const nlohmann::json& state) override { shared = state; }

  nlohmann::json own = nlohmann::json::object();
  nlohmann::json shared = nlohmann::json::object();
  NamedTensors tensors;
};

/// Joins what several ranks have left.
class Joining : public TrainingOperator {
 public:
  void load_states(std::vector<nlohmann::json> given) override { states = std::move(given); }
  void load_states_tensors(std::vector<NamedTensors> given) override {
    for (NamedTensors& one : given) values.push_back(one.at("value").item<std::int64_t>());
  }
  std::vector<nlohmann::json> states;
  std::vector<std::int64_t> values;
};

/// What a checkpoint of a group holds, after the way that it takes through all ranks and a memory checkpoint.
TrainingState saved(const std::vector<Keeping>& group) {
  TrainingState state;
  state.world_size = static_cast<int>(group.size());
  for (std::size_t rank = 0; rank < group.size(); ++rank) {
    RankMessage message;
    message.record.own = own_state_of(group[rank], static_cast<int>(rank));
    if (rank == 0) message.shared = shared_state_of(group[rank]);
    Result<RankMessage> told = decode_rank_message(encode(message));
    REQUIRE(told.ok());
    state.records.push_back(std::move(told.value().record));
    if (rank == 0) state.shared = std::move(told.value().shared);
  }
  const std::string head = packed_head(state);
  Result<TrainingState> again = unpack_training_state(joined(packed_pieces(head, state)));
  REQUIRE(again.ok());
  return std::move(again).value();
}

std::vector<Keeping> group_of(int size) {
  std::vector<Keeping> group(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    Keeping& one = group[static_cast<std::size_t>(rank)];
    one.own["rank"] = rank;
    one.shared["all"] = 10 + rank;  // Rank 0's counts.
    one.tensors["value"] = at::scalar_tensor(rank, at::kLong);
  }
  return group;
}

bool same_bits(const at::Tensor& one, const at::Tensor& other) {
  return one.scalar_type() == other.scalar_type() && one.sizes() == other.sizes() &&
         std::memcmp(one.contiguous().data_ptr(), other.contiguous().data_ptr(), one.nbytes()) == 0;
}

}  // namespace

TEST_CASE("each rank gets its own state back, equal to the bit") {
  std::vector<Keeping> group = group_of(3);
  Keeping& kept = group[1];
  kept.own = {{"tenth", 0.1},
              {"tiny", std::numeric_limits<double>::denorm_min()},
              {"zero", -0.0},
              {"one", 1.0},
              {"most", std::numeric_limits<std::uint64_t>::max()},
              {"text", std::string("\0 and \u00e9", 8)},
              {"list", {1, nullptr, true, {{"deep", 1e300}}}}};
  for (int type = 0; type < 13; ++type) {
    const auto ours = static_cast<TensorType>(type);
    at::Tensor bytes = at::empty({3, 5}, scalar_type_of(ours));
    for (std::size_t i = 0; i < bytes.nbytes(); ++i)
      static_cast<std::uint8_t*>(bytes.data_ptr())[i] =
          static_cast<std::uint8_t>(ours == TensorType::kBool ? i % 2 : 37 * i);
    kept.tensors[name_of(ours)] = bytes;
  }
  kept.tensors["nan"] = at::full({2}, std::bit_cast<float>(0x7fc12345u));
  kept.tensors["scalar"] = at::scalar_tensor(3.5);
  kept.tensors["empty"] = at::empty({0, 4}, at::kInt);
  kept.tensors["turned"] = at::arange(12).reshape({3, 4}).t();
  kept.tensors["undefined"] = at::Tensor();
  const TrainingState state = saved(group);
  Keeping restored;
  give_back(state, 1, 3, restored);
  CHECK(restored.own == kept.own);
  CHECK(restored.own.dump() == kept.own.dump());
  CHECK(std::signbit(restored.own["zero"].get<double>()));
  CHECK(restored.shared["all"] == 10);
  kept.tensors.erase("undefined");
  REQUIRE(restored.tensors.size() == kept.tensors.size());
  for (const auto& [name, tensor] : kept.tensors) {
    CAPTURE(name);
    CHECK(same_bits(tensor, restored.tensors.at(name)));
  }
}

TEST_CASE("in a group of another size every saved state goes to one rank") {
  const TrainingState state = saved(group_of(5));
  const std::vector<std::pair<int, std::vector<std::vector<std::int64_t>>>> table = {
      {1, {{0, 1, 2, 3, 4}}},
      {2, {{0, 2, 4}, {1, 3}}},
      {4, {{0, 4}, {1}, {2}, {3}}},
      {5, {{0}, {1}, {2}, {3}, {4}}},
      {7, {{0}, {1}, {2}, {3}, {4}, {}, {}}},
  };
  for (const auto& [world_size, given] : table) {
    for (int rank = 0; rank < world_size; ++rank) {
      CAPTURE(world_size, rank);
      const auto& expected = given[static_cast<std::size_t>(rank)];
      Joining joining;
      give_back(state, rank, world_size, joining);
      CHECK(joining.values == expected);
      REQUIRE(joining.states.size() == expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) CHECK(joining.states[i]["rank"] == expected[i]);
      // By default the first is taken; a rank that gets none stays as setup() has made it.
      Keeping plain;
      plain.own = "as it was";
      give_back(state, rank, world_size, plain);
      CHECK(plain.shared["all"] == 10);
      CHECK(plain.own == (expected.empty() ? nlohmann::json("as it was") : nlohmann::json{{"rank", expected[0]}}));
      CHECK(plain.tensors.size() == (expected.empty() ? 0u : 1u));
    }
  }
}

TEST_CASE("what a worker of before has kept of rank 0 goes to every rank, as shared and as its own") {
  TrainingState state = saved(group_of(2));
  state.shared_is_own = true;
  for (int rank = 0; rank < 3; ++rank) {
    Keeping restored;
    restored.tensors["value"] = at::scalar_tensor(7);
    give_back(state, rank, 3, restored);
    CHECK(restored.own["all"] == 10);
    CHECK(restored.shared["all"] == 10);
    CHECK(restored.tensors.at("value").item<int>() == 7);  // It kept none.
  }
}

TEST_CASE("what could not come back exactly is refused when it is saved, with rank and place") {
  Keeping kept;
  const auto refusal = [&kept](const nlohmann::json& own) {
    kept.own = own;
    try {
      (void)own_state_of(kept, 3);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refusal({{"best", {0.5, std::numeric_limits<double>::infinity()}}}) ==
        "state() of rank 3 holds a number that is not finite at \"/best/1\", which JSON has no text for: keep it in "
        "state_tensors(), or in words of your own");
  CHECK_THAT(refusal({{"loss", std::nan("")}}), Catch::Contains("not finite at \"/loss\""));
  CHECK_THAT(refusal({{"raw", nlohmann::json::binary({1, 2})}}), Catch::Contains("binary data at \"/raw\""));
  CHECK(refusal({{"name", nlohmann::json::array({"\xff"})}}) ==
        "state() of rank 3 holds a string that is not UTF-8 at \"/name/0\", which JSON has no text for: keep it in "
        "state_tensors(), or in words of your own");
  CHECK_THAT(refusal({{"in", {{"\xff", 1}}}}), Catch::Contains("a key that is not UTF-8 at \"/in\""));
  CHECK(refusal({{"fine", 1}}).empty());
  kept.shared["best"] = std::nan("");
  CHECK_THROWS_WITH(shared_state_of(kept), Catch::StartsWith("shared_state() of rank 0 holds a number"));
  kept.tensors["wave"] = at::zeros({2}, at::kComplexFloat);
  CHECK_THROWS_WITH(own_state_of(kept, 3),
                    Catch::Contains("\"wave\" in state_tensors() of rank 3 has the type Complex"));
  kept.tensors = {{"rare", at::zeros({2, 2}).to_sparse()}};
  CHECK_THROWS_WITH(own_state_of(kept, 3), Catch::Contains("\"rare\" in state_tensors() of rank 3 is not dense"));
}

TEST_CASE("a function is told of the tensors that it has") {
  OperatorState state;
  const nlohmann::json values = {{"x", std::nan("")}};
  CHECK_THROWS_WITH(json_state_of("save_checkpoint()", 0, values, kFunctionTensors),
                    Catch::Contains("keep it in the tensors of save_checkpoint(), or in words of your own"));
  CHECK_THROWS_WITH(check_json_bytes("save_checkpoint()", 0, kStateJsonBytesMax + 1, kFunctionTensors),
                    Catch::EndsWith("keep what is large in the tensors of save_checkpoint()"));
  CHECK_THROWS_WITH(add_tensors({{"rare", at::zeros({2, 2}).to_sparse()}}, 0, state, kFunctionTensors),
                    Catch::StartsWith("tensor \"rare\" in the tensors of save_checkpoint() of rank 0 is not dense"));
}

TEST_CASE("a state over a limit is an error with rank, size and limit; limits kStateJsonBytesMax, kGatherBytesMax") {
  CHECK_NOTHROW(check_json_bytes("state()", 3, kStateJsonBytesMax));
  CHECK_THROWS_WITH(check_json_bytes("state()", 3, kStateJsonBytesMax + 1),
                    "state() of rank 3 has 67108865 bytes as JSON, and the limit is 67108864: keep what is large in "
                    "state_tensors()");
  CHECK_NOTHROW(check_rank_bytes(3, kGatherBytesMax));
  CHECK_THROWS_WITH(
      check_rank_bytes(3, kGatherBytesMax + 1),
      "state() and state_tensors() of rank 3 have 1073741825 bytes, and the limit is 1073741824: keep less, "
      "or in files of your own");
  Keeping kept;
  kept.own = std::string(kStateJsonBytesMax, 'x');  // And its quotes.
  CHECK_THROWS_WITH(own_state_of(kept, 1), Catch::StartsWith("state() of rank 1 has 67108866 bytes as JSON"));
}

TEST_CASE("what ranks tell when a save is due is read, or refused") {
  RankMessage message;
  message.record.sums = {{"batch_count", 3}};
  message.has_unsent = true;
  const std::string text = encode(message);
  const Result<RankMessage> told = decode_rank_message(text);
  REQUIRE(told.ok());
  CHECK(told.value().record.sums == message.record.sums);
  CHECK(told.value().has_unsent);
  CHECK_FALSE(told.value().is_busy);
  for (const char* bad : {"", "[]", "{}", "{\"own\":1,\"shared\":{}}"}) CHECK_FALSE(decode_rank_message(bad).ok());
  CHECK_FALSE(decode_rank_message(text.substr(0, text.size() - 1)).ok());
}

}  // namespace sgd::worker::operator_save
