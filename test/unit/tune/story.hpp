#pragma once
// A scheduler's life as text: a line per event, and behind it what was decided. After every event the scheduler is
// written, read again, and the copy goes on, so that every story is also one of a coordinator that was lost at every
// moment.
//   "add 0"                 a trial starts, with the values of the table or {}
//   "0 at 3: 0.5"           a report; "nan", "inf" and "-inf" are numbers, too; "... waiting" while others wait for
//   room "end 0 failed"          completed, stopped, failed or cancelled "no more"               trials are to come
//   "next", "next waiting"  which paused trial goes on, and it does

#include <limits>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "launcher/tune/make_scheduler.hpp"

namespace sgd::tune::test {

inline std::string text_of(const Decision& decision) {
  std::string text = std::to_string(decision.trial) + " " + word_of(decision.action);
  if (decision.action == Action::kExploit)
    text += " of " + std::to_string(*decision.donor) + " at " + std::to_string(decision.donor_iteration);
  else
    text += std::string(" ") + word_of(decision.reason);
  return text + (decision.waits ? " waits" : "");
}

class Story {
 public:
  explicit Story(ExperimentSpec spec) : spec_(std::move(spec)), scheduler_(make_scheduler(spec_)) {}

  /// The decisions of one event, joined by "; ".
  std::string play(const std::string& event) {
    std::istringstream words(event);
    std::string first;
    words >> first;
    decisions_ = act(first, words);
    std::string text;
    for (const Decision& decision : decisions_) {
      CHECK_FALSE(in_words(decision).empty());
      CHECK(to_json(decision).at("reason") == word_of(decision.reason));
      text += (text.empty() ? "" : "; ") + text_of(decision);
    }
    read_again();
    return text;
  }

  /// All events, each with its decisions behind "->".
  std::string play_all(const std::vector<std::string>& events) {
    std::string text;
    for (const std::string& event : events) text += event + " -> " + play(event) + "\n";
    return text;
  }

  /// Of the last event.
  [[nodiscard]] const Decisions& decisions() const { return decisions_; }
  [[nodiscard]] Scheduler& scheduler() { return *scheduler_; }
  std::map<TrialId, Values> values;  ///< That trials are added with.

 private:
  Decisions act(const std::string& first, std::istringstream& words) {
    std::string word;
    if (first == "no") return scheduler_->on_no_more_trials();
    if (first == "next") {
      const auto next = scheduler_->next_paused(static_cast<bool>(words >> word));
      if (!next) return {};
      scheduler_->on_resumed(next->trial);
      return {*next};
    }
    if (first == "add") {
      TrialId trial = 0;
      words >> trial;
      const auto known = values.find(trial);
      scheduler_->add_trial(trial, known == values.end() ? Values::object() : known->second);
      return {};
    }
    if (first == "end") {
      TrialId trial = 0;
      words >> trial >> word;
      for (const Outcome outcome : {Outcome::kCompleted, Outcome::kStopped, Outcome::kFailed, Outcome::kCancelled})
        if (word == word_of(outcome)) return scheduler_->on_end(trial, outcome);
      FAIL("unknown outcome " << word);
    }
    Report report{.trial = std::stoll(first)};
    std::string at;
    std::string value;
    words >> at >> report.iteration >> at >> value;
    report.value = std::stod(value);
    report.others_wait = static_cast<bool>(words >> word);
    report.step = 10 * report.iteration;
    return scheduler_->on_report(report);
  }

  void read_again() {
    const nlohmann::json state = scheduler_->state();
    auto copy = restore_scheduler(spec_, nlohmann::json::parse(state.dump()));
    REQUIRE(copy.ok());
    CHECK(copy.value()->state() == state);
    scheduler_ = std::move(copy).value();
  }

  ExperimentSpec spec_;
  std::unique_ptr<Scheduler> scheduler_;
  Decisions decisions_;
};

/// Of a "tune" in a job; no "parameters" needed where none matter.
inline ExperimentSpec spec_of(nlohmann::json tune) {
  if (!tune.contains("parameters")) tune["parameters"] = {{"lr", {{"uniform", {0, 1}}}}};
  if (!tune.contains("metric")) tune["metric"] = "score";
  if (!tune.contains("mode")) tune["mode"] = "max";
  if (!tune.contains("samples")) tune["samples"] = 100;
  const job::LoadResult loaded = job::load_resolved({{"command", {"true"}}, {"tune", std::move(tune)}});
  for (const Diagnostic& item : loaded.diagnostics.items) FAIL_CHECK(item.text());
  Diagnostics diagnostics;
  auto spec = parse_experiment(loaded, diagnostics);
  for (const Diagnostic& item : diagnostics.items) FAIL_CHECK(item.text());
  REQUIRE(spec.has_value());
  return std::move(*spec);
}

/// The same with this scheduler.
inline ExperimentSpec spec_with(nlohmann::json scheduler, const std::string& mode = "max") {
  return spec_of({{"scheduler", std::move(scheduler)}, {"mode", mode}});
}

}  // namespace sgd::tune::test
