// The lines that are exchanged with a search program.

#include "launcher/tune/search_protocol.hpp"

#include <limits>

#include <catch2/catch.hpp>

#include "story.hpp"

namespace sgd::tune {
namespace {

using Json = nlohmann::json;

Parameters rate() {
  return test::spec_of({}).parameters;  // "lr" from 0 to 1.
}

std::string words_of(SearchProtocol& protocol, const std::string& line) {
  const auto answer = protocol.take(line);
  if (!answer.ok()) return answer.error().message;
  if (const auto* trial = std::get_if<Trial>(&answer.value()))
    return "trial " + std::to_string(trial->id) + " " + trial->values.dump();
  if (const auto* kill = std::get_if<KillTrial>(&answer.value())) return "kill " + std::to_string(kill->trial);
  return "no more";
}

}  // namespace

TEST_CASE("search: what a program is told") {
  const ExperimentSpec spec = test::spec_of({{"samples", 5}, {"seed", 3}, {"mode", "min"}, {"metric", "loss"}});
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  CHECK(
      hello_line(spec) ==
      R"({"metric":"loss","mode":"min","parameters":{"lr":{"uniform":[0.0,1.0]}},"seed":3,"trials":5,"type":"hello","version":1})"
      "\n");
  CHECK(next_line({7, 8}) == "{\"trials\":[7,8],\"type\":\"next\"}\n");
  CHECK(given_line({{7, {{"lr", 0.5}}}}) == R"({"given":{"7":{"lr":0.5}},"trials":[7],"type":"next"})"
                                            "\n");
  CHECK(line_of(SearchReport{7, 3, 0.5}) == R"({"iteration":3,"trial":7,"type":"report","value":0.5})"
                                            "\n");
  CHECK(line_of(SearchReport{7, 3, kNan}) == R"({"iteration":3,"trial":7,"type":"report","value":null})"
                                             "\n");
  CHECK(line_of(SearchEnd{7, Outcome::kCompleted, 9, 0.5}) ==
        R"({"iteration":9,"outcome":"completed","trial":7,"type":"end","value":0.5})"
        "\n");
  CHECK(line_of(SearchEnd{7, Outcome::kFailed, 0, 0.5}) ==
        R"({"iteration":0,"outcome":"failed","trial":7,"type":"end","value":null})"
        "\n");
  CHECK(bye_line() == "{\"type\":\"bye\"}\n");
}

TEST_CASE("search: answers that fit") {
  SearchProtocol protocol(rate());
  protocol.on_asked({0, 1, 2});
  CHECK(protocol.owed() == std::set<TrialId>{0, 1, 2});
  CHECK(words_of(protocol, R"({"type": "trial", "trial": 1, "parameters": {"lr": 0.25}})") == R"(trial 1 {"lr":0.25})");
  CHECK(
      words_of(protocol, R"({"type":"trial","trial":0,"parameters":{"lr":0},"note":"more keys are nobody's harm"})") ==
      R"(trial 0 {"lr":0})");
  CHECK(protocol.owed() == std::set<TrialId>{2});
  CHECK(words_of(protocol, R"({"type":"kill","trial":0})") == "kill 0");
  protocol.on_end(0);
  CHECK(words_of(protocol, R"({"type":"kill","trial":0})") == "kill 0");  // It crossed the end on its way.
  CHECK(words_of(protocol, R"({"type":"no_more"})") == "no more");
  CHECK(protocol.no_more());
  CHECK(protocol.owed().empty());
  CHECK(words_of(protocol, R"({"type":"no_more"})") == "no more");
}

TEST_CASE("search: a program that begins anew may kill what the one before it gave") {
  SearchProtocol protocol(rate());
  protocol.on_given(4);
  CHECK(words_of(protocol, R"({"type":"kill","trial":4})") == "kill 4");
}

TEST_CASE("search: what a program does wrong is named") {
  struct Row {
    const char* line;
    const char* words;
  };
  const Row rows[] = {
      {"", "no JSON"},
      {"Traceback (most recent call last):",
       R"(the search program said "Traceback (most recent call last):", which is no JSON of its protocol)"},
      {"{\"type\": \"trial\"", "no JSON"},
      {"[]", "each line is an object with a \"type\""},
      {R"({"type": 1})", "each line is an object with a \"type\""},
      {R"({"type": "trail"})", "a line of type \"trail\": known are"},
      {R"({"type": "trial"})", "\"trial\" must be a number of one, got null"},
      {R"({"type": "trial", "trial": -1, "parameters": {}})", "must be a number of one, got -1"},
      {R"({"type": "trial", "trial": 18446744073709551615, "parameters": {}})", "must be a number of one"},
      {R"({"type": "trial", "trial": 1e300, "parameters": {}})", "must be a number of one"},
      {R"({"type": "trial", "trial": "0", "parameters": {}})", "must be a number of one, got \"0\""},
      {R"({"type": "trial", "trial": 5, "parameters": {"lr": 0.5}})", "gave trial 5, which was not asked for"},
      {R"({"type": "trial", "trial": 0, "parameters": {"lr": 0.5}})", "gave trial 0 twice"},
      {R"({"type": "trial", "trial": 1})", "gave trial 1 without \"parameters\""},
      {R"({"type": "trial", "trial": 1, "parameters": {}})", "wrong values: parameter \"lr\" is missing"},
      {R"({"type": "trial", "trial": 1, "parameters": {"lr": 2}})",
       "the search program gave trial 1 wrong values: parameter \"lr\" must be a number from 0.0 to 1.0, got 2"},
      {R"({"type": "trial", "trial": 1, "parameters": {"lr": null}})", "got null"},
      {R"({"type": "trial", "trial": 1, "trial": 2, "parameters": {}})", "no JSON of its protocol"},
      {R"({"type": "kill", "trial": 1})", "wanted trial 1 killed, which it has not given"},
      {R"({"type": "kill", "trial": 7})", "wanted trial 7 killed, which it has not given"},
      {R"({"type": "kill"})", "named no trial"},
  };
  for (const Row& row : rows) {
    INFO(row.line);
    SearchProtocol protocol(rate());
    protocol.on_asked({0, 1});
    CHECK(words_of(protocol, R"({"type": "trial", "trial": 0, "parameters": {"lr": 0.5}})") == R"(trial 0 {"lr":0.5})");
    CHECK_THAT(words_of(protocol, row.line), Catch::Contains(row.words));
    CHECK(protocol.owed() == std::set<TrialId>{1});
  }
  SearchProtocol protocol(rate());
  protocol.on_asked({0});
  CHECK(words_of(protocol, R"({"type":"no_more"})") == "no more");
  CHECK_THAT(words_of(protocol, R"({"type":"trial","trial":0,"parameters":{"lr":0.5}})"),
             Catch::Contains("after it had said"));
  CHECK_THAT(words_of(protocol, R"({"type":"kill","trial":0})"), Catch::Contains("which it has not given"));
  CHECK_THAT(words_of(protocol, std::string(kSearchLineBytesMax + 1, ' ')), Catch::Contains("at most 65536"));
}

TEST_CASE("search: bytes become lines, in whatever pieces they come") {
  const std::string bytes = "one\n\ntwo\nthree and no end";
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    SearchLines lines;
    std::vector<std::string> got;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      const auto part = lines.take(std::string_view(bytes).substr(at, piece));
      REQUIRE(part.ok());
      got.insert(got.end(), part.value().begin(), part.value().end());
    }
    CHECK(got == std::vector<std::string>{"one", "two"});
  }
  SearchLines lines;
  CHECK(lines.take(std::string(kSearchLineBytesMax, 'x') + "\n").ok());
  CHECK(lines.take(std::string(kSearchLineBytesMax, 'x')).ok());
  CHECK_THAT(lines.take("x").error().message, Catch::Contains("a line of more than 65536 bytes"));
}

}  // namespace sgd::tune
