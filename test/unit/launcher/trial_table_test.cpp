// What people see of an experiment: made of its events alone.

#include <catch2/catch.hpp>

#include "launcher/cli/trial_table.hpp"

namespace sgd::cli {
namespace {

using Json = nlohmann::ordered_json;

TrialTable table_of(const std::vector<Json>& events) {
  TrialTable table;
  table.add({{"event", "experiment_started"}, {"trials", 3}, {"metric", "loss"}, {"mode", "min"}});
  for (const Json& event : events) table.add(event);
  return table;
}

Json started(int trial, double lr) {
  return {{"event", "trial_started"}, {"trial", trial}, {"parameters", {{"training.optimizer.lr", lr}}}};
}
Json report(int trial, int iteration, Json value) {
  return {{"event", "trial_report"}, {"trial", trial}, {"iteration", iteration}, {"value", std::move(value)}};
}
Json ended(int trial, const char* state) {
  return {{"event", "trial_ended"}, {"trial", trial}, {"state", state}, {"why", ""}, {"wall_s", 1.5}};
}

}  // namespace

TEST_CASE("trial table: the best is marked, by what has been reported so far; the first of two that are equal") {
  const TrialTable table = table_of({started(0, 0.1), started(1, 0.25), report(1, 1, 0.5), report(0, 1, 0.5),
                                     report(1, 2, 0.7), ended(1, "completed")});
  CHECK(table.best() == 0);
  CHECK(table.lines(10) == std::vector<std::string>{"trial  state      lr    at  loss  best",
                                                    "0 *    running    0.1   1   0.5   0.5",
                                                    "1      completed  0.25  2   0.7   0.5 at 1"});
  CHECK(table.progress() == "1/3 trials, 1 at work  best loss 0.5 (trial 0)");
}

TEST_CASE("trial table: what is no number is never the best") {
  const TrialTable table = table_of({started(0, 0.1), report(0, 1, nullptr)});
  CHECK_FALSE(table.best());
  CHECK(table.lines(10).back() == "0      running  0.1  1   -     -");
}

TEST_CASE("trial table: of many, those at work and the best are shown, and how many are not") {
  std::vector<Json> events;
  for (int trial = 0; trial < 20; ++trial) {
    events.push_back(started(trial, 0.1));
    events.push_back(report(trial, 1, 20 - trial));
    if (trial != 3) events.push_back(ended(trial, "completed"));
  }
  const TrialTable table = table_of(events);
  const auto lines = table.lines(3);
  REQUIRE(lines.size() == 5);
  CHECK(lines[1].starts_with("3 "));
  CHECK(lines[2].starts_with("18 "));
  CHECK(lines[3].starts_with("19 *"));
  CHECK(lines[4] == "... and 17 more, which have ended");
}

TEST_CASE("trial table: a few of a hundred thousand trials are found without all of them in order") {
  constexpr int kTrials = 100'000;
  TrialTable table = table_of({});
  for (int trial = 0; trial < kTrials; ++trial) {
    table.add({{"event", "trial_report"}, {"trial", trial}, {"iteration", 1}, {"value", trial % 1000}});
    if (trial != 77'777) table.add({{"event", "trial_ended"}, {"trial", trial}, {"state", "completed"}});
  }
  // As often as in ten seconds at a terminal: with all in order each time this takes a minute.
  for (int redraw = 0; redraw < 50; ++redraw) REQUIRE(table.lines(4).size() == 6);
  const auto lines = table.lines(4);
  CHECK(lines[1].starts_with("0 *"));
  CHECK(lines[2].starts_with("1000 "));
  CHECK(lines[3].starts_with("2000 "));
  CHECK(lines[4].starts_with("77777 "));
}

TEST_CASE("trial table: who shows few rows keeps few trials, and shows the same") {
  constexpr int kTrials = 2000;
  constexpr std::size_t kRows = 5;
  for (const char* mode : {"min", "max"}) {
    TrialTable all;
    TrialTable few(kRows);
    const auto tell = [&](const Json& event) {
      all.add(event);
      few.add(event);
      REQUIRE(few.narrate(event) == all.narrate(event));
    };
    tell({{"event", "experiment_started"}, {"trials", kTrials}, {"metric", "loss"}, {"mode", mode}});
    for (int trial = 0; trial < kTrials; ++trial) {
      tell(started(trial, 0.1 * trial));
      const int value = trial * 7919 % 997;  // Some are equal.
      tell(report(trial, 1, trial % 11 == 0 ? Json(nullptr) : Json(value)));
      if (trial % 500 == 1) continue;
      tell(ended(trial, trial % 13 == 0 ? "failed" : "completed"));
      for (const std::size_t rows : {kRows, kRows - 2}) REQUIRE(few.lines(rows) == all.lines(rows));
      REQUIRE(few.progress() == all.progress());
    }
    CHECK(few.owed() == all.owed());
    CHECK(all.trials().size() == kTrials);
    CHECK(few.trials().size() <= kRows + 7);  // Those at work, the first one, and one whose end may still be told.
  }
}

TEST_CASE("trial table: who shows few rows keeps those that may go on") {
  TrialTable table(1);
  for (int trial = 0; trial < 9; ++trial) {
    table.add(started(trial, 0.1));
    table.add(report(trial, 1, trial));
    table.add(ended(trial, trial == 8 ? "cancelled" : "completed"));
  }
  table.add({{"event", "trial_resumed"}, {"trial", 8}, {"state", "running"}});
  CHECK(table.progress() == "8/8 trials, 1 at work  best  0 (trial 0)");
  CHECK(table.trials().at(8).state == "running");
  table.add(ended(8, "completed"));
  CHECK(table.progress() == "9/9 trials  best  0 (trial 0)");
}

TEST_CASE("trial table: what goes on has not ended, and more trials are planned") {
  TrialTable table = table_of({started(0, 0.1), ended(0, "completed"), started(1, 0.2), ended(1, "cancelled")});
  CHECK(table.may_go_on("interrupted"));
  CHECK_FALSE(table.may_go_on("succeeded"));
  table.add({{"event", "experiment_resumed"}, {"trials", 5}});
  table.add({{"event", "trial_resumed"}, {"trial", 1}, {"state", "running"}});
  CHECK(table.progress() == "1/5 trials, 1 at work");
  table.add(ended(1, "completed"));
  CHECK(table.progress() == "2/5 trials");
  table.add({{"event", "search_failed"}, {"why", "the search program has ended"}});
  CHECK(table.may_go_on("failed"));
}

TEST_CASE("trial table: what a search program owes is what it was asked for, and has not begun") {
  TrialTable table = table_of({{{"event", "trials_wanted"}, {"trials", {0, 1}}}, started(1, 0.1)});
  CHECK(table.owed() == 1);
  table.add(started(0, 0.1));
  CHECK(table.owed() == 0);
}

TEST_CASE("trial table: a trial that waits for a place is placing, with those behind it, until it has one") {
  TrialTable table = table_of({started(0, 0.1), started(1, 0.2), started(2, 0.3), ended(0, "completed")});
  CHECK(table.first_unplaced() == 1);
  CHECK_FALSE(table.all_wait());
  CHECK(table.progress() == "1/3 trials, 2 at work");
  table.note_place(1, true);
  CHECK(table.all_wait());
  CHECK(table.lines(10).back() == "2      placing    0.3  -   -     -");
  CHECK(table.progress() == "1/3 trials, 2 placing");
  CHECK(table.to_json()["rows"][1]["state"] == "placing");
  table.note_place(1, false);
  CHECK(table.first_unplaced() == 2);
  table.note_place(2, true);
  CHECK_FALSE(table.all_wait());
  CHECK(table.progress() == "1/3 trials, 1 at work, 1 placing");
  table.add(report(2, 1, 0.5));
  CHECK_FALSE(table.first_unplaced());
  CHECK(table.progress() == "1/3 trials, 2 at work  best loss 0.5 (trial 2)");
}

TEST_CASE("trial table: a best value stands beside the parameters that it was reported with") {
  const Json copies = {
      {"event", "trial_decided"}, {"trial", 0}, {"action", "exploit"}, {"values", {{"training.optimizer.lr", 0.75}}}};
  const Json cloned = {{"event", "trial_cloned"}, {"trial", 0}, {"checkpoint", "/x/trials/0001/checkpoints/step"}};
  TrialTable table = table_of({started(0, 0.1), report(0, 1, 0.5), copies, cloned, report(0, 2, 0.625)});
  CHECK(table.lines(10).back() == "0 *    running  0.1  2   0.625  0.5 at 1");
  CHECK(table.trials().at(0).best_parameters().at("training.optimizer.lr") == 0.1);
  CHECK(table.to_json()["rows"][0]["parameters"]["training.optimizer.lr"] == 0.75);
  CHECK(table.to_json()["rows"][0]["best_parameters"]["training.optimizer.lr"] == 0.1);
  table.add(ended(0, "completed"));
  CHECK(table.narrate(ended(0, "completed")) == "trial 0 completed: loss 0.5 at 1 (lr=0.1)");
  table.add(report(0, 3, 0.25));
  CHECK(table.lines(10).back() == "0 *    completed  0.75  3   0.25  0.25");
  // There may be nothing to take: then it goes on as it was.
  const Json stayed = {{"event", "trial_cloned"}, {"trial", 0}, {"checkpoint", nullptr}};
  table = table_of({started(0, 0.1), copies, stayed, report(0, 1, 0.5)});
  CHECK(table.trials().at(0).parameters.at("training.optimizer.lr") == 0.1);
}

TEST_CASE("trial table: events of a version of its own, or damaged ones, change nothing") {
  const TrialTable table = table_of({{{"event", "trial_ended"}}, {{"event", 7}}, {{"trial", "x"}}, Json::array()});
  CHECK(table.trials().empty());
  CHECK(table.lines(5).empty());
}

}  // namespace sgd::cli
