// An experiment whose trials a search program makes.

#include <set>
#include <utility>

#include <catch2/catch.hpp>

#include "common/exit_codes.hpp"
#include "experiment_bench.hpp"

namespace sgd::core {
namespace {

struct SearchBench : ExperimentBench {
  explicit SearchBench(int samples = 3) : ExperimentBench(4) {
    begin({{"samples", samples}, {"search", {{"type", "exec"}, {"command", {"search"}}, {"timeout", "10s"}}}});
  }
  void say_line(const std::string& line) { tell(coordinator_event::SearchSaid{"x", line}); }
  void give(int trial, double lr = 0.5) {
    say_line(
        nlohmann::json{{"type", "trial"}, {"trial", trial}, {"parameters", {{"training.optimizer.lr", lr}}}}.dump());
  }
  [[nodiscard]] const Experiment& machine() const { return coordinator().state().experiments_.at("x"); }
  void live(int trial) {
    start(trial);
    report(trial, 1, 0.5);
    finish(trial);
  }
};

}  // namespace

TEST_CASE("search: as many trials are asked for as may run, and more when one ends") {
  SearchBench bench;
  REQUIRE(bench.events("trials_wanted").size() == 1);
  CHECK(bench.events("trials_wanted").front().at("trials") == std::vector<int>{0, 1});
  bench.give(1);
  CHECK(bench.is_at_work(1));
  CHECK_FALSE(bench.is_at_work(0));
  bench.live(1);
  CHECK(bench.events("trials_wanted").back().at("trials") == std::vector<int>{2});
  bench.give(0);
  bench.give(2);
  bench.live(0);
  bench.live(2);
  CHECK(bench.outcome_of("x")->state == "succeeded");
}

TEST_CASE("search: a program that says nothing while it owes a trial is given up, its trials go on") {
  SearchBench bench;
  bench.give(0);
  bench.start(0);
  bench.wait(std::chrono::seconds(9));
  CHECK(bench.experiment().search_error_.empty());
  bench.wait(std::chrono::seconds(2));
  CHECK(bench.experiment().search_error_ == "the search program has said nothing for 10s, and owes trial 1");
  bench.report(0, 1, 0.5);
  bench.finish(0);
  CHECK(bench.outcome_of("x")->state == "failed");
  CHECK(bench.best()->at("trial") == 0);
}

TEST_CASE("search: a late tick is no reason to give it up") {
  SearchBench bench;
  bench.wait_late(std::chrono::minutes(1));
  CHECK(bench.experiment().search_error_.empty());
}

TEST_CASE("search: what it does wrong is named, once") {
  SearchBench bench;
  bench.give(7);
  CHECK(bench.experiment().search_error_ == "the search program gave trial 7, which was not asked for");
  bench.give(0);
  CHECK_FALSE(bench.is_at_work(0));
  CHECK(bench.events("search_failed").size() == 1);
  CHECK(bench.outcome_of("x")->exit_code == exit_code::kFailed);
}

TEST_CASE("search: a trial that it wants killed ends, and no more come after no_more") {
  SearchBench bench;
  bench.give(0);
  bench.start(0);
  bench.say_line(R"({"type":"kill","trial":0})");
  CHECK(bench.phase_of(0) == RunPhase::kStopping);
  bench.say_line(R"({"type":"no_more"})");
  bench.exit(0, worker_exit::kStopped);
  bench.clear(0);
  CHECK(bench.trial(0).outcome == tune::Outcome::kCancelled);
  CHECK(bench.outcome_of("x"));
}

TEST_CASE("search: a program that has ended before it has given all is the experiment's error, which says what lacks") {
  const coordinator_event::SearchFailed ended{"x", "the search program has ended"};
  SearchBench owing;
  owing.tell(ended);
  CHECK(owing.outcome_of("x")->error == "the search program has ended; it owes trial 0, and has not said \"no_more\"");
  SearchBench between;
  for (const int trial : {0, 1}) between.give(trial);
  between.tell(ended);
  CHECK(between.experiment().search_error_ ==
        "the search program has ended; it has given 2 of 3 trials, and has not said \"no_more\"");
}

TEST_CASE("search: what a program does after it has given all is no error of the experiment") {
  for (const bool says_wrong : {true, false}) {
    SearchBench bench(2);
    for (const int trial : {0, 1}) bench.give(trial);
    for (int time = 0; time < 2; ++time) {
      if (says_wrong)
        bench.give(1);
      else
        bench.tell(coordinator_event::SearchFailed{"x", "the search program has ended with exit code 3"});
    }
    REQUIRE(bench.events("search_ended").size() == 1);
    CHECK(bench.events("search_ended").front().at("why") ==
          (says_wrong ? "the search program gave trial 1 twice" : "the search program has ended with exit code 3"));
    CHECK(bench.events("search_failed").empty());
    CHECK_FALSE(bench.machine().takes_search_lines());
    CHECK_FALSE(bench.machine().has_failed_search());
    for (const int trial : {0, 1}) bench.live(trial);
    CHECK(bench.outcome_of("x")->state == "succeeded");
    bench.tell(coordinator_event::ExperimentResumed{"x", 3});
    CHECK(bench.machine().takes_search_lines());
    bench.give(2);
    CHECK(bench.is_at_work(2));
  }
}

TEST_CASE("search: after a failure another program owes what the one before did") {
  SearchBench bench;
  bench.give(0);
  bench.live(0);
  bench.tell(coordinator_event::SearchFailed{"x", "the search program has ended"});
  CHECK(bench.outcome_of("x")->state == "failed");
  CHECK(bench.machine().why_not_resumed(0).empty());
  bench.tell(coordinator_event::ExperimentResumed{"x", 0});
  CHECK(bench.machine().takes_search_lines());
  CHECK_FALSE(bench.machine().finished());
  bench.give(1);  // It was asked for before, and no event asks for it again.
  CHECK(bench.is_at_work(1));
  bench.give(2);
  bench.live(1);
  bench.live(2);
  CHECK(bench.outcome_of("x")->state == "succeeded");
}

TEST_CASE("search: another program is heard while trials go on, with a deadline of its own") {
  SearchBench bench;
  bench.give(0);
  bench.start(0);
  bench.wait(std::chrono::seconds(11));
  REQUIRE(bench.machine().has_failed_search());
  bench.give(1);
  CHECK_FALSE(bench.is_at_work(1));
  bench.tell(coordinator_event::ExperimentResumed{"x", 0});
  bench.wait(std::chrono::seconds(9));
  CHECK(bench.machine().takes_search_lines());
  bench.give(1);
  CHECK(bench.is_at_work(1));
  bench.wait(std::chrono::seconds(11));
  CHECK(bench.machine().takes_search_lines());  // It owes nothing.
}

TEST_CASE("search: a trial that was given while all ended is asked for again") {
  SearchBench bench;
  bench.give(0);
  bench.start(0);
  StopRequest stop;
  bench.tell(coordinator_event::StopRequested{"x", stop});
  bench.give(1);
  CHECK_FALSE(bench.is_at_work(1));
  bench.exit(0, worker_exit::kStopped);
  bench.clear(0);
  REQUIRE(bench.outcome_of("x"));
  bench.tell(coordinator_event::ExperimentResumed{"x", 0});
  bench.give(1);
  CHECK_FALSE(bench.machine().has_failed_search());
  CHECK(bench.is_at_work(1));
}

TEST_CASE("search: what a former version has stored says by its trials which have never begun") {
  SearchBench bench;
  bench.give(1);
  bench.start(1);
  bench.tell(coordinator_event::SearchFailed{"x", "the search program has ended"});
  ExperimentState state = bench.experiment();
  CHECK(std::exchange(state.unmade_, {}) == std::set<tune::TrialId>{0});
  Experiment machine(std::move(state));
  CHECK_FALSE(machine.has_trial(0));
  CHECK(machine.has_trial(1));
  CHECK_FALSE(machine.has_trial(2));
  CoordinatorCommands out;
  TrialOrders orders;
  machine.on_resumed(TimePoint{}, 0, out, orders);
  CHECK(machine.state().owed_ == std::set<tune::TrialId>{0});
}

TEST_CASE("search: an experiment whose program has no more trials gets none by more samples") {
  SearchBench bench;
  for (const int trial : {0, 1}) bench.give(trial);
  bench.say_line(R"({"type":"no_more"})");
  const std::string refusal = "its search program has said \"no_more\": it makes no trials for more samples";
  CHECK(bench.machine().why_not_resumed(4) == refusal);
  for (const int trial : {0, 1}) bench.live(trial);
  REQUIRE(bench.outcome_of("x"));
  CHECK(bench.machine().why_not_resumed(0) ==
        "all of its 2 trials have ended, and its search program has said \"no_more\"");
  CHECK(bench.machine().why_not_resumed(4) == refusal);
  CHECK(bench.outcome_of("x")->tune.at("may_go_on") == false);
}

TEST_CASE("search: whether an experiment may go on is known of its end") {
  SearchBench failed;
  failed.tell(coordinator_event::SearchFailed{"x", "the search program has ended"});
  REQUIRE(failed.outcome_of("x"));
  CHECK(failed.outcome_of("x")->tune.at("may_go_on") == true);
  ExperimentBench crashed;
  crashed.begin({{"samples", 1}});
  crashed.start(0);
  crashed.exit(0, 3);
  crashed.clear(0);
  REQUIRE(crashed.outcome_of("x"));
  CHECK(crashed.outcome_of("x")->state == "failed");
  CHECK(crashed.outcome_of("x")->tune.at("may_go_on") == false);
  ExperimentBench stopped;
  stopped.begin({{"samples", 1}});
  stopped.start(0);
  stopped.tell(coordinator_event::StopRequested{"x", {}});
  stopped.exit(0, worker_exit::kStopped);
  stopped.clear(0);
  REQUIRE(stopped.outcome_of("x"));
  CHECK(stopped.outcome_of("x")->tune.at("may_go_on") == true);
}

TEST_CASE("search: an experiment cannot get more samples than its job could have") {
  SearchBench bench;
  CHECK(bench.machine().why_not_resumed(1'000'000'000).find("samples") != std::string::npos);
  CHECK(bench.machine().why_not_resumed(4).empty());
}

}  // namespace sgd::core
