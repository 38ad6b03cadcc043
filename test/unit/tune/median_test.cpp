// The median rule.

#include <catch2/catch.hpp>

#include "story.hpp"

namespace sgd::tune {
namespace {

using test::Story;

struct Row {
  const char* event;
  const char* decision;
};

void check_rows(Story& story, const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    INFO(row.event);
    CHECK(story.play(row.event) == row.decision);
  }
}

Story median(nlohmann::json rules, const std::string& mode = "max") {
  rules["type"] = "median";
  return Story(test::spec_with(rules, mode));
}

}  // namespace

TEST_CASE("median: a trial ends whose best is worse than the median of complete ones at its epoch") {
  Story story = median({{"startup_trials", 2}});
  check_rows(story, {{"add 0", ""},
                     {"add 1", ""},
                     {"add 2", ""},
                     {"add 3", ""},
                     {"0 at 1: 0.5", "0 continue too_few_trials"},
                     {"0 at 2: 0.6", "0 continue too_few_trials"},
                     {"1 at 1: 0.7", "1 continue too_few_trials"},
                     {"end 0 completed", ""},
                     {"2 at 1: 0.1", "2 continue too_few_trials"},  // One is complete, and two are to be.
                     {"1 at 2: 0.2", "1 continue too_few_trials"},
                     {"end 1 completed", ""},
                     {"3 at 1: 0.6", "3 continue above_median"},      // Equal to it.
                     {"2 at 2: 0.3", "2 stop below_median"},          // Of 0.6 and 0.2.
                     {"3 at 2: 0.1", "3 continue above_median"},      // Its best is 0.6.
                     {"3 at 3: 0.0", "3 continue too_few_trials"}});  // Nobody has come so far.
  CHECK(story.decisions().front().value == 0.6);
}

TEST_CASE("median: smaller is better, and only complete trials count") {
  Story story = median({{"startup_trials", 0}}, "min");
  check_rows(story, {{"add 0", ""},
                     {"0 at 1: 5", "0 continue too_few_trials"},
                     {"add 1", ""},
                     {"1 at 1: 1", "1 continue too_few_trials"},
                     {"end 1 failed", ""},
                     {"add 2", ""},
                     {"2 at 1: 4", "2 continue too_few_trials"},
                     {"end 0 completed", ""},
                     {"add 3", ""},
                     {"3 at 1: 6", "3 stop below_median"},
                     {"end 3 completed", ""},  // That it came to its end all the same makes it no complete one.
                     {"add 4", ""},
                     {"4 at 1: 5.5", "4 stop below_median"},
                     {"add 5", ""},
                     {"5 at 1: 5", "5 continue above_median"}});
  CHECK(in_words(story.decisions().front()) ==
        "its best, 5.0, is not worse than 5.0, the median of 1 trial at epoch 1");
}

TEST_CASE("median: warm-up, intervals, and reports that are missing") {
  Story story = median({{"startup_trials", 1}, {"warmup_epochs", 3}, {"interval_epochs", 2}});
  story.play("add 0");
  for (int epoch = 1; epoch <= 9; ++epoch) story.play("0 at " + std::to_string(epoch) + ": 0.5");
  check_rows(story, {{"end 0 completed", ""},
                     {"add 1", ""},
                     {"1 at 2: 0.9", "1 continue warm_up"},
                     {"1 at 3: 0.4", "1 continue above_median"},  // The first decision.
                     {"1 at 4: 0.4", "1 continue between_intervals"},
                     {"1 at 6: 0.4", "1 continue above_median"},  // That of 5, late.
                     {"1 at 7: 0.4", "1 continue above_median"},
                     {"1 at 8: 0.4", "1 continue between_intervals"},
                     {"add 2", ""},
                     {"2 at 1: 0.1", "2 continue warm_up"},
                     {"2 at 4: 0.1", "2 stop below_median"}});
}

TEST_CASE("median: what is no number is left out, and is no best") {
  Story story = median({{"startup_trials", 1}, {"least_trials", 2}});
  check_rows(story, {{"add 0", ""},
                     {"0 at 1: nan", "0 continue too_few_trials"},
                     {"end 0 completed", ""},
                     {"add 1", ""},
                     {"1 at 1: nan", "1 stop not_a_number"},
                     {"add 2", ""},
                     {"2 at 1: 0.1", "2 continue too_few_trials"},
                     {"2 at 2: nan", "2 continue too_few_trials"},
                     {"end 2 completed", ""},
                     {"add 3", ""},
                     {"3 at 1: 0.05", "3 stop below_median"},  // Two have reported at 1, one of them a number.
                     {"add 4", ""},
                     {"4 at 1: inf", "4 stop not_a_number"}});
}

}  // namespace sgd::tune
