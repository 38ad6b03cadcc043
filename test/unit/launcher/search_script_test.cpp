// What a search program is told, made of the experiment's events, and how much of it may wait.

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "launcher/cli/search_program.hpp"
#include "test/unit/common/temporary_folder.hpp"

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

/// A program that runs, and what is heard of it.
struct RunningSearch {
  explicit RunningSearch(const std::vector<std::string>& command) : program(io, spec_with(command), handlers()) {}
  static tune::ExperimentSpec spec_with(const std::vector<std::string>& command) {
    tune::ExperimentSpec spec = spec_of_one();
    spec.search.command = command;
    return spec;
  }
  SearchProgram::Handlers handlers() {
    const auto note = [this](const std::string& why) {
      failure = why;
      io.stop();
    };
    return {[this](const std::string& line) {
              said = line;
              program.end([this] { io.stop(); });
            },
            note, note};
  }
  test::TemporaryFolder folder;
  boost::asio::io_context io;
  std::string said;
  std::string failure;
  SearchProgram program;
};

}  // namespace

TEST_CASE("search script: each event that concerns it is a line, others are nothing") {
  const tune::ExperimentSpec spec = spec_of_one();
  SearchScript script(spec);
  CHECK(script.lines_of(kPast[0]).empty());
  CHECK(script.lines_of(kPast[2]).empty());
  CHECK(lines_of(script.lines_of(kPast[1])).front() == nlohmann::json({{"type", "next"}, {"trials", {0, 1}}}));
  CHECK(lines_of(script.lines_of(kPast[4])).front().at("value").is_null());
  CHECK(lines_of(script.lines_of(kPast[5])).front().at("outcome") == "stopped");
}

namespace {

Json told_stopping(int trial, const std::string& as, const std::string& why) {
  return {{"event", "trial_stopping"}, {"trial", trial}, {"as", as}, {"why", why}};
}
Json told_end(int trial, const std::string& state) {
  return {{"event", "trial_ended"}, {"trial", trial}, {"state", state}, {"iteration", 2}, {"value", 0.5}};
}

/// Of an experiment that is stopped while all its trials are at work; trial 3 ends by itself at that moment.
const std::vector<Json> kInterrupted = {
    {{"event", "trials_wanted"}, {"trials", {0, 1, 2, 3}}},
    told_stopping(0, "cancelled", "stopped by signal 2 (SIGINT)"),
    told_stopping(1, "cancelled", tune::kKillReason),
    told_stopping(2, "cancelled", "stopped by signal 2 (SIGINT)"),
    told_stopping(3, "cancelled", "stopped by signal 2 (SIGINT)"),
    told_end(0, "cancelled"),
    told_end(1, "cancelled"),
    told_end(2, "cancelled"),
    told_end(3, "completed"),
    {{"event", "run_finished"}, {"state", "interrupted"}},
};
const std::vector<Json> kGoesOn = {
    {{"event", "experiment_resumed"}, {"trials", 4}},
    {{"event", "trial_resumed"}, {"trial", 0}, {"state", "running"}},
    {{"event", "trial_report"}, {"trial", 0}, {"iteration", 3}, {"value", 0.25}},
    told_end(0, "completed"),
};

/// "report 0", "end 1", of those that say something of a trial.
std::vector<std::string> told_of_trials(const std::string& lines) {
  std::vector<std::string> told;
  for (const nlohmann::json& line : lines_of(lines))
    if (line.contains("trial"))
      told.push_back(fmt::format("{} {}", line.at("type").get<std::string>(), line.at("trial").get<int>()));
  return told;
}

}  // namespace

TEST_CASE("search script: a trial that is stopped with its experiment ends once, when it has gone on") {
  using Told = std::vector<std::string>;
  const tune::ExperimentSpec spec = spec_of_one();
  SearchScript live(spec);
  std::string lines;
  for (const Json& event : kInterrupted) lines += live.lines_of(event);
  CHECK(told_of_trials(lines) == Told{"end 1", "end 3"});
  lines.clear();
  for (const Json& event : kGoesOn) lines += live.lines_of(event);
  // Nobody goes on with trial 2.
  CHECK(told_of_trials(lines) == Told{"end 2", "report 0", "end 0"});

  // One that begins with the resumption is told the same, before it and after it.
  SearchScript next(spec);
  CHECK(told_of_trials(next.beginning(kInterrupted)) == Told{"end 1", "end 3"});
  lines.clear();
  for (const Json& event : kGoesOn) lines += next.lines_of(event);
  CHECK(told_of_trials(lines) == Told{"end 2", "report 0", "end 0"});

  std::vector<Json> all = kInterrupted;
  all.insert(all.end(), kGoesOn.begin(), kGoesOn.end());
  CHECK(told_of_trials(SearchScript(spec).beginning(all)) == Told{"end 1", "end 3", "end 2", "report 0", "end 0"});
}

TEST_CASE("search script: one that gets more samples while it stops has not gone on") {
  const tune::ExperimentSpec spec = spec_of_one();
  SearchScript script(spec);
  std::string lines;
  for (std::size_t event = 0; event < kInterrupted.size(); ++event) {
    if (event == 6) lines += script.lines_of(kGoesOn[0]);
    lines += script.lines_of(kInterrupted[event]);
  }
  CHECK(told_of_trials(lines) == std::vector<std::string>{"end 1", "end 3"});
}

TEST_CASE("search script: one that begins anew is told what was given, and asked for what is owed") {
  const tune::ExperimentSpec spec = spec_of_one();
  SearchScript script(spec);
  const auto lines = lines_of(script.beginning(kPast));
  REQUIRE(lines.size() == 6);
  CHECK(lines[0].at("type") == "hello");
  CHECK(lines[1].at("given") == nlohmann::json({{"1", {{"lr", 0.5}}}}));
  CHECK(lines[2].at("type") == "report");
  CHECK(lines[4].at("type") == "end");
  CHECK(lines[5] == nlohmann::json({{"type", "next"}, {"trials", {0}}}));
}

TEST_CASE("search program: one that begins anew is told all of a long experiment") {
  const std::vector<Json> past = {
      {{"event", "trials_wanted"}, {"trials", {0}}},
      {{"event", "trial_started"},
       {"trial", 0},
       {"parameters", {{"words", std::string(SearchProgram::kUnreadBytesMax, 'x')}}}},
  };
  const tune::ExperimentSpec spec = spec_of_one();
  const std::size_t bytes = SearchScript(spec).beginning(past).size();
  RunningSearch search({"/bin/sh", "-c", fmt::format("head -c {} | wc -c; cat > /dev/null", bytes)});
  REQUIRE(search.program.start(search.folder.path("search.log"), past).ok());
  search.io.run_for(std::chrono::seconds(60));
  CHECK(search.failure.empty());
  CHECK(search.said == std::to_string(bytes));
}

TEST_CASE("search program: one that reads nothing is given up when more than kUnreadBytesMax wait for it") {
  RunningSearch search({"/bin/sleep", "100"});
  REQUIRE(search.program.start(search.folder.path("search.log"), {}).ok());
  const Json wanted = {{"event", "trials_wanted"}, {"trials", std::vector<int>(100'000, 1'000'000)}};
  const tune::ExperimentSpec spec = spec_of_one();
  const std::size_t line = SearchScript(spec).lines_of(wanted).size();
  std::size_t told = 0;
  for (; search.failure.empty() && told < 2 * SearchProgram::kUnreadBytesMax; told += line)
    search.program.on_event(wanted);
  CHECK(told > SearchProgram::kUnreadBytesMax);
  CHECK(told <= SearchProgram::kUnreadBytesMax + line);
  CHECK(search.failure ==
        fmt::format("the search program has left {} bytes unread; its standard error is in search.log", told));
}

}  // namespace sgd::cli
