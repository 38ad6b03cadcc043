// Successive halving: ASHA by its stopping rule and by promotion, and Hyperband.

#include <catch2/catch.hpp>

#include "launcher/tune/hyperband.hpp"
#include "launcher/tune/rungs.hpp"
#include "launcher/tune/top_part.hpp"
#include "story.hpp"

namespace sgd::tune {
namespace {

using test::Story;
using Json = nlohmann::json;

Story asha(std::int64_t last, std::int64_t factor, const std::string& mode = "max") {
  return Story(test::spec_with({{"type", "asha"}, {"max_epochs", last}, {"reduction_factor", factor}}, mode));
}

Story promotion(std::int64_t last, std::int64_t factor) {
  return Story(
      test::spec_with({{"type", "asha"}, {"max_epochs", last}, {"reduction_factor", factor}, {"mode", "promote"}}));
}

Story hyperband(std::int64_t last, std::int64_t factor) {
  return Story(test::spec_with({{"type", "hyperband"}, {"max_epochs", last}, {"reduction_factor", factor}}));
}

}  // namespace

TEST_CASE("rungs: whole numbers, none lost to rounding") {
  using Rungs = std::vector<std::int64_t>;
  CHECK(rungs(1, 1000, 10) == Rungs{1, 10, 100, 1000});
  CHECK(rungs(1, 243, 3) == Rungs{1, 3, 9, 27, 81, 243});
  CHECK(rungs(1, 100, 4) == Rungs{1, 4, 16, 64});
  CHECK(rungs(5, 19, 2) == Rungs{5, 10});
  CHECK(rungs(7, 7, 2) == Rungs{7});
  CHECK(rungs(1, 1'000'000'000, 2).size() == 30);
  CHECK(rung_at({1, 4, 16}, 0) == std::nullopt);
  CHECK(rung_at({1, 4, 16}, 3) == 0);
  CHECK(rung_at({1, 4, 16}, 4) == 1);
  CHECK(rung_at({1, 4, 16}, 1000) == 2);
}

TEST_CASE("asha: a trial ends that is worse than the best part of those before it") {
  CHECK(asha(9, 3).play_all({"add 0", "add 1", "add 2", "0 at 1: 0.5", "1 at 1: 0.6", "2 at 1: 0.55", "0 at 2: 0.9",
                             "0 at 3: 0.7", "1 at 3: 0.7", "1 at 8: 0.7", "1 at 9: 0.9", "end 1 stopped"}) ==
        "add 0 -> \nadd 1 -> \nadd 2 -> \n"
        "0 at 1: 0.5 -> 0 continue first_at_rung\n"
        "1 at 1: 0.6 -> 1 continue among_best\n"
        // Two thirds of the way from 0.5 to 0.6.
        "2 at 1: 0.55 -> 2 stop below_bound\n"
        "0 at 2: 0.9 -> 0 continue between_rungs\n"
        "0 at 3: 0.7 -> 0 continue first_at_rung\n"
        "1 at 3: 0.7 -> 1 continue among_best\n"
        "1 at 8: 0.7 -> 1 continue between_rungs\n"
        "1 at 9: 0.9 -> 1 stop max_epochs\n"
        "end 1 stopped -> \n");
}

TEST_CASE("asha: smaller is better, and the bound is told as the metric has it") {
  Story story = asha(100, 4, "min");
  for (const char* event : {"add 0", "add 1", "add 2", "0 at 1: 8", "1 at 1: 4"}) story.play(event);
  CHECK(story.play("2 at 1: 5.5") == "2 stop below_bound");
  CHECK(story.decisions().front().bound == 5);
  CHECK(story.decisions().front().value == 5.5);
  CHECK(story.decisions().front().others == 2);
  CHECK(in_words(story.decisions().front()) == "5.5 is worse than 5.0, the bound of 2 trials at the rung of epoch 1");
}

TEST_CASE("asha: what is no number, late, missing or said again") {
  Story story = asha(100, 4);
  for (int trial = 0; trial < 6; ++trial) story.play("add " + std::to_string(trial));
  struct Row {
    const char* event;
    const char* decision;
  };
  const Row rows[] = {
      {"0 at 1: nan", "0 stop not_a_number"},
      {"0 at 2: 0.5", "0 stop not_running"},  // It was under way when the trial was stopped.
      {"1 at 1: inf", "1 stop not_a_number"},
      {"2 at 1: 0.5", "2 continue first_at_rung"},  // Those that are no numbers do not count.
      {"2 at 2: nan", "2 continue between_rungs"},
      {"2 at 1: 0.1", "2 continue repeated"},
      {"2 at 2: 0.1", "2 continue repeated"},
      {"3 at 17: 0.9", "3 continue first_at_rung"},  // At 16; the rungs of 1 and 4 are left out for good.
      {"3 at 18: 0.1", "3 continue between_rungs"},
      {"4 at 4: 0.5", "4 continue first_at_rung"},
      {"4 at 16: 0.5", "4 stop below_bound"},
      {"5 at 3: 0.5", "5 continue among_best"},  // At 1, late; equal to the bound.
      {"end 5 failed", ""},
      {"end 4 stopped", ""},
  };
  for (const Row& row : rows) {
    INFO(row.event);
    CHECK(story.play(row.event) == row.decision);
  }
}

TEST_CASE("asha: brackets by chance, each a rung shorter and with fewer trials") {
  Story story(test::spec_with({{"type", "asha"}, {"max_epochs", 27}, {"reduction_factor", 3}, {"brackets", 3}}));
  int first_rung_at[4] = {0, 0, 0, 0};  // 1, 3, 9, none.
  for (int trial = 0; trial < 300; ++trial) {
    const std::string id = std::to_string(trial);
    story.scheduler().add_trial(trial, Values::object());
    int begins = 0;
    for (const int at : {1, 3, 9}) {
      const Decisions told = story.scheduler().on_report({trial, at, 1.0});
      if (told.front().reason != Reason::kBetweenRungs) break;
      ++begins;
    }
    ++first_rung_at[begins];
  }
  CHECK(first_rung_at[3] == 0);
  CHECK(first_rung_at[0] > first_rung_at[1]);
  CHECK(first_rung_at[1] > first_rung_at[2]);
  CHECK(first_rung_at[2] > 10);
}

TEST_CASE("promotion: the best third of a rung goes on from the checkpoint, the highest rung first") {
  CHECK(promotion(9, 3).play_all({"add 0", "add 1", "add 2", "0 at 1: 0.5", "next", "1 at 1: 0.9", "2 at 1: 0.1",
                                  "next", "next", "1 at 3: 0.8", "add 3", "3 at 1: 0.95", "add 4", "4 at 1: 0.7",
                                  "add 5", "5 at 1: 0.2", "next", "next"}) ==
        "add 0 -> \nadd 1 -> \nadd 2 -> \n"
        "0 at 1: 0.5 -> 0 pause waits_at_rung\n"
        "next -> \n"
        "1 at 1: 0.9 -> 1 pause waits_at_rung\n"
        "2 at 1: 0.1 -> 2 pause waits_at_rung\n"
        "next -> 1 resume promoted\n"
        "next -> \n"
        "1 at 3: 0.8 -> 1 pause waits_at_rung\n"
        "add 3 -> \n"
        // It is the best of four, of which one may go on: without a pause.
        "3 at 1: 0.95 -> 3 continue promoted\n"
        "add 4 -> \n"
        "4 at 1: 0.7 -> 4 pause waits_at_rung\n"
        "add 5 -> \n"
        "5 at 1: 0.2 -> 5 pause waits_at_rung\n"
        "next -> \n"
        "next -> \n");
}

TEST_CASE("promotion: when nothing is left to come, one trial gets to the end and the others end") {
  CHECK(promotion(9, 3).play_all({"add 0", "add 1", "0 at 1: 0.5", "1 at 1: 0.4", "next", "no more", "next",
                                  "0 at 3: 0.6", "next", "0 at 9: 0.7"}) ==
        "add 0 -> \nadd 1 -> \n"
        "0 at 1: 0.5 -> 0 pause waits_at_rung\n"
        "1 at 1: 0.4 -> 1 pause waits_at_rung\n"
        "next -> \n"
        "no more -> \n"
        "next -> 0 resume promoted\n"
        "0 at 3: 0.6 -> 0 pause waits_at_rung\n"
        "next -> 0 resume promoted\n"
        "0 at 9: 0.7 -> 0 stop max_epochs; 1 stop not_promoted\n");
}

TEST_CASE("promotion: one that comes last and is not among the best ends, and does not wait first") {
  CHECK(promotion(9, 2).play_all({"add 0", "add 1", "add 2", "no more", "0 at 1: 0.9", "1 at 1: 0.8", "next",
                                  "0 at 9: 0.9", "2 at 1: 0.1"}) ==
        "add 0 -> \nadd 1 -> \nadd 2 -> \nno more -> \n"
        "0 at 1: 0.9 -> 0 pause waits_at_rung\n"
        "1 at 1: 0.8 -> 1 pause waits_at_rung\n"
        "next -> 0 resume promoted\n"
        "0 at 9: 0.9 -> 0 stop max_epochs\n"
        "2 at 1: 0.1 -> 2 stop not_promoted; 1 stop not_promoted\n");
}

TEST_CASE("promotion: trials that fail, are no numbers, or pass rungs") {
  CHECK(promotion(27, 3).play_all({"add 0", "add 1", "add 2", "add 3", "0 at 1: 0.9", "1 at 1: 0.8", "2 at 1: nan",
                                   "end 0 failed", "3 at 1: 0.1", "next", "1 at 20: 0.5", "end 1 cancelled", "no more",
                                   "next", "3 at 2: 0.1", "3 at 30: 0.1"}) ==
        "add 0 -> \nadd 1 -> \nadd 2 -> \nadd 3 -> \n"
        "0 at 1: 0.9 -> 0 pause waits_at_rung\n"
        "1 at 1: 0.8 -> 1 pause waits_at_rung\n"
        "2 at 1: nan -> 2 stop not_a_number\n"
        "end 0 failed -> \n"
        // Trial 0 is still the best of three, and is gone: nobody takes its place.
        "3 at 1: 0.1 -> 3 pause waits_at_rung\n"
        "next -> \n"
        "1 at 20: 0.5 -> 1 pause not_running\n"
        "end 1 cancelled -> \n"
        "no more -> \n"
        "next -> 3 resume promoted\n"
        "3 at 2: 0.1 -> 3 continue between_rungs\n"
        "3 at 30: 0.1 -> 3 stop max_epochs\n");
}

TEST_CASE("top part: the same as sorting, whatever comes in which order") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    KeyedRandom chance(seed, "top part", 0);
    const auto factor = static_cast<std::int64_t>(2 + chance.below(4));
    TopPart part(factor);
    std::vector<std::pair<double, TrialId>> all;
    std::set<TrialId> taken;
    for (TrialId trial = 0; trial < 60; ++trial) {
      const auto score = static_cast<double>(chance.below(12));  // With ties.
      part.insert(trial, score);
      all.emplace_back(-score, trial);
      std::sort(all.begin(), all.end());
      if (chance.below(3) == 0) {
        const auto gone = static_cast<TrialId>(chance.below(static_cast<std::uint64_t>(trial) + 1));
        part.take(gone);
        taken.insert(gone);
      }
      std::optional<TrialId> expected;
      std::optional<TrialId> of_all;
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (taken.contains(all[i].second)) continue;
        if (!of_all) of_all = all[i].second;
        if (!expected && i < all.size() / static_cast<std::size_t>(factor)) expected = all[i].second;
      }
      REQUIRE(part.best_in_part() == expected);
      REQUIRE(part.best_waiting() == of_all);
      TopPart again(factor);
      REQUIRE(again.restore(Json::parse(part.state().dump())));
      REQUIRE(again.best_in_part() == expected);
      REQUIRE(again.state() == part.state());
    }
  }
}

TEST_CASE("hyperband: sizes and rungs are those of the paper") {
  // Table 1 of the paper: R = 81, eta = 3. Its r are what a trial has been given at each rung.
  const Hyperband band({Mode::kMax, 81, 3});
  using Rungs = std::vector<std::int64_t>;
  CHECK(band.s_max() == 4);
  CHECK(band.capacity(4) == 81);
  CHECK(band.capacity(3) == 34);
  CHECK(band.capacity(2) == 15);
  CHECK(band.capacity(1) == 8);
  CHECK(band.capacity(0) == 5);
  CHECK(band.rungs_of(4) == Rungs{1, 3, 9, 27, 81});
  CHECK(band.rungs_of(1) == Rungs{27, 81});
  CHECK(band.rungs_of(0) == Rungs{81});
  CHECK(Hyperband({Mode::kMax, 80, 3}).rungs_of(3) == Rungs{2, 8, 26, 80});
  CHECK(Hyperband({Mode::kMax, 1, 3}).s_max() == 0);
}

TEST_CASE("hyperband: trials of a bracket wait for each other, and one of three goes on") {
  // R = 3: bracket 1 has 3 trials, which are compared at 1; bracket 0 has 2, which are not.
  CHECK(hyperband(3, 3).play_all({"add 0", "add 1", "0 at 1: 0.5", "next", "add 2", "add 3", "1 at 1: 0.6",
                                  "2 at 1: 0.7", "3 at 2: 0.1", "2 at 2: 0.1", "2 at 3: 0.8", "3 at 3: 0.1"}) ==
        "add 0 -> \nadd 1 -> \n"
        "0 at 1: 0.5 -> 0 pause waits_at_rung\n"
        "next -> \n"
        "add 2 -> \nadd 3 -> \n"
        "1 at 1: 0.6 -> 1 pause waits_at_rung\n"
        "2 at 1: 0.7 -> 2 continue promoted; 1 stop halved; 0 stop halved\n"
        "3 at 2: 0.1 -> 3 continue between_rungs\n"
        "2 at 2: 0.1 -> 2 continue between_rungs\n"
        "2 at 3: 0.8 -> 2 stop max_epochs\n"
        "3 at 3: 0.1 -> 3 stop max_epochs\n");
}

TEST_CASE("hyperband: a worse one that comes last ends at once, and the best is resumed") {
  CHECK(hyperband(3, 3).play_all(
            {"add 0", "add 1", "add 2", "0 at 1: 0.5", "1 at 1: 0.5", "2 at 1: 0.1", "next", "next"}) ==
        "add 0 -> \nadd 1 -> \nadd 2 -> \n"
        "0 at 1: 0.5 -> 0 pause waits_at_rung\n"
        "1 at 1: 0.5 -> 1 pause waits_at_rung\n"
        "2 at 1: 0.1 -> 2 stop halved; 1 stop halved\n"  // Of equals the one that was made first stays.
        "next -> 0 resume promoted\n"
        "next -> \n");
}

TEST_CASE("hyperband: a bracket goes on without those that leave, and without those that never come") {
  CHECK(hyperband(9, 3).play_all({"add 0", "add 1", "add 2", "0 at 1: 0.5", "1 at 1: nan", "end 2 failed", "no more",
                                  "next", "0 at 3: 0.5", "next", "add 3", "3 at 1: 0.5", "no more"}) ==
        "add 0 -> \nadd 1 -> \nadd 2 -> \n"
        "0 at 1: 0.5 -> 0 pause waits_at_rung\n"
        "1 at 1: nan -> 1 stop not_a_number\n"
        "end 2 failed -> \n"
        "no more -> \n"
        "next -> 0 resume promoted\n"
        "0 at 3: 0.5 -> 0 continue promoted\n"
        "next -> \n"
        "add 3 -> \n"
        // In the next bracket, whose first rung is 3.
        "3 at 1: 0.5 -> 3 continue between_rungs\n"
        "no more -> \n");
}

}  // namespace sgd::tune
