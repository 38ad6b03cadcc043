// What the checkpoint writer writes, the reader reads, at any world size; and what it refuses.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "worker/torch/checkpoint_reader.hpp"
#include "worker/torch/checkpoint_writer.hpp"

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
  Net() {
    register_module("fc", fc);
    register_module("norm", norm);
  }
  torch::nn::Linear fc{3, 2};
  torch::nn::BatchNorm1d norm{2};
};

struct Training {
  explicit Training(double momentum = 0.9) {
    settings.momentum = momentum;
    optimizer = make_step_optimizer(settings, flat.size());
  }
  void fill(float value) {
    for (float& one : flat.values()) one = value++;
    for (const OptimizerBuffer& buffer : optimizer->buffers()) {
      for (float& one : buffer.values) one = value++;
    }
    const at::NoGradGuard no_gradients;
    net.norm->running_mean.fill_(value);
    net.norm->num_batches_tracked.fill_(17);
  }
  Net net;
  FlatParameters flat{net};
  job::Optimizer settings;
  std::unique_ptr<StepOptimizer> optimizer;
};

nlohmann::json record(double loss) {
  MetricsAccumulator metrics;
  metrics.add(4, {{"train_loss", loss}});
  return metrics.export_state();
}

TrainingState state_of(std::int64_t step) {
  TrainingState state;
  state.position = {3, "train", 96};
  state.step = step;
  state.world_size = 3;
  state.seed = 5;
  state.scheduler["count"] = 2;
  state.optimizer = "sgd";
  state.optimizer_steps = step;
  state.records = {record(1), record(2), record(4)};
  state.user["answer"] = 42;
  return state;
}

link::CheckpointSaved write(const std::string& dir, Training& training, const TrainingState& state) {
  CheckpointTarget target{dir, 2, training.flat.places(), training.flat.size()};
  link::CheckpointSaved saved;
  CheckpointWriter writer(target, [&saved](const link::FromWorker& told) {
    if (const auto* one = std::get_if<link::CheckpointSaved>(&told)) saved = *one;
  });
  writer.save(state, training.flat.values(), training.optimizer->buffers(), module_buffers(training.net),
              std::chrono::steady_clock::now());
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
  reader.read_tensors(read.flat, read.net, *read.optimizer, "sgd");
  CHECK(all_floats(read) == all_floats(written));
  CHECK(at::equal(read.net.norm->running_mean, written.net.norm->running_mean));
  CHECK(read.net.norm->num_batches_tracked.item<std::int64_t>() == 17);
  CHECK(to_json(reader.state()) == to_json(state_of(1200)));
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
  CHECK_THROWS_WITH(reader.read_tensors(plain.flat, plain.net, *plain.optimizer, "sgd"),
                    Catch::Contains("optimizer.safetensors"));
  CHECK_THROWS_WITH(reader.read_tensors(training.flat, training.net, *training.optimizer, "adam"),
                    Catch::Contains("\"sgd\"") && Catch::Contains("\"adam\""));
  torch::nn::Linear other(4, 2);
  FlatParameters flat(*other);
  const auto optimizer = make_step_optimizer(training.settings, flat.size());
  CHECK_THROWS_WITH(reader.read_tensors(flat, *other, *optimizer, "sgd"), Catch::Contains("model.safetensors"));
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
  CheckpointTarget target{folder.path, 2, training.flat.places(), training.flat.size()};
  CheckpointWriter writer(target, [](const link::FromWorker&) {});
  writer.prepare(training.optimizer->buffers().size());
  REQUIRE(writer.wait(10s).ok());
  CHECK_FALSE(writer.last_is_on_disk());
  const auto save = [&](std::int64_t step) {
    writer.save(state_of(step), training.flat.values(), training.optimizer->buffers(), module_buffers(training.net),
                std::chrono::steady_clock::now());
    writer.prepare(training.optimizer->buffers().size());  // Too late: the write goes on.
    REQUIRE(writer.wait(10s).ok());
  };
  save(100);
  CHECK(writer.last_is_on_disk());
  writer.prepare(training.optimizer->buffers().size());  // There already.
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
  CheckpointTarget target{folder.path, 2, {}, std::size_t{1} << 50};  // Floats: more than an address space has.
  CheckpointWriter writer(target, [](const link::FromWorker&) {});
  writer.prepare(0);
  REQUIRE(writer.wait(10s).ok());
  CHECK_FALSE(writer.last_is_on_disk());
}

TEST_CASE("a writer that runs out of memory, or is let down by what it tells, gives up one checkpoint") {
  const Folder folder;
  Training training;
  training.fill(3);
  CheckpointTarget target{folder.path, 2, training.flat.places(), training.flat.size()};
  std::string failed;
  CheckpointWriter writer(target, [&failed](const link::FromWorker& told) {
    if (std::holds_alternative<link::CheckpointSaved>(told)) throw std::bad_alloc();
    failed = std::get<link::CheckpointFailed>(told).reason;
  });
  writer.save(state_of(100), training.flat.values(), training.optimizer->buffers(), module_buffers(training.net),
              std::chrono::steady_clock::now());
  REQUIRE(writer.wait(10s).ok());
  CHECK(failed == "out of memory");
  CHECK_FALSE(writer.last_is_on_disk());
}

TEST_CASE("state.json is refused field by field") {
  const nlohmann::json good = to_json(state_of(1));
  REQUIRE(parse_training_state(good).ok());
  const std::vector<std::pair<const char*, nlohmann::json>> bad = {{"/format", 2},
                                                                   {"/position/epoch", 0},
                                                                   {"/position/phase", "test"},
                                                                   {"/position/consumed", -1},
                                                                   {"/step", "many"},
                                                                   {"/world_size", 2},
                                                                   {"/records", 3},
                                                                   {"/scheduler", nullptr},
                                                                   {"/optimizer/steps", {}}};
  for (const auto& [path, value] : bad) {
    nlohmann::json json = good;
    json[nlohmann::json::json_pointer(path)] = value;
    CHECK_FALSE(parse_training_state(json).ok());
  }
}

}  // namespace sgd::worker
