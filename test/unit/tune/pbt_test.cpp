// Population based training: who copies whom, and what changes.

#include <set>

#include <catch2/catch.hpp>

#include "launcher/tune/explore.hpp"
#include "story.hpp"

namespace sgd::tune {
namespace {

using test::Story;
using Json = nlohmann::json;

ExperimentSpec pbt_spec(Json rules = Json::object(), const std::string& mode = "max") {
  rules["type"] = "pbt";
  return test::spec_of({{"scheduler", std::move(rules)},
                        {"mode", mode},
                        {"parameters",
                         {{"lr", {{"loguniform", {0.001, 1}}}},
                          {"batch", {{"qrandint", {16, 256, 16}}}},
                          {"kind", {{"choice", {"a", "b", "c"}}}},
                          {"seed", {{"grid", {1, 2}}}}}}});
}

/// Four trials, of which 0 is at 0.1.
Story population(const ExperimentSpec& spec) {
  Story story(spec);
  for (int trial = 0; trial < 4; ++trial) {
    story.values[trial] = spec.list().at(trial).values;
    story.play("add " + std::to_string(trial));
  }
  return story;
}

void check_events(Story& story, const std::vector<std::pair<const char*, const char*>>& rows) {
  for (const auto& [event, decision] : rows) {
    INFO(event);
    CHECK(story.play(event) == decision);
  }
}

}  // namespace

TEST_CASE("pbt: one of the worst quarter goes on from a checkpoint of the best quarter") {
  Story story = population(pbt_spec({{"interval_epochs", 2}}));
  check_events(story, {{"0 at 1: 0.1", "0 continue between_intervals"},
                       {"0 at 2: 0.1", "0 continue too_few_trials"},
                       {"1 at 2: 0.2", "1 continue among_top"},
                       {"2 at 3: 0.3", "2 continue among_top"},  // Two were missing; its interval begins here.
                       {"3 at 2: 0.15", "3 continue in_the_middle"},
                       {"2 at 4: 0.9", "2 continue between_intervals"},
                       {"0 at 3: 0.5", "0 continue between_intervals"},
                       {"0 at 4: 0.05", "0 exploit of 2 at 3"}});
  CHECK(story.decisions().front().donor_step == 30);                     // Where it was compared, and not where it is.
  check_events(story, {{"0 at 4: 0.2", "0 continue between_intervals"},  // It is as far as its donor was.
                       {"0 at 5: 0.25", "0 continue in_the_middle"},
                       {"end 2 completed", ""},
                       {"3 at 4: 0.01", "3 exploit of 0 at 5"}});
  const Decision& copied = story.decisions().front();
  CHECK(copied.donor_step == 50);
  CHECK(copied.changes.size() == 3);
  CHECK(copied.values.at("seed") == 1);  // Its donor's, which had it from trial 2.
}

TEST_CASE("pbt: a copy is the donor's values, a little changed, and copies are copied") {
  const ExperimentSpec spec = pbt_spec({{"resample_probability", 0}});
  Story story = population(spec);
  for (const char* event : {"1 at 1: 0.5", "2 at 1: 0.4", "3 at 1: 0.3"}) story.play(event);
  REQUIRE(story.play("0 at 1: 0.1") == "0 exploit of 1 at 1");
  const Values from = story.values.at(1);
  const Values to = story.decisions().front().values;
  CHECK(to.at("seed") == from.at("seed"));
  const double ratio = to.at("lr").get<double>() / from.at("lr").get<double>();
  CHECK((ratio == Approx(0.8) || ratio == Approx(1.2) || to.at("lr") == 0.001 || to.at("lr") == 1.0));
  CHECK(spec.parameters.misfit(to).empty());
  CHECK(in_words(story.decisions().front()) ==
        "0.1 is among the worst of 4 trials at epoch 1, and trial 1 among the best");
  // The others take its values from it when it is the best.
  REQUIRE(story.play("0 at 2: 0.9") == "0 continue among_top");
  REQUIRE(story.play("3 at 2: 0.1") == "3 exploit of 0 at 2");
  CHECK(story.decisions().front().values.at("seed") == to.at("seed"));
}

TEST_CASE("pbt: where a copy could not be made, the trial has the values that it is said to have") {
  const ExperimentSpec spec = pbt_spec({{"resample_probability", 0}, {"mutates", {"lr"}}});
  Story story = population(spec);
  for (const char* event : {"1 at 1: 0.5", "2 at 1: 0.4", "3 at 1: 0.3"}) story.play(event);
  REQUIRE(story.play("0 at 1: 0.1") == "0 exploit of 1 at 1");
  story.scheduler().on_values(0, story.values.at(0));
  story.play("0 at 2: 0.9");
  REQUIRE(story.play("3 at 2: 0.1") == "3 exploit of 0 at 2");
  CHECK(story.decisions().front().values.at("batch") == story.values.at(0).at("batch"));
  CHECK(story.decisions().front().changes.size() == 1);
}

TEST_CASE("pbt: burn-in, equal values, and what is no number") {
  Story story = population(pbt_spec({{"burn_in_epochs", 2}}, "min"));
  check_events(story, {{"0 at 1: 5", "0 continue warm_up"},
                       {"0 at 2: nan", "0 continue too_few_trials"},
                       {"1 at 2: 3", "1 continue too_few_trials"},
                       {"0 at 3: nan", "0 exploit of 1 at 2"},  // It is worse than the only number.
                       {"2 at 2: 3", "2 continue among_top"},   // Of equals the one that was made later is better.
                       {"1 at 3: 3", "1 exploit of 2 at 2"},
                       {"0 at 3: inf", "0 exploit of 2 at 2"},
                       {"2 at 3: nan", "2 exploit of 1 at 2"}});
}

TEST_CASE("pbt: where there is no room for all, they take turns") {
  Story story = population(pbt_spec());
  check_events(story, {{"0 at 1: 0.5 waiting", "0 pause too_few_trials waits"},
                       {"next waiting", ""},  // Those that have not begun are first.
                       {"1 at 1: 0.6 waiting", "1 pause among_top waits"},
                       {"2 at 1: 0.1", "2 exploit of 1 at 1 waits"},
                       {"next", "0 resume turn"},
                       {"next", "1 resume turn"},
                       {"1 at 2: 0.7", "1 pause among_top waits"},
                       {"next", "2 resume turn"},
                       {"2 at 2: 0.2", "2 exploit of 1 at 2 waits"},
                       {"0 at 3: 0.5", "0 pause in_the_middle waits"},
                       {"end 1 completed", ""},
                       {"next", "2 resume turn"},
                       {"next", "0 resume turn"},
                       {"next", ""},
                       {"3 at 1: 0.9", "3 continue among_top"}});
}

TEST_CASE("pbt: of several that wait at one epoch the one that has waited longest goes on") {
  Story story = population(pbt_spec());
  check_events(story, {{"0 at 1: 0.5 waiting", "0 pause too_few_trials waits"},
                       {"1 at 1: 0.6 waiting", "1 pause among_top waits"},
                       {"next", "0 resume turn"},
                       {"0 at 2: 0.1", "0 exploit of 1 at 1 waits"},  // It is thrown back to where the other one waits.
                       {"next", "1 resume turn"}});
}

TEST_CASE("explore: values change as the rules say, and stay in their domains") {
  const ExperimentSpec spec = pbt_spec();
  const Values values{{"lr", 0.5}, {"batch", 64}, {"kind", "b"}, {"seed", 2}};
  ExploreRules rules{0.25, {0.8, 1.2}, {"batch", "kind", "lr"}};
  std::map<std::string, int> changes;
  std::set<Json> batches;
  std::set<Json> kinds;
  for (std::uint64_t round = 0; round < 1000; ++round) {
    const Explored out = explore(values, spec.parameters, rules, 7, 3, round);
    CHECK(spec.parameters.misfit(out.values).empty());
    CHECK(out.values.at("seed") == 2);
    for (const std::string& change : out.changes) ++changes[change];
    if (out.changes.front() != "batch drawn anew") batches.insert(out.values.at("batch"));
    kinds.insert(out.values.at("kind"));
    CHECK(explore(values, spec.parameters, rules, 7, 3, round).values == out.values);
  }
  CHECK(batches == std::set<Json>{48, 80});  // 51.2 and 76.8, as multiples of 16.
  CHECK(kinds == std::set<Json>{"a", "b", "c"});
  CHECK(changes.size() == 9);
  for (const char* change : {"batch drawn anew", "kind drawn anew", "lr drawn anew"}) {
    INFO(change);
    CHECK(changes[change] > 200);
    CHECK(changes[change] < 300);
  }
  for (const char* change :
       {"batch * 0.8", "batch * 1.2", "lr * 0.8", "lr * 1.2", "kind to the left", "kind to the right"}) {
    INFO(change);
    CHECK(changes[change] > 320);
    CHECK(changes[change] < 430);
  }
  rules = {0, {1000}, {"lr"}};
  CHECK(explore(values, spec.parameters, rules, 7, 3, 0).values.at("lr") == 1.0);
  rules = {0, {0.0001}, {"batch"}};
  CHECK(explore(values, spec.parameters, rules, 7, 3, 0).values.at("batch") == 16);
  // A list's end has no further neighbour; what is not in the list is drawn anew.
  rules = {0, {2}, {"kind"}};
  const Values at_end{{"lr", 0.5}, {"batch", 64}, {"kind", "c"}, {"seed", 2}};
  std::set<Json> from_end;
  for (std::uint64_t round = 0; round < 50; ++round)
    from_end.insert(explore(at_end, spec.parameters, rules, 7, 3, round).values.at("kind"));
  CHECK(from_end == std::set<Json>{"b", "c"});
}

}  // namespace sgd::tune
