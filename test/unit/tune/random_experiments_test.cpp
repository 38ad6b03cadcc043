// Whole experiments with chance in place of training: for every scheduler, whatever trials do, the experiment comes to
// an end, no trial is forgotten, and a copy of the scheduler that is made anew decides the same.

#include <limits>
#include <set>

#include <catch2/catch.hpp>

#include "story.hpp"

namespace sgd::tune {
namespace {

using Json = nlohmann::json;

/// As a coordinator would do it: new trials and paused ones get room, reports arrive in any order.
class Experiment {
 public:
  Experiment(const ExperimentSpec& spec, std::uint64_t seed)
      : spec_(spec), chance_(seed, "experiment", 0), scheduler_(make_scheduler(spec)), list_(spec.list()) {
    room_ = 1 + chance_.below(6);
    epochs_ = static_cast<std::int64_t>(1 + chance_.below(30));
  }

  /// All decisions, as text.
  std::string run() {
    for (int step = 0; ended_.size() < static_cast<std::size_t>(list_.size()); ++step) {
      REQUIRE(step < 20'000);
      REQUIRE((fill() || !running_.empty()));  // Else nothing could ever happen again.
      if (running_.empty()) continue;
      act();
      if (chance_.below(4) == 0) read_again();
    }
    REQUIRE(paused_.empty());
    REQUIRE_FALSE(scheduler_->next_paused(false).has_value());
    return log_;
  }

 private:
  bool fill() {
    bool has_moved = false;
    while (running_.size() < room_) {
      const bool others_wait = begun_ < list_.size();
      if (const auto next = scheduler_->next_paused(others_wait)) {
        REQUIRE(paused_.erase(next->trial) == 1);
        scheduler_->on_resumed(next->trial);
        running_.insert(next->trial);
        note(*next);
      } else if (others_wait) {
        const Trial trial = list_.at(begun_++);
        scheduler_->add_trial(trial.id, trial.values);
        values_[trial.id] = trial.values;
        running_.insert(trial.id);
        if (begun_ == list_.size()) obey(scheduler_->on_no_more_trials(), -1);
      } else {
        break;
      }
      has_moved = true;
    }
    return has_moved;
  }

  void act() {
    auto place = running_.begin();
    std::advance(place, static_cast<std::ptrdiff_t>(chance_.below(running_.size())));
    const TrialId trial = *place;
    std::int64_t& epoch = epoch_[trial];
    const std::uint64_t what = chance_.below(100);
    if (what < 2 || epoch >= epochs_) {
      running_.erase(trial);
      ended_.insert(trial);
      obey(scheduler_->on_end(trial, what < 2 ? Outcome::kFailed : Outcome::kCompleted), -1);
      return;
    }
    if (what < 5) {  // A report again, as after a recovery.
      obey(scheduler_->on_report({trial, epoch, 0.5, false}), trial);
      return;
    }
    epoch += what < 10 ? 3 : 1;
    double value = static_cast<double>(chance_.below(20)) / 20;
    if (what >= 95) value = std::numeric_limits<double>::quiet_NaN();
    obey(scheduler_->on_report({trial, epoch, value, begun_ < list_.size()}), trial);
  }

  void obey(const Decisions& decisions, TrialId reporter) {
    if (reporter >= 0) REQUIRE(decisions.front().trial == reporter);
    std::set<TrialId> decided;
    for (const Decision& decision : decisions) {
      note(decision);
      const TrialId trial = decision.trial;
      REQUIRE(decided.insert(trial).second);
      REQUIRE((trial == reporter ? running_ : paused_).contains(trial));
      if (decision.action == Action::kStop) {
        running_.erase(trial);
        paused_.erase(trial);
        ended_.insert(trial);
        for (const Decision& more : scheduler_->on_end(trial, Outcome::kStopped)) FAIL(test::text_of(more));
      } else if (decision.action == Action::kPause || decision.waits) {
        running_.erase(trial);
        paused_.insert(trial);
      }
      if (decision.action == Action::kExploit) {
        REQUIRE(decision.donor != trial);
        REQUIRE_FALSE(ended_.contains(*decision.donor));
        REQUIRE(spec_.parameters.misfit(decision.values).empty());
        REQUIRE(decision.donor_iteration <= epoch_[*decision.donor]);
        values_[trial] = decision.values;
        epoch_[trial] = decision.donor_iteration;
      }
    }
  }

  void note(const Decision& decision) { log_ += to_json(decision).dump() + "\n"; }

  void read_again() {
    auto copy = restore_scheduler(spec_, Json::parse(scheduler_->state().dump()));
    REQUIRE(copy.ok());
    if (copies_) scheduler_ = std::move(copy).value();
  }

 public:
  bool copies_ = false;  ///< The copy goes on.

 private:
  ExperimentSpec spec_;
  KeyedRandom chance_;
  std::unique_ptr<Scheduler> scheduler_;
  TrialList list_;
  std::size_t room_ = 1;
  std::int64_t epochs_ = 1;
  TrialId begun_ = 0;
  std::set<TrialId> running_;
  std::set<TrialId> paused_;
  std::set<TrialId> ended_;
  std::map<TrialId, std::int64_t> epoch_;
  std::map<TrialId, Values> values_;
  std::string log_;
};

const Json kSchedulers = {{{"type", "fifo"}},
                          {{"type", "asha"}, {"max_epochs", 16}, {"reduction_factor", 2}},
                          {{"type", "asha"}, {"max_epochs", 20}, {"reduction_factor", 3}, {"brackets", 2}},
                          {{"type", "asha"}, {"max_epochs", 16}, {"reduction_factor", 2}, {"mode", "promote"}},
                          {{"type", "asha"}, {"max_epochs", 27}, {"mode", "promote"}, {"grace_epochs", 2}},
                          {{"type", "hyperband"}, {"max_epochs", 9}},
                          {{"type", "hyperband"}, {"max_epochs", 20}, {"reduction_factor", 2}},
                          {{"type", "median"}, {"startup_trials", 2}, {"interval_epochs", 3}},
                          {{"type", "pbt"}, {"interval_epochs", 2}},
                          {{"type", "pbt"}, {"quantile", 0.5}, {"burn_in_epochs", 3}, {"mutates", {"lr"}}}};

}  // namespace

TEST_CASE("schedulers: every experiment comes to its end, and a copy decides the same") {
  for (const Json& scheduler : kSchedulers) {
    INFO(scheduler.dump());
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
      INFO("seed " << seed);
      const ExperimentSpec spec =
          test::spec_of({{"scheduler", scheduler},
                         {"mode", seed % 2 == 0 ? "max" : "min"},
                         {"seed", seed},
                         {"samples", 2 + seed % 7 * 3},
                         {"parameters", {{"lr", {{"loguniform", {0.001, 1}}}}, {"kind", {{"choice", {1, 2, 3}}}}}}});
      Experiment undisturbed(spec, seed);
      Experiment copied(spec, seed);
      copied.copies_ = true;
      REQUIRE(undisturbed.run() == copied.run());
    }
  }
}

TEST_CASE("schedulers: of trials that have ended none is kept, but for their values at a rung") {
  for (const Json& scheduler : kSchedulers) {
    INFO(scheduler.dump());
    const ExperimentSpec spec = test::spec_of({{"scheduler", scheduler}, {"samples", 1000}});
    const auto rule = make_scheduler(spec);
    for (TrialId trial = 0; trial < 1000; ++trial) {
      rule->add_trial(trial, spec.list().at(trial).values);
      (void)rule->on_end(trial, Outcome::kFailed);
      CHECK(rule->on_end(trial, Outcome::kFailed).empty());
      CHECK(rule->on_report({trial, 1, 0.5, false}).front().reason == Reason::kNotRunning);
    }
    rule->add_trial(1000, spec.list().at(0).values);
    CHECK(rule->state().at("members").size() == 1);
    CHECK(rule->state().dump().size() < 1000);
  }
}

TEST_CASE("schedulers: a state of before, with trials that have ended, is that of the others") {
  for (const Json& scheduler : kSchedulers) {
    INFO(scheduler.dump());
    const ExperimentSpec spec = test::spec_of({{"scheduler", scheduler}});
    const auto rule = make_scheduler(spec);
    rule->add_trial(1, spec.list().at(1).values);
    Json before = rule->state();
    before["members"].insert(before["members"].begin(), Json{0, 2, 5});
    auto restored = restore_scheduler(spec, before);
    REQUIRE(restored.ok());
    CHECK(restored.value()->state() == rule->state());
    CHECK(restored.value()->on_end(0, Outcome::kCompleted).empty());
  }
}

TEST_CASE("schedulers: a state that makes no sense is refused") {
  for (const Json& scheduler : kSchedulers) {
    INFO(scheduler.dump());
    const ExperimentSpec spec = test::spec_of({{"scheduler", scheduler}});
    test::Story story(spec);
    for (TrialId trial = 0; trial < 3; ++trial) story.scheduler().add_trial(trial, spec.list().at(trial).values);
    (void)story.scheduler().on_report({0, 5, 0.5, false});
    (void)story.scheduler().on_report({1, 5, 0.2, false});
    const Json state = story.scheduler().state();
    REQUIRE(restore_scheduler(spec, state).ok());
    for (const Json& wrong : {Json(), Json::object(), Json("asha"), Json{{"members", 1}}})
      CHECK_FALSE(restore_scheduler(spec, wrong).ok());
    Json twice = state;
    twice["members"].push_back(twice["members"][0]);
    CHECK_FALSE(restore_scheduler(spec, twice).ok());
    if (scheduler.at("type") == "fifo") continue;
    Json without = state;
    for (Json& part : without["own"])
      if (part.is_array()) part = Json::array();
    CHECK_FALSE(restore_scheduler(spec, without).ok());
  }
  const ExperimentSpec spec = test::spec_of({});
  CHECK(restore_scheduler(spec, Json()).error().message == "the kept state of the scheduler \"fifo\" makes no sense");
}

}  // namespace sgd::tune
