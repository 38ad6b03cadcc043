// Models and losses in a job file: their keys, what goes together, and what goes with the data.

#include <catch2/catch.hpp>

#include <algorithm>

#include "job_support.hpp"

namespace sgd {
namespace {

using Lines = std::vector<std::string>;

const std::string kTokenData = R"({"type": "tokens", "train": "a", "validation": "b"})";
const std::string kImageData = R"({"type": "synthetic", "shape": [3, 32, 32]})";
const std::string kRowData = R"({"type": "csv", "train": "a", "validation": "b", "columns": {"target": "y"}})";

/// The model in line 2, the loss, where there is one, in line 3.
test::Loaded load_model(const std::string& model, const std::string& dataset, const std::string& loss = "") {
  return test::load_text("{\"training\": {\"batch_size\": 8, \"dataset\": " + dataset + ",\n\"model\": " + model +
                         (loss.empty() ? "" : ",\n\"loss\": " + loss) + "}}");
}

Lines model_lines(const std::string& model, const std::string& dataset, const std::string& loss = "") {
  return load_model(model, dataset, loss).lines;
}

nlohmann::json loss_of(const std::string& loss, const std::string& dataset = kImageData) {
  const test::Loaded loaded = load_model(R"({"type": "resnet18"})", dataset, loss);
  CHECK(loaded.lines.empty());
  REQUIRE(loaded.result.job.has_value());
  CHECK(job::load_resolved(loaded.result.job->resolved).job->training->loss == loaded.result.job->training->loss);
  return loaded.result.job->training->loss;
}

}  // namespace

TEST_CASE("job: a loss is a name, or an object with options and defaults") {
  CHECK(loss_of("\"nll\"") == nlohmann::json{{"type", "nll"}});
  CHECK(loss_of(R"({"type": "cross_entropy", "label_smoothing": 0.1})") ==
        nlohmann::json{{"type", "cross_entropy"}, {"label_smoothing", 0.1}, {"ignore_index", -100}});
  const std::string numbers = R"({"type": "synthetic", "shape": [3, 32, 32], "targets": "numbers"})";
  const auto regression = [&](const std::string& loss) {
    return model_lines(R"({"type": "resnet18", "outputs": 1})", numbers, loss);
  };
  for (const char* loss : {"\"mse\"", "\"l1\"", "\"smooth_l1\"", "\"huber\"", "\"bce_with_logits\"",
                           R"({"type": "huber", "delta": 0.5})", R"({"type": "bce_with_logits", "pos_weight": [2]})"})
    CHECK(regression(loss).empty());
  CHECK(regression("\"nll\"") ==
        Lines{R"(job.json:3:9: error: "training.loss" must be "mse", "l1", "smooth_l1", "huber" or "bce_with_logits" )"
              R"(with the data set "synthetic", whose targets are numbers; got "nll")"});
  CHECK(regression(R"({"type": "huber", "delta": 0})") ==
        Lines{R"(job.json:3:36: error: "training.loss.delta" must be above 0, got 0)"});
  CHECK(
      regression(R"({"type": "huber", "beta": 1})") ==
      Lines{R"(job.json:3:27: error: unknown key "beta" in "training.loss" of type "huber"; type "smooth_l1" has it)"});
  CHECK(regression(R"({"type": "MSELoss"})") ==
        Lines{R"(job.json:3:18: error: "training.loss.type" "MSELoss" is called "mse" here)"});
  CHECK(regression("5") ==
        Lines{R"(job.json:3:9: error: "training.loss" must be a name such as "cross_entropy", or an object such as )"
              R"({"type": "cross_entropy"}, got 5)"});
}

TEST_CASE("job: weights of classes are as many as the model's outputs") {
  const std::string model = R"({"type": "resnet18", "outputs": 10})";
  CHECK(model_lines(model, kImageData, R"({"type": "nll", "weight": [1, 2]})") ==
        Lines{R"(job.json:3:35: error: "training.loss.weight" must have 10 numbers, one for each output of the model; )"
              R"(got 2)"});
  CHECK(model_lines(model, kImageData, R"({"type": "nll", "weight": [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]})").empty());
  CHECK(model_lines(model, kImageData, R"({"type": "nll", "weight": [-1]})").size() == 1);
}

TEST_CASE("job: models have defaults and refuse what they cannot be") {
  const test::Loaded loaded = load_model(R"({"type": "resnet50"})", kImageData);
  REQUIRE(loaded.lines.empty());
  const nlohmann::json& model = loaded.result.job->training->model;
  CHECK(model["stem"] == "imagenet");
  CHECK(model["width"] == 64);
  CHECK(model["init"] == "default");
  CHECK_FALSE(model.contains("weights"));
  CHECK(model_lines(R"({"type": "resnet50", "stem": "cifer"})", kImageData) ==
        Lines{R"(job.json:2:39: error: "training.model.stem" must be "imagenet" or "cifar", got "cifer"; did you mean )"
              R"("cifar"?)"});
  CHECK(model_lines(R"({"type": "resnet"})", kImageData) ==
        Lines{R"(job.json:2:19: error: "training.model.type" "resnet" is called "resnet18" here)"});
  CHECK(model_lines(R"({"type": "lenet", "dropout": 1})", kImageData) ==
        Lines{R"(job.json:2:39: error: "training.model.dropout" must be below 1, got 1)"});
  CHECK(model_lines(R"({"type": "lenet", "channels": [1]})", kImageData).size() == 1);
  CHECK(model_lines(R"({"type": "torchscript"})", kImageData) ==
        Lines{R"(job.json:2:10: error: missing key "file" in "training.model")"});
}

TEST_CASE("job: what a model begins with") {
  const auto resolved = [](const std::string& more) {
    const test::Loaded loaded = load_model(R"({"type": "mlp", "inputs": 3072, )" + more + "}", kImageData);
    CHECK(loaded.lines.empty());
    REQUIRE(loaded.result.job.has_value());
    return loaded.result.job->training->model;
  };
  CHECK(resolved(R"("init": "kaiming_normal")")["init"] == "kaiming_normal");
  CHECK(resolved(R"("init": {"type": "normal"})")["init"] == nlohmann::json{{"type", "normal"}, {"std", 0.02}});
  CHECK(resolved(R"("weights": "w.safetensors")")["weights"].get<std::string>().ends_with("/w.safetensors"));
  const nlohmann::json weights = resolved(R"("weights": {"file": "w", "exclude": ["fc2."]})")["weights"];
  CHECK(weights["file"].get<std::string>().starts_with("/"));
  CHECK(weights["partial"] == false);
  CHECK(weights["prefix"] == "");
  const auto lines = [](const std::string& more) {
    return model_lines(R"({"type": "mlp", "inputs": 3072, )" + more + "}", kImageData);
  };
  CHECK(lines(R"("init": "kaiming_norma")") ==
        Lines{R"(job.json:2:50: error: "training.model.init" must be "default", "zeros", "xavier_uniform", )"
              R"("xavier_normal", "kaiming_uniform", "kaiming_normal" or "normal", got "kaiming_norma"; did you mean )"
              R"("kaiming_normal"?)"});
  CHECK(lines(R"("init": {"type": "normal", "std": -1})").size() == 1);
  CHECK(lines(R"("weights": 5)") ==
        Lines{R"(job.json:2:53: error: "training.model.weights" must be a path, or an object such as )"
              R"({"file": "pretrained.safetensors"}, got 5)"});
  CHECK(lines(R"("weights": {"file": "w", "prefx": "a"})") ==
        Lines{R"(job.json:2:67: error: unknown key "prefx" in "training.model.weights"; did you mean "prefix"?)"});
}

TEST_CASE("job: tokens go to a transformer, and nothing else does") {
  const auto text = [](const std::string& more) { return R"({"type": "transformer")" + more + "}"; };
  CHECK(model_lines(text(""), kTokenData).empty());
  CHECK(model_lines(text(R"(, "task": "classification", "outputs": 2)"), kRowData).empty());
  CHECK(model_lines(text(""), kImageData) ==
        Lines{R"(job.json:2:19: error: the model "transformer" takes tokens, and the samples of the data set )"
              R"("synthetic" are not: take the data set "tokens")"});
  CHECK(model_lines(text(""), kRowData) ==
        Lines{R"(job.json:2:19: error: the model "transformer" takes tokens, and the samples of the data set "csv" )"
              R"(are not: take the data set "tokens", or set training.model.task="classification")"});
  CHECK(model_lines(text(R"(, "task": "classification", "outputs": 2)"), kTokenData) ==
        Lines{R"(job.json:2:42: error: a target of the data set "tokens" is the next token: )"
              R"(set training.model.task="language_model")"});
  for (const char* type : {"cnn", "lenet", "resnet18", "fcn", "mlp"})
    CHECK_THAT(model_lines("{\"type\": \"" + std::string(type) + "\"}", kTokenData).front(),
               Catch::Contains("needs a model with an embedding"));
  CHECK(model_lines(text(R"(, "embedding": 30, "heads": 4)"), kTokenData) ==
        Lines{R"(job.json:2:47: error: "training.model.embedding" must be a multiple of "heads" (4), got 30)"});
  CHECK(model_lines(text(R"(, "outputs": 30)"), kTokenData).front().find("remove \"outputs\"") != std::string::npos);
  CHECK(model_lines(text(R"(, "task": "classification")"), kRowData) ==
        Lines{R"(job.json:2:10: error: missing key "outputs" in "training.model": the task "classification" needs the )"
              R"(number of classes)"});
  CHECK(model_lines(text(R"(, "task": "classification", "outputs": 2, "tied": true)"), kRowData).size() == 1);
}

TEST_CASE("job: models and images go together") {
  CHECK_THAT(model_lines(R"({"type": "resnet18"})", R"({"type": "synthetic", "shape": [784]})").front(),
             Catch::Contains("the model \"resnet18\" takes images (channels x rows x columns)"));
  CHECK_THAT(model_lines(R"({"type": "lenet"})", R"({"type": "synthetic", "shape": [3, 15, 32]})").front(),
             Catch::Contains("images of at least 16 x 16 pixels"));
  CHECK_THAT(
      model_lines(R"({"type": "resnet34"})", R"({"type": "synthetic", "shape": [3, 8, 8], "classes": 11})").front(),
      Catch::Contains("set training.model.outputs=11"));
  CHECK_THAT(model_lines(R"({"type": "fcn"})", kImageData).front(),
             Catch::Contains("the model \"fcn\" gives classes for each pixel"));
}

TEST_CASE("job: segmentation cannot be deterministic on GPUs") {
  const auto is_refused = [](const std::string& model, const std::string& training) {
    const Lines lines =
        test::load_text(R"({"training": {"batch_size": 8, "dataset": {"type": "image_masks", "path": "d"}, )"
                        R"("loss": "cross_entropy", "model": {"type": ")" +
                        model + "\"}, " + training + "}}")
            .lines;
    return std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
      return line.find("\"training.deterministic\" is not for the model \"fcn\" on GPUs") != std::string::npos;
    });
  };
  CHECK(is_refused("fcn", R"("deterministic": true, "device": "cuda")"));
  CHECK_FALSE(is_refused("fcn", R"("deterministic": true)"));
  CHECK_FALSE(is_refused("fcn", R"("device": "cuda")"));
  CHECK_FALSE(is_refused("resnet18", R"("deterministic": true, "device": "cuda")"));
}

TEST_CASE("job: files of models are looked for before anything starts") {
  const test::TemporaryFolder folder;
  const auto lines = [&](const std::string& model) {
    job::LoadResult loaded =
        job::load_job_file(folder.write("job.json", "{\"training\": {\"batch_size\": 8, \"dataset\": " + kImageData +
                                                        ",\n\"model\": " + model + "}}"),
                           {});
    REQUIRE(loaded.job.has_value());
    job::check_data(*loaded.job, "job.json", loaded.diagnostics);
    return test::lines_of(loaded.diagnostics, folder.path(""));
  };
  CHECK(lines(R"({"type": "lenet", "weights": "none.safetensors"})") ==
        Lines{"job.json:2:39: error: the weights file none.safetensors does not exist"});
  CHECK(lines(R"({"type": "torchscript", "file": "none.pt"})") ==
        Lines{"job.json:2:42: error: the TorchScript file none.pt does not exist"});
  folder.write("there.pt", "x");
  CHECK(lines(R"({"type": "torchscript", "file": "there.pt"})").empty());
}

TEST_CASE("job: a plug-in's models begin with weights, too, unless they mean something else by it") {
  const nlohmann::json registered =
      nlohmann::json::parse(R"({"model": {"wide": {}, "own": {"weights": {"type": "integer", "default": 3}}}})");
  const auto model_of = [&](const std::string& model) {
    const test::TemporaryFolder folder;
    const job::LoadResult loaded = job::load_job_file(
        folder.write("job.json", R"({"plugins": ["./l.so"], "training": {"batch_size": 4, "dataset": )" + kImageData +
                                     ", \"model\": " + model + "}}"),
        {}, registered);
    CHECK(test::lines_of(loaded.diagnostics, "\n").empty());
    REQUIRE(loaded.job.has_value());
    return loaded.job->training->model;
  };
  CHECK(model_of(R"({"type": "wide", "weights": "w"})")["weights"].get<std::string>().starts_with("/"));
  CHECK(model_of(R"({"type": "wide"})")["init"] == "default");
  CHECK(model_of(R"({"type": "own"})")["weights"] == 3);
}

}  // namespace sgd
