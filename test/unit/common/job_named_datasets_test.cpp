// "training.datasets" in a job file, and "training.data_parallel".

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "common/job/named_datasets.hpp"
#include "data_bytes.hpp"
#include "job_support.hpp"

namespace sgd {
namespace {

using Lines = std::vector<std::string>;

/// The data sets in line 2, the rest of "training" in line 3.
std::string several(const std::string& datasets, const std::string& training = R"("model": {"type": "mlp"})") {
  return "{\"training\": {\"batch_size\": 8,\n\"datasets\": " + datasets + ",\n" + training + "}}";
}

Lines several_lines(const std::string& datasets, const std::string& training = R"("model": {"type": "mlp"})") {
  return test::load_text(several(datasets, training)).lines;
}

}  // namespace

TEST_CASE("job: data sets by name have defaults and absolute paths, and need their own part alone") {
  const test::TemporaryFolder folder;
  const job::LoadResult loaded = job::load_job_file(
      folder.write("job.json",
                   several(R"({"train": {"type": "csv", "train": "a.csv", "columns": {"features": [0], "target": 1}},
          "validation": {"type": "csv", "validation": ["b.csv"], "columns": {"features": [0], "target": 1}},
          "more": {"type": "synthetic", "shape": [1]}})",
                           R"("model": {"type": "mlp", "inputs": 1})")),
      {});
  REQUIRE(test::lines_of(loaded.diagnostics, folder.path("")).empty());
  const job::Training& training = *loaded.job->training;
  REQUIRE(training.datasets.size() == 3);
  CHECK(training.dataset == training.datasets.at("train"));
  CHECK(training.dataset["train"] == folder.path("a.csv"));
  CHECK(training.dataset["validation"] == folder.path("a.csv"));  // Read by nobody.
  CHECK(training.dataset["separator"] == ",");
  CHECK(training.datasets.at("validation")["train"] == nlohmann::json({folder.path("b.csv")}));
  CHECK(training.datasets.at("more")["classes"] == 10);
  CHECK(job::load_resolved(loaded.job->resolved).job->training->datasets == training.datasets);
  CHECK((*loaded.job->resolved)["training"]["datasets"]["train"].contains("validation") == false);
}

TEST_CASE("job: mistakes in data sets by name stand at their keys") {
  const std::string idx = R"({"type": "idx", "path": "a"})";
  CHECK(several_lines("{\"validation\": " + idx + "}") ==
        Lines{R"(job.json:2:13: error: missing key "train" in "training.datasets": operators train on it)"});
  CHECK(several_lines("{\"train\": " + idx + "}").empty());
  CHECK_FALSE(test::load_text(several("{\"train\": " + idx + "}")).result.job->training->has_validation);
  CHECK(several_lines("{\"train\": " + idx + "}", R"("model": {"type": "mlp"}, "validate_only": true)") ==
        Lines{R"(job.json:3:44: error: "training.validate_only" needs validation, and "training.datasets" has no )"
              R"("validation": add it, or leave this out)"});
  CHECK(
      several_lines(R"({"train": {"type": "idxx"}, "validation": {"type": "idx", "pth": "a"}})") ==
      Lines{
          R"(job.json:2:32: error: "training.datasets.train.type" must be "cifar", "csv", "idx", "image_folder", )"
          R"("image_masks", "linear", "npy", "synthetic" or "tokens", got "idxx"; did you mean "idx"?)",
          R"(job.json:2:55: error: missing key "path" in "training.datasets.validation")",
          R"(job.json:2:71: error: unknown key "pth" in "training.datasets.validation" of type "idx"; did you mean "path"?)"});
  CHECK(several_lines("{\"train\": " + idx + R"(, "validation": {"type": "npy"}})") ==
        Lines{R"(job.json:2:67: error: missing key "validation" in "training.datasets.validation")"});
  CHECK(several_lines("{\"train\": " + idx + ", \"validation\": " + idx + R"(, "a.b": {"type": "linear"}})").at(0) ==
        R"(job.json:2:1: error: "training.datasets": a name has letters, digits, '_' and '-', got "a.b")");
  CHECK(several_lines("{\"train\": " + idx + ", \"validation\": " + idx + "}",
                      "\"model\": {\"type\": \"mlp\"}, \"dataset\": " + idx) ==
        Lines{R"(job.json:2:1: error: "dataset" and "datasets" exclude each other: remove one)"});
  CHECK(several_lines(R"({"train": {"type": "linear"}, "validation": {"type": "linear"}})",
                      R"("model": {"type": "mlp", "inputs": 1, "outputs": 1})") ==
        Lines{R"(job.json:1:14: error: "training.loss" must be "mse", "l1", "smooth_l1", "huber" or "bce_with_logits" )"
              R"(with the data set "linear", whose targets are numbers; got "cross_entropy")"});
  CHECK_THAT(
      several_lines("{\"train\": " + idx + R"(, "validation": {"type": "synthetic", "shape": [9], "classes": 99}})",
                    R"("model": {"type": "mlp", "outputs": 10})")
          .at(0),
      Catch::Contains("the model gives 10 outputs, and the data set has 99 classes"));
  CHECK_THAT(
      several_lines("{\"train\": " + idx + R"(, "validation": {"type": "synthetic", "shape": [99999, 99999]}})").at(0),
      Catch::Contains("\"training.datasets.validation.shape[0]\" must be at most 65535"));
}

TEST_CASE("job: files of data sets by name are looked at, each for its own part") {
  const test::TemporaryFolder folder;
  const auto said = [&](const std::string& datasets) {
    const std::string text = several(datasets, R"("model": {"type": "mlp", "inputs": 2})");
    job::LoadResult loaded = job::load_job_file(folder.write("job.json", text), {});
    CHECK(test::lines_of(loaded.diagnostics, folder.path("")).empty());
    if (loaded.job) job::check_data(*loaded.job, "job.json", loaded.diagnostics);
    return test::lines_of(loaded.diagnostics, folder.path(""));
  };
  folder.write("two-x.npy", test::npy_file(test::npy_header("<f4", "(1, 2)"), std::string(8, '\0')));
  folder.write("three-x.npy", test::npy_file(test::npy_header("<f4", "(1, 3)"), std::string(12, '\0')));
  folder.write("y.npy", test::npy_file(test::npy_header("<i8", "(1,)"), std::string(8, '\0')));
  const auto npy = [](const char* part, const char* features) {
    return fmt::format(R"({{"type": "npy", "{}": {{"features": "{}", "target": "y.npy"}}}})", part, features);
  };
  CHECK(said("{\"train\": " + npy("train", "two-x.npy") + ", \"validation\": " + npy("validation", "two-x.npy") + "}")
            .empty());
  CHECK_THAT(
      said("{\"train\": " + npy("train", "two-x.npy") + ", \"validation\": " + npy("validation", "gone.npy") + "}")
          .at(0),
      Catch::StartsWith("job.json:2:109: error: ") && Catch::Contains("gone.npy"));
  CHECK_THAT(
      said("{\"train\": " + npy("train", "two-x.npy") + ", \"validation\": " + npy("validation", "three-x.npy") + "}")
          .at(0),
      Catch::Contains("\"training.datasets.validation\": its samples have shape 3") && Catch::Contains("shape 2"));
  folder.write("a.csv", "x,y,label\n1,2,0\n");
  folder.write("b.csv", "label,y,x\n0,2,1\n");
  folder.write("c.csv", "label,z,x\n0,2,1\n");
  const auto csv = [](const char* part, const char* file) {
    return fmt::format(R"({{"type": "csv", "{}": "{}", "columns": {{"target": "label"}}}})", part, file);
  };
  CHECK(said("{\"train\": " + csv("train", "a.csv") + ", \"validation\": " + csv("validation", "b.csv") +
             ", \"others\": " + csv("validation", "c.csv") + "}")
            .empty());
  CHECK_THAT(
      said("{\"train\": " + csv("train", "a.csv") + ", \"validation\": " + csv("validation", "c.csv") + "}").at(0),
      Catch::Contains("c.csv:1: a column \"z\" in its header, which the first file does not have"));
}

TEST_CASE("job: batch normalization over all workers is refused on GPUs") {
  const auto lines = [](const char* top, const char* device) {
    return test::load_text(test::training_job(top, "\n\"device\": \"" + std::string(device) +
                                                       "\",\n\"data_parallel\": {\"sync_batchnorm\": true}"))
        .lines;
  };
  const Lines refused{
      R"(job.json:3:37: error: "training.data_parallel.sync_batchnorm" is for the CPU, and this job computes on GPUs: )"
      R"(leave it out, or set "training.device" to "cpu")"};
  CHECK(lines("", "cuda") == refused);
  CHECK(lines(R"("per_worker": {"gpus": 1})", "auto") == refused);
  CHECK(lines("", "auto").empty());
  CHECK(lines("", "cpu").empty());
}

TEST_CASE("job: what workers have in common beside gradients") {
  const auto training = [](const std::string& more) { return test::load_text(test::training_job("", "\n" + more)); };
  const test::Loaded plain = training(R"("seed": 1)");
  CHECK(plain.result.job->training->broadcast_buffers);
  CHECK_FALSE(plain.result.job->training->sync_batchnorm);
  const test::Loaded other = training(R"("data_parallel": {"broadcast_buffers": false, "sync_batchnorm": true})");
  CHECK_FALSE(other.result.job->training->broadcast_buffers);
  CHECK(other.result.job->training->sync_batchnorm);
  CHECK(
      training(R"("data_parallel": {"sync_batchnrm": 1, "broadcast_buffers": "no"})").lines ==
      Lines{
          R"(job.json:2:19: error: unknown key "sync_batchnrm" in "training.data_parallel"; did you mean "sync_batchnorm"?)",
          R"(job.json:2:60: error: "training.data_parallel.broadcast_buffers" must be true or false, got "no")"});
  CHECK(training(R"("precision": "fp16")").result.job->training->precision == "fp16");
  CHECK_FALSE(plain.result.job->training->channels_last);
  CHECK(
      training(R"("memory_format": "channels_last")").lines ==
      Lines{R"(job.json:2:18: error: "training.memory_format" is "channels_last", which is for images, and a data set )"
            R"(of type "linear" has none: leave it out)"});
  const test::Loaded images = test::load_text(
      R"({"training": {"batch_size": 8, "loss": "cross_entropy", "model": {"type": "mlp", "inputs": 192, "outputs": 10},)"
      R"( "memory_format": "channels_last", "dataset": {"type": "synthetic", "shape": [3, 8, 8]}}})");
  CHECK(images.lines == Lines{});
  CHECK(images.result.job->training->channels_last);
  CHECK_THAT(test::load_text(test::training_job("\"checkpoint\": {\"every\": \"never\"}", "\n\"on_nan\": \"rollback\""))
                 .lines.at(0),
             Catch::StartsWith("job.json:2:11: error: \"training.on_nan\" \"rollback\" goes back to checkpoints"));
  CHECK(test::load_text(test::training_job("\"checkpoint\": {\"every\": \"never\"}",
                                           "\n\"on_nan\": \"rollback\", \"validate_only\": true"))
            .lines == Lines{});
}

}  // namespace sgd
