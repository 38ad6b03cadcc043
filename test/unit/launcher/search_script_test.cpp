// What a search program is told, made of the experiment's events.

#include <catch2/catch.hpp>

#include "launcher/cli/search_program.hpp"

namespace sgd::cli {
namespace {

using Json = nlohmann::ordered_json;

tune::ExperimentSpec spec_of_one() {
  tune::ExperimentSpec spec;
  spec.metric = "loss";
  spec.samples = 4;
  return spec;
}

std::vector<nlohmann::json> lines_of(const std::string& text) {
  std::vector<nlohmann::json> lines;
  for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    lines.push_back(nlohmann::json::parse(text.substr(at, end - at)));
  return lines;
}

const std::vector<Json> kPast = {
    {{"event", "experiment_started"}, {"trials", 4}},
    {{"event", "trials_wanted"}, {"trials", {0, 1}}},
    {{"event", "trial_started"}, {"trial", 1}, {"parameters", {{"lr", 0.5}}}},
    {{"event", "trial_report"}, {"trial", 1}, {"iteration", 1}, {"value", 0.25}},
    {{"event", "trial_report"}, {"trial", 1}, {"iteration", 2}, {"value", nullptr}},
    {{"event", "trial_ended"}, {"trial", 1}, {"state", "stopped"}, {"iteration", 2}, {"value", 0.25}},
};

}  // namespace

TEST_CASE("search script: each event that concerns it is a line, others are nothing") {
  const tune::ExperimentSpec spec = spec_of_one();
  const SearchScript script(spec);
  CHECK(script.line_of(kPast[0]).empty());
  CHECK(script.line_of(kPast[2]).empty());
  CHECK(lines_of(script.line_of(kPast[1])).front() == nlohmann::json({{"type", "next"}, {"trials", {0, 1}}}));
  CHECK(lines_of(script.line_of(kPast[4])).front().at("value").is_null());
  CHECK(lines_of(script.line_of(kPast[5])).front().at("outcome") == "stopped");
}

TEST_CASE("search script: one that begins anew is told what was given, and asked for what is owed") {
  const tune::ExperimentSpec spec = spec_of_one();
  const auto lines = lines_of(SearchScript(spec).beginning(kPast));
  REQUIRE(lines.size() == 6);
  CHECK(lines[0].at("type") == "hello");
  CHECK(lines[1].at("given") == nlohmann::json({{"1", {{"lr", 0.5}}}}));
  CHECK(lines[2].at("type") == "report");
  CHECK(lines[4].at("type") == "end");
  CHECK(lines[5] == nlohmann::json({{"type", "next"}, {"trials", {0}}}));
}

}  // namespace sgd::cli
