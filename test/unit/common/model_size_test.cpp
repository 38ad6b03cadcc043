#include "common/job/model_size.hpp"

#include <catch2/catch.hpp>

using namespace sgd;
TEST_CASE("a model takes the samples of its data set, or the key that is wrong is named") {
  struct SizeCase {
    nlohmann::json model;
    job::SampleSizes sample;
    bool has_classes;
    const char* path;
  };
  const SizeCase cases[] = {
      {{{"type", "cnn"}, {"outputs", 10}}, {1, 28, 28}, true, nullptr},
      {{{"type", "cnn"}, {"outputs", 10}}, {1, 5, 28}, true, "training.model.type"},
      {{{"type", "cnn"}, {"outputs", 10}}, {1}, false, "training.model.type"},
      {{{"type", "mlp"}, {"inputs", 784}, {"outputs", 10}}, {1, 28, 28}, true, nullptr},
      {{{"type", "mlp"}, {"inputs", 784}, {"outputs", 10}}, {1, 32, 32}, true, "training.model.inputs"},
      {{{"type", "cnn"}, {"outputs", 10}}, {3, 32, 32}, true, nullptr},
      {{{"type", "cnn"}, {"outputs", 10}}, {28, 28}, true, "training.model.type"},
      {{{"type", "linear"}, {"inputs", 1}, {"outputs", 1}}, {1}, false, nullptr},
      {{{"type", "linear"}, {"inputs", 1}, {"outputs", 2}}, {1}, false, "training.model.outputs"},
      {{{"type", "lenet"}, {"outputs", 10}}, {1, 16, 16}, true, nullptr},
      {{{"type", "lenet"}, {"outputs", 10}}, {1, 28, 15}, true, "training.model.type"},
      {{{"type", "resnet18"}, {"outputs", 10}}, {3, 1, 1}, true, nullptr},
      {{{"type", "resnet50"}, {"outputs", 10}}, {784}, true, "training.model.type"},
      {{{"type", "resnet34"}, {"outputs", 10}}, {3, 32, 32}, false, "training.model.outputs"},
      {{{"type", "fcn"}, {"outputs", 2}}, {3, 32}, true, "training.model.type"},
      {{{"type", "transformer"}, {"vocabulary", 9}}, {16}, true, nullptr},
      {{{"type", "transformer"}, {"task", "classification"}, {"outputs", 2}}, {3, 16}, true, "training.model.type"},
      {{{"type", "torchscript"}, {"outputs", 3}}, {3, 16}, false, nullptr},  // Nothing is known of it.
  };
  for (const SizeCase& one : cases) {
    INFO(one.model.dump());
    const auto misfit = job::model_misfit(one.model, one.sample, one.has_classes);
    CHECK(misfit.has_value() == (one.path != nullptr));
    if (misfit && one.path != nullptr) CHECK(misfit->path == one.path);
  }
}

TEST_CASE("parameters are counted as the worker makes them") {
  CHECK(job::parameter_count({{"type", "linear"}, {"outputs", 1}}, {1}) == 2);
  CHECK(job::parameter_count({{"type", "mlp"}, {"hidden", {256, 128}}, {"outputs", 10}}, {1, 28, 28}) ==
        785 * 256 + 257 * 128 + 129 * 10);
  CHECK(job::parameter_count({{"type", "cnn"}, {"channels", {32, 64}}, {"hidden", 128}, {"outputs", 10}},
                             {1, 28, 28}) == 320 + 18496 + (64 * 144 + 1) * 128 + 129 * 10);
  CHECK(job::parameter_count({{"type", "cnn"}, {"channels", {32, 64}}, {"hidden", 128}, {"outputs", 10}},
                             {3, 32, 32}) == 896 + 18496 + (64 * 196 + 1) * 128 + 129 * 10);
  const auto resnet = [](const char* type, const char* stem) {
    return nlohmann::json{{"type", type}, {"stem", stem}, {"width", 64}, {"outputs", 1000}};
  };
  CHECK(job::parameter_count(resnet("resnet18", "imagenet"), {3, 224, 224}) == 11689512);  // As torchvision counts.
  CHECK(job::parameter_count(resnet("resnet34", "imagenet"), {3, 224, 224}) == 21797672);
  CHECK(job::parameter_count(resnet("resnet50", "imagenet"), {3, 224, 224}) == 25557032);
  CHECK(job::parameter_count(resnet("resnet18", "cifar"), {3, 32, 32}) == 11689512 - (49 - 9) * 3 * 64);
  CHECK(job::parameter_count({{"type", "lenet"}, {"channels", {6, 16}}, {"hidden", {120, 84}}, {"outputs", 10}},
                             {1, 32, 32}) == 61706);
  CHECK(job::parameter_count({{"type", "torchscript"}, {"file", "x"}}, {1}) == 0);
  job::JobSpec job;
  job.num_workers = 2;
  job.training.emplace();
  job.training->model = {{"type", "linear"}, {"outputs", 1}};
  job.training->optimizer.type = "adam";
  job.checkpoint.memory = false;
  job.checkpoint.every = job::CheckpointPolicy::Every::kNever;
  CHECK(job::bytes_needed(job, {1}) == 2 * 4 * 2 * 4);
  job.checkpoint.memory = true;
  job.checkpoint.every = job::CheckpointPolicy::Every::kEpoch;
  CHECK(job::bytes_needed(job, {1}) == 2 * 4 * (2 * 4 + 3 * 3));
}
