// What the checkpoint writer writes, the reader reads, at any world size; and what it refuses.
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "worker/torch/checkpoint_reader.hpp"
#include "worker/torch/checkpoint_writer.hpp"
#include "worker/torch/flat_parameters.hpp"

namespace sgd::worker {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

struct Folder {
  Folder() {
    char name[] = "/tmp/sgd-checkpoint-test-XXXXXX";
    path = ::mkdtemp(name);
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  std::string path;
};

/// A layer with running statistics: buffers beside parameters.
struct Net : torch::nn::Module {
  explicit Net(bool has_empty) {
    if (has_empty) register_parameter("empty", at::zeros({0, 2}));
    if (has_empty) register_buffer("none", at::zeros({0}));
    register_module("fc", fc);
    register_module("norm", norm);
  }
  torch::nn::Linear fc{3, 2};
  torch::nn::BatchNorm1d norm{2};
};

struct Training {
  explicit Training(double momentum = 0.9, bool has_empty = false) : net(std::make_shared<Net>(has_empty)) {
    settings.momentum = momentum;
    optimizer = make_step_optimizer(settings, flat.size());
  }
  StateTensors tensors(const std::string& type = "sgd") {
    StateTensors all;
    all.flat.push_back({"", flat.values(), flat.places(), 0});
    for (const OptimizerBuffer& buffer : optimizer->buffers())
      all.flat.push_back({"." + buffer.name, buffer.values, flat.places(), 0});
    all.buffers = module_buffers({{"", net}}, flat.places());
    all.optimizers = {{"optimizer", type}};
    return all;
  }
  void fill(float value) {
    for (float& one : flat.values()) one = value++;
    for (const OptimizerBuffer& buffer : optimizer->buffers()) {
      for (float& one : buffer.values) one = value++;
    }
    const at::NoGradGuard no_gradients;
    net->norm->running_mean.fill_(value);
    net->norm->num_batches_tracked.fill_(17);
  }
  std::shared_ptr<Net> net;
  FlatParameters flat{trainable_parameters({{"", net}})};
  job::Optimizer settings;
  std::unique_ptr<StepOptimizer> optimizer;
};

OperatorState own(const nlohmann::json& json) {
  const auto text = std::make_shared<const std::string>(json.dump());
  return {*text, {}, {text}};
}

RankRecord record(double loss) {
  MetricsAccumulator metrics;
  metrics.add(4, {{"train_loss", loss}});
  return {metrics.export_state(), own({{"seen", loss}})};
}

/// As an older worker wrote it: of one optimizer, without a name.
nlohmann::json one_optimizer_form(const nlohmann::json& json) {
  nlohmann::json old = json;
  old["format"] = 2;
  old["scheduler"] = old["optimizers"][0]["schedulers"][0];
  for (const char* key : {"type", "steps"}) old["optimizer"][key] = old["optimizers"][0][key];
  old.erase("optimizers");
  return old;
}

/// As one before it did: rank 0's state alone, for all.
nlohmann::json old_form(const nlohmann::json& json) {
  nlohmann::json old = one_optimizer_form(json);
  old["format"] = 1;
  for (nlohmann::json& one : old["records"]) one = nlohmann::json(one["sums"]);
  old["user"] = old["shared"];
  old.erase("shared");
  return old;
}

TrainingState state_of(std::int64_t step) {
  TrainingState state;
  state.position = {3, "train", 96};
  state.step = step;
  state.world_size = 3;
  state.seed = 5;
  OptimizerRecord optimizer{"optimizer", "sgd", step, {}, step, {}, nlohmann::json::array()};
  optimizer.schedulers.push_back({{"count", 2}});
  state.optimizers.push_back(std::move(optimizer));
  state.records = {record(1), record(2), record(4)};
  state.shared = own({{"answer", 42}});
  state.skipped_updates = 2;
  state.rollbacks = 1;
  return state;
}

link::CheckpointSaved write(const std::string& dir, Training& training, const TrainingState& state) {
  CheckpointTarget target{dir, 2};
  link::CheckpointSaved saved;
  CheckpointWriter writer(target, [&saved](const link::FromWorker& told) {
    if (const auto* one = std::get_if<link::CheckpointSaved>(&told)) saved = *one;
  });
  writer.save(state, training.tensors(), std::chrono::steady_clock::now());
  REQUIRE(writer.wait(10s).ok());
  return saved;
}

std::vector<float> all_floats(Training& training) {
  std::vector<float> all;
  for (const ParameterPlace& place : training.flat.places()) {
    const auto values = training.flat.values().subspan(place.offset, place.count);
    all.insert(all.end(), values.begin(), values.end());
    for (const OptimizerBuffer& buffer : training.optimizer->buffers()) {
      const auto part = buffer.values.subspan(place.offset, place.count);
      all.insert(all.end(), part.begin(), part.end());
    }
  }
  return all;
}

}  // namespace

TEST_CASE("a checkpoint brings back weights, optimizer, buffers, position and the user's state") {
  const Folder folder;
  Training written;
  written.fill(100);
  const link::CheckpointSaved saved = write(folder.path, written, state_of(1200));
  CHECK(saved.path == "checkpoints/step-000000001200-gen-0002");
  CHECK(saved.step == 1200);
  CHECK(saved.epoch == 2);
  const CheckpointReader reader(folder.path + "/" + saved.path);
  Training read;
  reader.read_tensors(read.tensors());
  CHECK(all_floats(read) == all_floats(written));
  CHECK(at::equal(read.net->norm->running_mean, written.net->norm->running_mean));
  CHECK(read.net->norm->num_batches_tracked.item<std::int64_t>() == 17);
  CHECK(to_json(reader.state()) == to_json(state_of(1200)));
}

TEST_CASE("each rank's own tensors come back from a file of their own, which is not there without any") {
  const Folder folder;
  Training training;
  TrainingState state = state_of(1);
  const auto bytes = std::make_shared<const std::string>("of rank 0 and of rank 2");
  const auto part = [&bytes](std::size_t begin, std::size_t count) {
    return std::as_bytes(std::span(*bytes).subspan(begin, count));
  };
  state.records[0].own.tensors = {{"a/b", TensorType::kU8, {3, 3}, part(0, 9)}, {"none", TensorType::kF64, {0}, {}}};
  state.records[2].own.tensors = {{"a/b", TensorType::kI8, {9}, part(14, 9)}};
  for (RankRecord& one : state.records) one.own.memory.push_back(bytes);
  const link::CheckpointSaved saved = write(folder.path, training, state);
  CHECK(fs::exists(folder.path + "/" + saved.path + "/ranks.safetensors"));
  const TrainingState read = CheckpointReader(folder.path + "/" + saved.path).state();
  REQUIRE(read.records[0].own.tensors.size() == 2);
  CHECK(read.records[1].own.tensors.empty());
  REQUIRE(read.records[2].own.tensors.size() == 1);
  const auto* first = &read.records[0].own.tensors[0];
  if (first->name == "none") ++first;
  CHECK(first->name == "a/b");
  CHECK(first->shape == std::vector<std::int64_t>{3, 3});
  CHECK(std::memcmp(first->bytes.data(), bytes->data(), 9) == 0);
  CHECK(std::memcmp(read.records[2].own.tensors[0].bytes.data(), bytes->data() + 14, 9) == 0);
  CHECK(read.records[2].own.json == "{\"seen\":4.0}");
  const link::CheckpointSaved without = write(folder.path, training, state_of(2));
  CHECK_FALSE(fs::exists(folder.path + "/" + without.path + "/ranks.safetensors"));
}

TEST_CASE("tensors that belong to no rank are refused") {
  const Folder folder;
  for (const char* name : {"rank-0003/a", "rank-2/a", "rank-0001", "a", "/a", "rank--001/a", "rank-00001/a"}) {
    CAPTURE(name);
    const std::string path = folder.path + "/ranks.safetensors";
    fs::remove(path);
    const TensorBytes tensor{name, TensorType::kU8, {0}, {}};
    REQUIRE(write_safetensors(path, std::span(&tensor, 1)).ok());
    const auto file = std::make_shared<const SafetensorsFile>(std::move(SafetensorsFile::open(path)).value());
    TrainingState state = state_of(1);
    CHECK_FALSE(add_tensors(file, state).ok());
  }
}

TEST_CASE("a checkpoint of a worker that kept rank 0's state alone is read") {
  const nlohmann::json now = to_json(state_of(1200));
  const Result<TrainingState> read = parse_training_state(old_form(now));
  REQUIRE(read.ok());
  CHECK(read.value().shared_is_own);
  CHECK(read.value().shared.json == "{\"answer\":42}");
  CHECK(read.value().records[1].sums == state_of(1).records[1].sums);
  // As text between ranks it stays one.
  const std::string head = packed_head(read.value());
  const Result<TrainingState> again = unpack_training_state(joined(packed_pieces(head, read.value())));
  REQUIRE(again.ok());
  CHECK(again.value().shared_is_own);
  CHECK(again.value().shared.json == "{\"answer\":42}");
}

TEST_CASE("a checkpoint of a worker that had one optimizer is read") {
  nlohmann::json old = one_optimizer_form(to_json(state_of(1200)));
  old["optimizer"]["parameter_steps"] = {7, 8, 1200, 3};
  const Result<TrainingState> read = parse_training_state(old);
  REQUIRE(read.ok());
  OptimizerRecord expected = state_of(1200).optimizers[0];
  expected.name = "";
  expected.parameter_steps = {7, 8, 1200, 3};
  expected.groups = nullptr;
  REQUIRE(read.value().optimizers.size() == 1);
  CHECK(read.value().optimizers[0] == expected);
  CHECK_NOTHROW(check_same_optimizers(read.value().optimizers, {{"optimizer", "sgd"}}));
  CHECK_THROWS(check_same_optimizers(read.value().optimizers, {{"optimizer", "adam"}}));
  CHECK_THROWS(check_same_optimizers(read.value().optimizers, {{"a", "sgd"}, {"b", "sgd"}}));
  for (const char* path : {"/scheduler", "/optimizer/steps"}) {
    nlohmann::json json = old;
    json[nlohmann::json::json_pointer(path)] = nullptr;
    CHECK_FALSE(parse_training_state(json).ok());
  }
}

TEST_CASE("all of a state is one text, in memory and between ranks; one that is cut off or too long is refused") {
  TrainingState state = state_of(7);
  const std::string bytes = "12345678";
  state.records[1].own.tensors = {{"t", TensorType::kF32, {2, 1}, std::as_bytes(std::span(bytes))}};
  const std::string head = packed_head(state);
  const std::string text = joined(packed_pieces(head, state));
  const Result<TrainingState> whole = unpack_training_state(text);
  REQUIRE(whole.ok());
  CHECK(to_json(whole.value()) == to_json(state));
  CHECK_FALSE(whole.value().shared_is_own);
  const TensorBytes& tensor = whole.value().records[1].own.tensors.at(0);
  CHECK(tensor.name == "t");
  CHECK(tensor.type == TensorType::kF32);
  CHECK(tensor.shape == std::vector<std::int64_t>{2, 1});
  CHECK(std::memcmp(tensor.bytes.data(), bytes.data(), 8) == 0);
  for (std::size_t size = 0; size < text.size(); ++size) CHECK_FALSE(unpack_training_state(text.substr(0, size)).ok());
  CHECK_FALSE(unpack_training_state(text + "x").ok());
  const auto with = [&](const char* path, const nlohmann::json& value) {
    nlohmann::json changed = nlohmann::json::parse(head);
    changed[nlohmann::json::json_pointer(path)] = value;
    return unpack_training_state(changed.dump() + text.substr(head.size())).ok();
  };
  CHECK(with("/step", 8));
  CHECK_FALSE(with("/skipped_updates", -1));
  CHECK_FALSE(with("/rollbacks", -1));
  CHECK_FALSE(with("/shared/json_bytes", -1));
  CHECK_FALSE(with("/records/1/own/tensors/0/type", "F31"));
  CHECK_FALSE(with("/records/1/own/tensors/0/shape", {std::int64_t{1} << 62, 16}));
  CHECK_FALSE(with("/records/1/own/tensors/0/shape", {-2, 1}));
  CHECK_FALSE(with("/records/1/own/tensors", nullptr));
  CHECK_FALSE(with("/records/2/own", 0));
  CHECK_FALSE(with("/format", 1));
}

TEST_CASE("records are dealt out among another number of ranks, each once") {
  const Folder folder;
  Training training;
  const link::CheckpointSaved saved = write(folder.path, training, state_of(1));
  const CheckpointReader reader(folder.path + "/" + saved.path);
  CHECK(*reader.record(1, 3).mean("train_loss") == 2);
  CHECK(*reader.record(0, 2).mean("train_loss") == 2.5);  // Of ranks 0 and 2.
  CHECK(reader.record(0, 2).num_samples() == 8);
  CHECK(*reader.record(1, 2).mean("train_loss") == 2);
  CHECK(*reader.record(0, 1).mean("train_loss") == Approx(7.0 / 3));
  CHECK(reader.record(3, 4).num_samples() == 0);
  for (int rank = 0; rank < 4; ++rank) CHECK(reader.record(rank, 4).batch_count() == 1);  // Of the group.
  CHECK(reader.record(0, 1).batch_count() == 1);
}

TEST_CASE("another optimizer, or a model of other shapes, is refused with the file's name") {
  const Folder folder;
  Training training;
  const link::CheckpointSaved saved = write(folder.path, training, state_of(1));
  const CheckpointReader reader(folder.path + "/" + saved.path);
  Training plain(0);
  const CheckpointReader without(folder.path + "/" + write(folder.path, plain, state_of(2)).path);
  CHECK_THROWS_WITH(without.read_tensors(training.tensors()),
                    Catch::Contains("optimizer.safetensors: no tensor fc.weight.momentum_buffer"));
  CHECK_THROWS_WITH(reader.read_tensors(training.tensors("adam")),
                    Catch::Contains("\"optimizer\" (sgd), the job has \"optimizer\" (adam)"));
  StateTensors others = training.tensors();
  others.buffers.pop_back();
  CHECK_THROWS_WITH(reader.read_tensors(others), Catch::Contains("model.safetensors"));
  others = training.tensors();
  others.optimizers[0].name = "second";
  CHECK_THROWS_WITH(reader.read_tensors(others), Catch::Contains("\"optimizer\" (sgd), the job has \"second\" (sgd)"));
}

TEST_CASE("a buffer that the job's optimizer has no use for any more is left out") {
  const Folder folder;
  Training written;
  written.fill(100);
  const CheckpointReader reader(folder.path + "/" + write(folder.path, written, state_of(1)).path);
  Training plain(0);
  reader.read_tensors(plain.tensors());
  CHECK(at::equal(plain.net->fc->weight, written.net->fc->weight));
}

TEST_CASE("parameters and buffers without elements are saved as others are") {
  const Folder folder;
  Training written(0.9, true);
  written.fill(100);
  const CheckpointReader reader(folder.path + "/" + write(folder.path, written, state_of(1)).path);
  Training read(0.9, true);
  reader.read_tensors(read.tensors());
  CHECK(all_floats(read) == all_floats(written));
  Training without;
  CHECK_THROWS_WITH(reader.read_tensors(without.tensors()), Catch::Contains("model.safetensors: has 9 tensors"));
}

TEST_CASE("the same step saved again stands beside the first, which may count already") {
  const Folder folder;
  Training training;
  const link::CheckpointSaved first = write(folder.path, training, state_of(100));
  TrainingState later = state_of(100);
  later.position = {3, "validate", 8};
  const link::CheckpointSaved second = write(folder.path, training, later);
  CHECK(first.path == "checkpoints/step-000000000100-gen-0002");
  CHECK(second.path == "checkpoints/step-000000000100-gen-0002-2");
  CHECK(CheckpointReader(folder.path + "/" + first.path).state().position.phase == "train");
  CHECK(CheckpointReader(folder.path + "/" + second.path).state().position.phase == "validate");
}

TEST_CASE("a checkpoint that cannot be written costs nothing but itself") {
  const Folder folder;
  Training training;
  std::ofstream(folder.path + "/checkpoints") << "in the way";
  CHECK(write(folder.path, training, state_of(100)).path.empty());
}

TEST_CASE("a writer says whether its last save is on disk, and can have its memory before the first") {
  const Folder folder;
  Training training;
  training.fill(3);
  CheckpointTarget target{folder.path, 2};
  CheckpointWriter writer(target, [](const link::FromWorker&) {});
  writer.prepare(training.tensors());
  REQUIRE(writer.wait(10s).ok());
  CHECK_FALSE(writer.last_is_on_disk());
  const auto save = [&](std::int64_t step) {
    writer.save(state_of(step), training.tensors(), std::chrono::steady_clock::now());
    writer.prepare(training.tensors());  // Too late: the write goes on.
    REQUIRE(writer.wait(10s).ok());
  };
  save(100);
  CHECK(writer.last_is_on_disk());
  writer.prepare(training.tensors());  // There already.
  CHECK_FALSE(writer.busy());
  fs::rename(folder.path + "/checkpoints", folder.path + "/kept");
  std::ofstream(folder.path + "/checkpoints") << "in the way";
  save(200);
  CHECK_FALSE(writer.last_is_on_disk());
  fs::remove(folder.path + "/checkpoints");
  fs::rename(folder.path + "/kept", folder.path + "/checkpoints");
  save(300);
  CHECK(writer.last_is_on_disk());
  CHECK(std::distance(fs::directory_iterator(folder.path + "/checkpoints"), fs::directory_iterator()) == 2);
}

TEST_CASE("a writer that gets no memory beforehand does not end the process") {
  const Folder folder;
  CheckpointTarget target{folder.path, 2};
  CheckpointWriter writer(target, [](const link::FromWorker&) {});
  float one = 0;
  StateTensors tensors;
  tensors.flat.push_back({"", {&one, std::size_t{1} << 50}, {}, 0});  // More than an address space has.
  writer.prepare(tensors);
  REQUIRE(writer.wait(10s).ok());
  CHECK_FALSE(writer.last_is_on_disk());
}

TEST_CASE("a writer that runs out of memory, or is let down by what it tells, gives up one checkpoint") {
  const Folder folder;
  Training training;
  training.fill(3);
  CheckpointTarget target{folder.path, 2};
  std::string failed;
  CheckpointWriter writer(target, [&failed](const link::FromWorker& told) {
    if (std::holds_alternative<link::CheckpointSaved>(told)) throw std::bad_alloc();
    failed = std::get<link::CheckpointFailed>(told).reason;
  });
  writer.save(state_of(100), training.tensors(), std::chrono::steady_clock::now());
  REQUIRE(writer.wait(10s).ok());
  CHECK(failed == "out of memory");
  CHECK_FALSE(writer.last_is_on_disk());
}

TEST_CASE("state.json is refused field by field") {
  const nlohmann::json good = to_json(state_of(1));
  REQUIRE(parse_training_state(good).ok());
  const std::vector<std::pair<const char*, nlohmann::json>> bad = {{"/format", 4},
                                                                   {"/position/epoch", 0},
                                                                   {"/position/phase", "test"},
                                                                   {"/position/consumed", -1},
                                                                   {"/step", "many"},
                                                                   {"/world_size", 2},
                                                                   {"/records", 3},
                                                                   {"/records/1", 3},
                                                                   {"/optimizers", nullptr},
                                                                   {"/optimizers/0/schedulers/0", 1},
                                                                   {"/optimizers/0/steps", {}}};
  for (const auto& [path, value] : bad) {
    nlohmann::json json = good;
    json[nlohmann::json::json_pointer(path)] = value;
    CHECK_FALSE(parse_training_state(json).ok());
  }
}

}  // namespace sgd::worker
