// Data sets in a job file: their keys, what goes together, and what the launcher sees of their files.

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "common/job/data_facts.hpp"
#include "data_bytes.hpp"
#include "job_support.hpp"

namespace sgd {
namespace {

using Lines = std::vector<std::string>;

/// The dataset in line 2, the rest of "training" in line 3.
std::string dataset_job(const std::string& dataset, const std::string& training) {
  return "{\"training\": {\"batch_size\": 8,\n\"dataset\": " + dataset + ",\n" + training + "}}";
}

const char* const kMlp = R"("model": {"type": "mlp", "inputs": 2})";
const char* const kRegression = R"("loss": "mse", "model": {"type": "linear", "inputs": 2})";

Lines dataset_lines(const std::string& dataset, const std::string& training = kMlp) {
  return test::load_text(dataset_job(dataset, training)).lines;
}

/// What check_data() says of a job beside the files in `folder`.
Lines file_lines(const test::TemporaryFolder& folder, const std::string& dataset, const std::string& training = kMlp) {
  job::LoadResult loaded = job::load_job_file(folder.write("job.json", dataset_job(dataset, training)), {});
  CHECK(test::lines_of(loaded.diagnostics, folder.path("")).empty());
  if (loaded.job) job::check_data(*loaded.job, "job.json", loaded.diagnostics);
  return test::lines_of(loaded.diagnostics, folder.path(""));
}

}  // namespace

TEST_CASE("job: data sets have defaults, and absolute paths in lists and globs") {
  const test::TemporaryFolder folder;
  const auto resolved = [&](const std::string& dataset, const std::string& training) {
    const job::LoadResult loaded = job::load_job_file(folder.write("job.json", dataset_job(dataset, training)), {});
    CHECK(test::lines_of(loaded.diagnostics, folder.path("")).empty());
    REQUIRE(loaded.job.has_value());
    CHECK(job::load_resolved(loaded.job->resolved).job->resolved == loaded.job->resolved);
    return loaded.job->training->dataset;
  };
  const auto cifar = resolved(
      R"({"type": "cifar", "train": ["a_*.bin", "/b"], "validation": "c", "transforms": [{"type": "horizontal_flip"}]})",
      R"("model": {"type": "cnn"})");
  CHECK(cifar["train"] == nlohmann::json({folder.path("a_*.bin"), "/b"}));
  CHECK(cifar["validation"] == folder.path("c"));
  CHECK(cifar["variant"] == "cifar10");
  CHECK(cifar["transforms"][0]["probability"] == 0.5);
  const auto csv = resolved(R"({"type": "csv", "train": "a", "validation": "b", "columns": {"target": "y"}})", kMlp);
  CHECK(csv["header"] == true);
  CHECK(csv["separator"] == ",");
  CHECK(csv["targets"] == "classes");
  CHECK_FALSE(csv.contains("filter"));
  const auto npy = resolved(R"({"type": "npy", "train": {"features": "x", "target": "y"},
                                "validation": {"features": "x", "target": "y"}})",
                            kMlp);
  CHECK(npy["train"]["features"] == folder.path("x"));
  const auto synthetic = resolved(R"({"type": "synthetic", "shape": [2]})", kMlp);
  CHECK(synthetic["classes"] == 10);
  CHECK(synthetic["seed"] == 0);
}

TEST_CASE("job: mistakes in data sets stand at their keys") {
  const auto csv = [](const std::string& more) {
    return dataset_lines(R"({"type": "csv", "train": "a", "validation": "b", )" + more + "}");
  };
  CHECK(dataset_lines(R"({"type": "cifar", "validation": "a"})", R"("model": {"type": "cnn"})") ==
        Lines{R"(job.json:2:12: error: missing key "train" in "training.dataset")"});
  CHECK(
      dataset_lines(R"({"type": "cifar", "train": 5, "validation": [], "variant": "cifar1O"})",
                    R"("model": {"type": "cnn"})") ==
      Lines{
          R"(job.json:2:39: error: "training.dataset.train" must be a path or glob, or a list of them, got 5)",
          R"(job.json:2:56: error: "training.dataset.validation" must have at least 1 items, got 0)",
          R"(job.json:2:71: error: "training.dataset.variant" must be "cifar10", "cifar100" or "cifar100_coarse", got "cifar1O"; did you mean "cifar10"?)"});
  CHECK(csv(R"("columns": {"features": ["a"]})") ==
        Lines{R"(job.json:2:72: error: missing key "target" in "training.dataset.columns")"});
  CHECK(csv(R"("columns": {"target": -1}, "separator": "tab")") ==
        Lines{R"(job.json:2:83: error: "training.dataset.columns.target" must be at least 0, got -1)",
              R"(job.json:2:101: error: "training.dataset.separator" must be ",", ";", "\t" or "|", got "tab")"});
  CHECK(csv(R"("columns": {"target": 0}, "delimiter": ";")") ==
        Lines{R"(job.json:2:87: error: unknown key "delimiter" in "training.dataset" of type "csv"; )"
              R"(use "training.dataset.separator")"});
  CHECK(csv(R"("columns": {"target": 0}, "filter": {"column": "a", "op": "<", "value": "b"})") ==
        Lines{R"(job.json:2:133: error: "training.dataset.filter.value" must be a number with "op" "<", got "b")"});
  CHECK(csv(R"("columns": {"target": 0}, "filter": {"column": "a", "op": "=", "value": 1})").size() == 1);
  CHECK(csv(R"("columns": {"target": "y"}, "header": false)") ==
        Lines{R"(job.json:2:83: error: "training.dataset.columns.target" must be numbers from 0: without a header )"
              R"(columns have no names)"});
  CHECK(dataset_lines(R"({"type": "npy", "train": {"features": "x"}, "validation": "y"})") ==
        Lines{R"(job.json:2:37: error: missing key "target" in "training.dataset.train")",
              R"(job.json:2:70: error: "training.dataset.validation" must be an object, got "y")"});
  CHECK(dataset_lines(R"({"type": "synthetic", "shape": [0], "samples": 4294967296})") ==
        Lines{R"(job.json:2:44: error: "training.dataset.shape[0]" must be at least 1, got 0)",
              R"(job.json:2:59: error: "training.dataset.samples" must be at most 4294967295, got 4294967296)"});
  CHECK(dataset_lines(R"({"type": "synthetic", "shape": [65535, 65535]})") ==
        Lines{R"(job.json:2:43: error: "training.dataset.shape" must have at most 16777216 numbers a sample, )"
              R"(got 4294836225)"});
}

TEST_CASE("job: without data to validate on nothing may need validation") {
  const test::TemporaryFolder folder;
  folder.write("a.csv", "x,y,label\n1,2,0\n");
  const std::string csv = R"({"type": "csv", "train": "a.csv", "columns": {"target": "label"}})";
  CHECK(file_lines(folder, csv).empty());
  CHECK(file_lines(folder, R"({"type": "csv", "train": "b.csv", "columns": {"target": "label"}})") ==
        Lines{"job.json:2:37: error: data file b.csv does not exist"});
  const test::Loaded loaded = test::load_text(dataset_job(csv, kMlp));
  REQUIRE(loaded.result.job);
  CHECK_FALSE(loaded.result.job->training->has_validation);
  CHECK_FALSE((*loaded.result.job->resolved)["training"]["dataset"].contains("validation"));
  CHECK_FALSE(job::load_resolved(loaded.result.job->resolved).job->training->has_validation);
  const std::string both = R"({"type": "csv", "train": "a", "validation": "b", "columns": {"target": "label"}})";
  CHECK(test::load_text(dataset_job(both, kMlp)).result.job->training->has_validation);
  const auto needs = [&](const std::string& training) {
    const Lines lines = dataset_lines(csv, kMlp + (",\n" + training));
    return lines.size() == 1 ? lines.front() : fmt::format("{} lines", lines.size());
  };
  const std::string words =
      " needs validation, and \"training.dataset\" has no \"validation\": add it, or leave this out";
  CHECK(needs(R"("early_stop": {"metric": "val_loss"})") == "job.json:4:15: error: \"training.early_stop\"" + words);
  CHECK(needs(R"("validate_only": true)") == "job.json:4:18: error: \"training.validate_only\"" + words);
  CHECK(needs(R"("scheduler": {"type": "reduce_on_plateau"})") ==
        "job.json:4:23: error: \"training.scheduler.type\"" + words);
  CHECK(needs(R"("metrics": ["accuracy"])") == "job.json:4:13: error: \"training.metrics[0]\"" + words);
  CHECK(dataset_lines(csv, std::string(kMlp) + R"(, "metrics": [{"type": "accuracy", "on": "train"}])").empty());
}

TEST_CASE("job: mistakes in transforms name the step") {
  const auto idx = [](const std::string& transforms) {
    return dataset_lines(R"({"type": "idx", "path": "/d", "transforms": )" + transforms + "}",
                         R"("model": {"type": "cnn"})");
  };
  CHECK(idx(R"([{"type": "random_crop"}, {"type": "normalize", "mean": [0.5], "std": [0.5]}])").empty());
  CHECK(
      idx(R"([{"type": "random_crop", "padding": -1}, {"type": "flip"}])") ==
      Lines{
          R"(job.json:2:92: error: "training.dataset.transforms[0].padding" must be at least 0, got -1)",
          R"(job.json:2:106: error: "training.dataset.transforms[1].type" must be "cutout", "horizontal_flip", "normalize" or "random_crop", got "flip")"});
  CHECK(idx(R"([{"type": "normalize", "mean": [0.5, 0.5], "std": [0.5]}])") ==
        Lines{R"(job.json:2:56: error: "training.dataset.transforms[0].mean" must have 1 number, one for each channel )"
              R"(of the images; got 2)"});
  CHECK(idx(R"([{"type": "normalize", "mean": [0.5], "std": [0]}])") ==
        Lines{R"(job.json:2:102: error: "training.dataset.transforms[0].std[0]" must be at least 1e-06, got 0)"});
}

TEST_CASE("job: loss, model and data set go together") {
  CHECK(dataset_lines(R"({"type": "synthetic", "shape": [2], "targets": "numbers"})", kRegression).empty());
  CHECK_THAT(dataset_lines(R"({"type": "synthetic", "shape": [2], "targets": "numbers"})").front(),
             Catch::Contains("whose targets are numbers"));
  CHECK_THAT(dataset_lines(R"({"type": "synthetic", "shape": [2]})", kRegression).front(),
             Catch::Contains("whose targets are classes"));
  CHECK(dataset_lines(R"({"type": "synthetic", "shape": [3]})") ==
        Lines{R"(job.json:3:36: error: the model takes 2 inputs, and a sample of this data set has 3)"});
  CHECK(dataset_lines(R"({"type": "synthetic", "shape": [2], "classes": 11})") ==
        Lines{"job.json:3:10: error: the model gives 10 outputs, and the data set has 11 classes: set "
              "training.model.outputs=11"});
  CHECK(dataset_lines(R"({"type": "cifar", "train": "a", "validation": "b", "variant": "cifar100"})",
                      R"("model": {"type": "cnn"})")
            .size() == 1);
  CHECK(dataset_lines(R"({"type": "tokens", "train": "a", "validation": "b"})") ==
        Lines{R"(job.json:3:19: error: the model "mlp" takes numbers, and the samples of this data set are tokens: it )"
              R"(needs a model with an embedding)"});
}

TEST_CASE("job: files of data sets are looked at before anything starts") {
  const test::TemporaryFolder folder;
  folder.write("train_1.bin", test::cifar_record("a", 0));
  folder.write("train_2.bin", test::cifar_record("a", 0) + "cut");
  const Lines cifar = file_lines(folder, R"({"type": "cifar", "train": "train_*.bin", "validation": "test.bin"})",
                                 R"("model": {"type": "cnn"})");
  CHECK(cifar == Lines{"job.json:2:39: error: data file train_2.bin is truncated: record 1 (the first is 0) has 3 "
                       "bytes, expected 3073",
                       "job.json:2:68: error: data file test.bin does not exist"});
  folder.write("a.csv", "x,y,label\n1,2,0\n");
  folder.write("b.csv", "x,label\n1,0\n");
  const std::string csv = R"({"type": "csv", "train": "a.csv", "validation": "TEST", "columns": {"target": "label"}})";
  const auto with = [&](const std::string& file) { return std::string(csv).replace(csv.find("TEST"), 4, file); };
  CHECK(file_lines(folder, with("a.csv")).empty());
  CHECK(file_lines(folder, with("b.csv")) ==
        Lines{"job.json:2:60: error: data file b.csv:1: no column \"y\" in its header, which the first file has"});
  const std::string without =
      R"({"type": "csv", "header": false, "train": "a.csv", "validation": "b.csv", "columns": {"target": 0}})";
  CHECK(file_lines(folder, without) == Lines{"job.json:2:77: error: samples to validate on have shape 1 and targets of "
                                             "1, those to train on shape 2 and targets of 1"});
  CHECK(file_lines(folder, with("a.csv"), R"("model": {"type": "mlp", "inputs": 3})") ==
        Lines{"job.json:3:36: error: the model takes 3 inputs, and a sample of this data set has 2"});
  folder.write("x.npy", test::npy_file(test::npy_header("<f4", "(3, 2)"), std::string(24, 'x')));
  folder.write("y.npy", test::npy_file(test::npy_header("<f8", "(3, 2)"), std::string(48, 'y')));
  const std::string npy = R"({"type": "npy", "targets": "numbers", "train": {"features": "x.npy", "target": "y.npy"},
                              "validation": {"features": "x.npy", "target": "y.npy"}})";
  CHECK(file_lines(folder, npy, R"("loss": "mse", "model": {"type": "linear", "inputs": 2, "outputs": 2})").empty());
  CHECK(file_lines(folder, npy, kRegression).back().find("a target of this data set is 2 numbers") !=
        std::string::npos);
}

TEST_CASE("job: CSV files have the same columns by name, in any order") {
  const test::TemporaryFolder folder;
  folder.write("a.csv", "x,y,label\n1,2,0\n");
  folder.write("b.csv", "label,y,x\n0,2,1\n");
  folder.write("c.csv", "label,z,x\n0,2,1\n");
  const auto lines = [&](const char* train, const char* validation) {
    return file_lines(folder, R"({"type": "csv", "columns": {"target": "label"}, "train": )" + std::string(train) +
                                  R"(, "validation": ")" + validation + "\"}");
  };
  CHECK(lines(R"(["a.csv", "b.csv"])", "b.csv").empty());
  CHECK_THAT(lines(R"(["a.csv", "c.csv"])", "b.csv").at(0),
             Catch::Contains("c.csv:1: a column \"z\" in its header, which the first file does not have"));
  CHECK_THAT(lines("\"a.csv\"", "c.csv").at(0),
             Catch::Contains("c.csv:1: a column \"z\" in its header, which the first file does not have"));
}

TEST_CASE("job: image data sets have defaults, and mistakes stand at their keys") {
  const test::TemporaryFolder folder;
  const std::string cnn = R"("model": {"type": "cnn"})";
  const job::LoadResult loaded = job::load_job_file(
      folder.write("job.json", dataset_job(R"({"type": "image_folder", "train": "a", "validation": "/b"})", cnn)), {});
  REQUIRE(loaded.job.has_value());
  CHECK(loaded.job->training->dataset == nlohmann::json{{"type", "image_folder"},
                                                        {"train", folder.path("a")},
                                                        {"validation", "/b"},
                                                        {"size", {224, 224}},
                                                        {"channels", 3},
                                                        {"resize", "crop"}});
  const auto images = [&](const std::string& more, const std::string& training) {
    return dataset_lines(R"({"type": "image_folder", "train": "a", "validation": "b", )" + more + "}", training);
  };
  CHECK(
      images(R"("size": [32], "channels": 4, "resize": "fit")", cnn) ==
      Lines{
          R"(job.json:2:78: error: "training.dataset.size" must have exactly 2 items, got 1)",
          R"(job.json:2:96: error: "training.dataset.channels" must be at most 3, got 4)",
          R"(job.json:2:109: error: "training.dataset.resize" must be "crop", "stretch" or "random_resized_crop", got )"
          R"("fit")"});
  CHECK(images(R"("channels": 2)", cnn) ==
        Lines{R"(job.json:2:82: error: "training.dataset.channels" must be 3 (colour) or 1 (grey), got 2)"});
  CHECK(
      images(R"("size": [4096, 4096])", cnn) ==
      Lines{
          R"(job.json:2:78: error: "training.dataset.size" must have at most 16777216 numbers a sample, got 50331648)"});
  CHECK(images(R"("channels": 1, "transforms": [{"type": "normalize", "mean": [0, 0, 0], "std": [1, 1, 1]}])", cnn)
            .size() == 1);
  CHECK(images(R"("size": [8, 8])", R"("model": {"type": "mlp", "inputs": 784})") ==
        Lines{R"(job.json:3:36: error: the model takes 784 inputs, and a sample of this data set has 192)"});
  CHECK(dataset_lines(R"({"type": "ImageFolder", "train": "a", "validation": "b"})", cnn) ==
        Lines{R"(job.json:2:21: error: "training.dataset.type" "ImageFolder" is called "image_folder" here)"});
  const std::string masks = R"({"type": "image_masks", "train": {"images": "a", "masks": "b"},
"validation": {"images": "a"}, "ignore": 256})";
  CHECK(dataset_lines(masks, cnn) ==
        Lines{R"(job.json:3:15: error: missing key "masks" in "training.dataset.validation")",
              R"(job.json:3:42: error: "training.dataset.ignore" must be at most 255, got 256)"});
  CHECK(
      dataset_lines(R"({"type": "image_masks", "train": {"images": "a", "masks": "b"}, "validation": {"images": "a", )"
                    R"("masks": "b"}})",
                    cnn) ==
      Lines{R"(job.json:3:19: error: the model "cnn" gives one answer for an image, and this data set has a class for )"
            R"(each pixel: take "fcn")"});
}

TEST_CASE("job: folders of images are looked at before anything starts") {
  const test::TemporaryFolder folder;
  const std::string images = R"({"type": "image_folder", "train": "train", "validation": "val", "size": [8, 8]})";
  const std::string two = R"("model": {"type": "cnn", "outputs": 2})";
  CHECK(file_lines(folder, images, two) == Lines{"job.json:2:46: error: data folder train: No such file or directory",
                                                 "job.json:2:69: error: data folder val: No such file or directory"});
  for (const char* name : {"train/a/1.png", "train/b/1.jpg", "train/c/1.jpg", "val/a/1.png", "val/d/1.png"})
    folder.write(name, "x");
  CHECK(
      file_lines(folder, images, two) ==
      Lines{
          "job.json:2:69: error: the classes of the two folders differ: the folder to validate on lacks b, c, and has "
          "d, which is not trained on",
          "job.json:3:37: error: the model gives 2 outputs, and the data set has 3 classes: set "
          "training.model.outputs=3"});
  const Result<job::SplitFacts> facts =
      job::look_at_split({{"type", "image_folder"}, {"train", folder.path("train")}, {"size", {8, 8}}}, "train");
  CHECK(facts.value().samples == 3);
  CHECK(facts.value().sample == job::SampleSizes{3, 8, 8});
  const std::string masks = R"({"type": "image_masks", "train": {"images": "train/a", "masks": "val/a"},
"validation": {"images": "train/b", "masks": "train/c"}})";
  job::LoadResult loaded =
      job::load_job_file(folder.write("job.json", "{\"plugins\": [\"p.so\"], " +
                                                      dataset_job(masks, R"("model": {"type": "own"})").substr(1)),
                         {});
  REQUIRE(loaded.job.has_value());
  job::check_data(*loaded.job, "job.json", loaded.diagnostics);
  CHECK(test::lines_of(loaded.diagnostics, folder.path("")) ==
        Lines{"job.json:3:15: error: data file train/c/1.jpg: expected a PNG file, whose pixels keep their values"});
  CHECK(job::look_at_split(loaded.job->training->dataset, "train").value().samples == 1);
}

TEST_CASE("job: the loader has threads and batches ahead") {
  const auto loaded = [](const std::string& loader) {
    return test::load_text(test::training_job("", "\n\"loader\": " + loader));
  };
  const job::Training plain = *test::load_text(test::training_job()).result.job->training;
  CHECK_FALSE(plain.loader.threads.has_value());
  CHECK(plain.loader.prefetch == 4);
  const job::Training given = *loaded(R"({"threads": 3, "prefetch": 7})").result.job->training;
  CHECK(given.loader.threads == 3);
  CHECK(given.loader.prefetch == 7);
  CHECK_FALSE(loaded(R"({"threads": "auto"})").result.job->training->loader.threads.has_value());
  CHECK(loaded(R"({"threads": 65, "prefetch": 0})").lines ==
        Lines{R"(job.json:2:23: error: "training.loader.threads" must be at most 64, got 65)",
              R"(job.json:2:39: error: "training.loader.prefetch" must be at least 1, got 0)"});
  CHECK(
      loaded(R"({"threads": "two"})").lines ==
      Lines{
          R"(job.json:2:23: error: "training.loader.threads" must be an integer from 0 to 64, or "auto", got "two")"});
  CHECK(loaded(R"({"workers": 2})").lines.front().find("unknown key \"workers\" in \"training.loader\"") !=
        std::string::npos);
}

TEST_CASE("job: samples are counted where headers and sizes tell") {
  const test::TemporaryFolder folder;
  folder.write("a.bin", test::cifar_record("a", 0) + test::cifar_record("b", 0));
  folder.write("b.bin", test::cifar_record("a", 0));
  const nlohmann::json cifar{{"type", "cifar"}, {"train", folder.path("*.bin")}, {"variant", "cifar10"}};
  const Result<job::SplitFacts> facts = job::look_at_split(cifar, "train");
  REQUIRE(facts.ok());
  CHECK(facts.value().samples == 3);
  CHECK(facts.value().sample == job::SampleSizes{3, 32, 32});
  const std::string tokens = folder.write("t", std::string(18, 'x'));
  CHECK(job::look_at_split({{"type", "tokens"}, {"train", tokens}, {"length", 4}, {"dtype", "u16"}}, "train")
            .value()
            .samples == 2);
  CHECK(job::look_at_split({{"type", "synthetic"}, {"validation_samples", 7}, {"shape", {2}}}, "validation")
            .value()
            .samples == 7);
}

}  // namespace sgd
