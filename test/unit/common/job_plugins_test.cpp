// Jobs that name plug-ins: what passes unchecked, what is checked once it is known what they register.
#include <catch2/catch.hpp>

#include "common/json/extension.hpp"
#include "test/unit/common/job_support.hpp"

namespace sgd {
namespace {

using Lines = std::vector<std::string>;

const nlohmann::json kRegistered = nlohmann::json::parse(R"({
  "operator": {"gan": {"latent": {"type": "integer", "minimum": 1, "default": 100},
                       "data": {"type": "string", "x-path": true},
                       "rates": {"type": "array", "items": {"type": "number"}, "default": [0.1]}}},
  "model": {"wide": {"width": {"type": "integer", "default": 64}}}
})");

std::string job_text(const std::string& training, const std::string& top = R"("plugins": ["./libmine.so"], )") {
  return "{" + top + R"("training": {"batch_size": 4, "dataset": {"type": "linear"}, "loss": "mse", )" + training +
         "}}";
}

test::Loaded load(const std::string& training, const nlohmann::json& registered,
                  const std::string& top = R"("plugins": ["./libmine.so"], )") {
  test::TemporaryFolder folder;
  test::Loaded loaded{job::load_job_file(folder.write("job.json", job_text(training, top)), {}, registered), {}};
  for (const Diagnostic& item : loaded.result.diagnostics.items) loaded.lines.push_back(item.message);
  return loaded;
}

}  // namespace

TEST_CASE("plugins: types pass as they are until it is known what is registered") {
  const test::Loaded loaded = load(R"("operator": {"type": "gan", "anything": 3})", {});
  REQUIRE(loaded.lines.empty());
  CHECK(loaded.result.job->training->training_operator == nlohmann::json::parse(R"({"type": "gan", "anything": 3})"));
  CHECK(loaded.result.job->training->model.is_null());
  REQUIRE(loaded.result.job->plugins.size() == 1);
  CHECK(loaded.result.job->plugins[0].starts_with("/"));
  CHECK(loaded.result.job->plugins[0].ends_with("/libmine.so"));
  CHECK(load(R"("operator": {"type": "gan"})", {}, "").lines ==
        Lines{R"("training.operator.type" must be "supervised", got "gan")"});
  CHECK(load(R"("model": {"type": "wide"})", {}, "").lines.size() == 1);
  CHECK(load(R"("model": {"type": 3})", {}).lines.size() == 1);
  CHECK(load(R"("operator": "gan")", {}).lines.size() == 1);
  CHECK(load("\"seed\": 1", {}).lines == Lines{R"(missing key "model" in "training")"});
}

TEST_CASE("plugins: what is registered is checked like what is built in, and has its defaults") {
  const test::Loaded loaded =
      load(R"("operator": {"type": "gan", "data": "x/y"}, "model": {"type": "wide"})", kRegistered);
  REQUIRE(loaded.lines.empty());
  const job::Training& training = *loaded.result.job->training;
  CHECK(training.training_operator.at("latent") == 100);
  CHECK(training.training_operator.at("rates") == nlohmann::json::parse("[0.1]"));
  CHECK(training.training_operator.at("data").get<std::string>().ends_with("/x/y"));
  CHECK(training.training_operator.at("data").get<std::string>().starts_with("/"));
  CHECK(training.model.at("width") == 64);
  CHECK(load(R"("operator": {"type": "gan", "laten": 3, "rates": ["a"]})", kRegistered).lines ==
        Lines{R"(unknown key "laten" in "training.operator" of type "gan"; did you mean "latent"?)",
              R"("training.operator.rates[0]" must be a number, got "a")"});
  CHECK(load(R"("operator": {"type": "gam"})", kRegistered).lines ==
        Lines{R"("training.operator.type" must be "supervised" or "gan", got "gam"; did you mean "gan"?)"});
  // Read again from its resolved form, where nothing is known of plug-ins.
  CHECK(job::load_resolved(loaded.result.job->resolved).job->resolved == loaded.result.job->resolved);
}

TEST_CASE("plugins: nothing is supposed of models that are not built in, and data is checked all the same") {
  const auto with = [](const std::string& model, const std::string& dataset) {
    const test::Loaded loaded = test::load_text(R"({"plugins": ["./libmine.so"], "training": {"batch_size": 4, )" +
                                                model + R"(, "dataset": )" + dataset + "}}");
    return loaded.lines;
  };
  const std::string own_model = R"("model": {"type": "wide"})", own_operator = R"("operator": {"type": "gan"})";
  for (const std::string& own : {own_model, own_operator}) {
    CHECK(with(own, R"({"type": "synthetic", "shape": [3], "classes": 7})").empty());
    CHECK(with(own, R"({"type": "tokens", "train": ["a"], "validation": ["b"], "length": 8})").empty());
    const Lines wrong = with(own, R"({"type": "synthetic", "shape": [65535, 65535], "classes": 7})");
    REQUIRE(wrong.size() == 1);
    CHECK_THAT(wrong[0], Catch::Contains("\"training.dataset.shape\" must have at most"));
  }
  CHECK(with(R"("model": {"type": "mlp", "outputs": 2})", R"({"type": "synthetic", "shape": [784], "classes": 7})")
            .size() == 1);
}

TEST_CASE("plugins: data sets and losses of one's own are checked, and nothing is supposed of them") {
  const nlohmann::json registered = nlohmann::json::parse(
      R"({"dataset": {"words": {"file": {"type": "string", "x-path": true}, "length": {"type": "integer", "default": 8}}},
          "loss": {"focal": {"gamma": {"type": "number", "minimum": 0, "default": 2}}}})");
  const auto with = [&](const std::string& dataset, const std::string& loss, const nlohmann::json& known) {
    test::TemporaryFolder folder;
    const std::string text = R"({"plugins": ["./libmine.so"], "training": {"batch_size": 4, "model": {"type": "mlp", )"
                             R"("outputs": 3}, "metrics": ["accuracy"], "dataset": )" +
                             dataset + R"(, "loss": )" + loss + "}}";
    test::Loaded loaded{job::load_job_file(folder.write("job.json", text), {}, known), {}};
    for (const Diagnostic& item : loaded.result.diagnostics.items) loaded.lines.push_back(item.message);
    return loaded;
  };
  const std::string own_data = R"({"type": "words", "file": "a.txt"})", own_loss = R"({"type": "focal"})";
  const test::Loaded loaded = with(own_data, own_loss, registered);
  REQUIRE(loaded.lines.empty());
  CHECK(loaded.result.job->training->dataset.at("length") == 8);
  CHECK(loaded.result.job->training->dataset.at("file").get<std::string>().ends_with("/a.txt"));
  CHECK(loaded.result.job->training->loss.at("gamma") == 2);
  for (const char* loss : {"\"mse\"", "\"cross_entropy\""}) CHECK(with(own_data, loss, registered).lines.empty());
  CHECK(with(own_data, own_loss, {}).lines.empty());
  CHECK(with(R"({"type": "synthetic", "shape": [784], "classes": 3})", own_loss, registered).lines.empty());
  CHECK(with(R"({"type": "words", "fil": 1})", R"({"type": "focal", "gamma": -1})", registered).lines ==
        Lines{R"(unknown key "fil" in "training.dataset" of type "words"; did you mean "file"?)",
              R"("training.loss.gamma" must be at least 0, got -1)"});
  CHECK(with(R"({"type": "word"})", R"({"type": "focl"})", registered).lines.size() == 2);
  CHECK(with(own_data, "\"focal\"", registered).lines.size() == 1);
}

TEST_CASE("plugins: a function stands in place of model and operator, and needs no data") {
  const auto with = [](const std::string& training, const std::string& top = R"("plugins": ["./libmine.so"], )") {
    return test::load_text("{" + top + R"("training": {)" + training + "}}").lines;
  };
  const std::string own = R"("function": {"type": "my_loop"})";
  CHECK(with(own).empty());
  CHECK(with(own + R"(, "dataset": {"type": "linear"}, "batch_size": 4)").empty());
  CHECK_THAT(with(own + R"(, "dataset": {"type": "linear"})").at(0), Catch::Contains("missing key \"batch_size\""));
  CHECK_THAT(with(own, "").at(0), Catch::Contains("a function comes from a library: name it in \"plugins\""));
  CHECK_THAT(with(own + R"(, "model": {"type": "linear"})").at(0),
             Catch::Contains("\"function\" and \"model\" exclude each other"));
  CHECK_THAT(with(own + R"(, "operator": {"type": "gan"})").at(0),
             Catch::Contains("\"function\" and \"operator\" exclude each other"));
  CHECK_THAT(with(R"("model": {"type": "linear"}, "batch_size": 4)").at(0),
             Catch::Contains("missing key \"dataset\" in \"training\""));
  CHECK_THAT(
      with(own + R"(, "early_stop": {})").at(0),
      Catch::Contains("\"early_stop\" has no meaning with \"function\", whose loop validates and ends by itself"));
  CHECK_THAT(
      with(own + R"(, "metrics": ["accuracy"])").at(0),
      Catch::Contains("\"metrics\" has no meaning with \"function\", whose loop measures and reports by itself"));
  CHECK(with(own + R"(, "profile": true)").size() == 1);
  CHECK(with(own + R"(, "profile": false)").empty());
  for (const char* scheduler : {R"({"type": "reduce_on_plateau"})", R"([{"type": "reduce_on_plateau"}])"})
    CHECK_THAT(with(own + R"(, "scheduler": )" + scheduler).at(0),
               Catch::Contains("\"reduce_on_plateau\" has no metric to follow with \"function\""));
  CHECK(with(own + R"(, "scheduler": {"type": "exponential", "gamma": 0.9})").empty());
  CHECK(with(own + R"(, "validate_every": 2)").size() == 1);
  CHECK(with(own + R"(, "validate_only": true)").size() == 1);
  CHECK(with(own + R"(, "steps_per_epoch": 2)").empty());
  const auto resolved =
      test::load_text(R"({"plugins": ["./libmine.so"], "training": {)" + own + "}}").result.job->resolved;
  CHECK(job::load_resolved(resolved).job.has_value());
  const nlohmann::json none = {{"function", nlohmann::json::object()}};
  CHECK_THAT(load(own, none, R"("plugins": ["./libmine.so"], )").lines.at(0),
             Catch::Contains("\"training.function\": none is built in, and no plug-in of the job registers one"));
}

TEST_CASE("plugins: the built-in operator is what a job without one has") {
  const test::Loaded loaded = load(R"("model": {"type": "linear"}, "operator": {"type": "supervised"})", {}, "");
  REQUIRE(loaded.lines.empty());
  CHECK(loaded.result.job->training->training_operator.is_null());
  CHECK(load(R"("operator": {"type": "supervised"})", {}, "").lines == Lines{R"(missing key "model" in "training")"});
}

TEST_CASE("extension: properties that cannot stand in a schema") {
  const auto fault = [](const char* text) { return sgd::json::fault_of_properties(nlohmann::json::parse(text)); };
  CHECK(fault("{}").empty());
  CHECK(fault(R"({"a": {"type": "array", "items": {"enum": ["x"]}, "title": "t", "minItems": 1}})").empty());
  CHECK(fault("[]") == "it is no JSON object of keys and what they may be");
  CHECK(fault(R"({"type": {"type": "string"}})") == "no key may be called \"type\"");
  CHECK(fault(R"({"a.b": {"type": "string"}})") == "no key may be called \"a.b\"");
  CHECK(fault(R"({"a": 1})") == "what it says of \"a\" is no JSON object");
  CHECK(fault(R"({"a": {"type": "float"}})") == "\"type\" of \"a\" cannot be \"float\"");
  CHECK(fault(R"({"a": {"type": "string", "pattern": "(a+)+"}})") == "\"pattern\" of \"a\" is not known here");
  CHECK(fault(R"({"a": {}})") == "\"a\" has neither \"type\" nor \"enum\", or both");
  CHECK(fault(R"({"a": {"type": "array"}})") == "\"items\" of \"a\": exactly arrays have them");
  CHECK(fault(R"({"a": {"type": "array", "items": {"type": "array"}}})") ==
        "\"items\" of \"a[]\": exactly arrays have them");
  CHECK(fault(R"({"a": {"type": "number", "x-path": true}})") == "\"x-path\" of \"a\" is for strings");
  CHECK(fault(R"({"a": {"enum": []}})") == "\"enum\" of \"a\" cannot be []");
  CHECK(fault(R"({"a": {"type": "integer", "minimum": 3, "default": 2}})") ==
        "a default does not fit: \"a\" must be at least 3, got 2");
}

}  // namespace sgd
