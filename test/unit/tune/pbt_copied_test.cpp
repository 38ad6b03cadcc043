// Population based training: where a copy goes on from is not always what was compared.

#include <catch2/catch.hpp>

#include "story.hpp"

namespace sgd::tune {

TEST_CASE("pbt: a copy is ranked again an interval after the checkpoint that it has got") {
  for (const auto& [iteration, next] : {std::pair(2, 4), std::pair(5, 7)}) {
    test::Story story(test::spec_with({{"type", "pbt"}, {"interval_epochs", 2}, {"quantile", 0.5}}));
    for (const int trial : {0, 1}) story.values[trial] = {{"lr", 0.5}};
    for (const char* event : {"add 0", "add 1", "0 at 4: 0.9"}) story.play(event);
    REQUIRE(story.play("1 at 2: 0.1") == "1 exploit of 0 at 4");
    story.scheduler().on_copied(1, iteration, 10 * iteration);
    CHECK(story.play("1 at " + std::to_string(iteration) + ": 0.1") == "1 continue repeated");
    CHECK(story.play("1 at " + std::to_string(next - 1) + ": 0.1") == "1 continue between_intervals");
    CHECK(story.play("1 at " + std::to_string(next) + ": 0.1") == "1 exploit of 0 at 4");
  }
}

}  // namespace sgd::tune
