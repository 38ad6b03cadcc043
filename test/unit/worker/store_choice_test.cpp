// Which way of writing for other ranks a group settles on.

#include <catch2/catch.hpp>

#include "worker/collective/c_api/store_choice.hpp"

namespace sgd::worker {
namespace {

using std::chrono::microseconds;

constexpr std::size_t kLarge = 1 << 20;

/// Operations of alternating sizes; where the ranks share a cache one that goes past it takes `past` times as long.
/// Returns how many went past it before the choice.
int tried_past_caches(StoreChoice& choice, double past) {
  int tried = 0;
  for (int operation = 0; !choice.is_made(); ++operation) {
    const std::size_t bytes = operation % 2 == 0 ? 1 << 20 : 1 << 22;
    const bool is_past = choice.is_past_caches(bytes);
    const double scale = is_past ? past : 1;
    tried += is_past ? 1 : 0;
    choice.note(bytes, std::chrono::duration_cast<Duration>(microseconds(bytes / 4096) * scale));
  }
  return tried;
}

}  // namespace

TEST_CASE("store choice: both ways are tried as often, and the faster one stays") {
  for (const double past : {0.5, 2.0}) {
    StoreChoice choice;
    CHECK(tried_past_caches(choice, past) == StoreChoice::kTried / 2);
    CHECK(choice.is_past_caches(kLarge) == (past < 1));
    choice.note(1 << 20, std::chrono::hours(1));
    choice.note(1 << 20, Duration::zero());
    CHECK(choice.is_past_caches(kLarge) == (past < 1));
  }
}

TEST_CASE("store choice: the first operations, which meet untouched memory, decide nothing") {
  StoreChoice choice;
  choice.note(1 << 20, std::chrono::seconds(1));
  choice.note(1 << 20, std::chrono::seconds(1));
  (void)tried_past_caches(choice, 2.0);
  CHECK_FALSE(choice.is_past_caches(kLarge));
}

TEST_CASE("store choice: small operations are not measured, and do not go past the caches before it is made") {
  StoreChoice choice;
  for (int operation = 0; operation < 100; ++operation) {
    CHECK_FALSE(choice.is_past_caches(StoreChoice::kLeastBytes - 1));
    choice.note(StoreChoice::kLeastBytes - 1, Duration::zero());
  }
  CHECK_FALSE(choice.is_made());
  (void)tried_past_caches(choice, 0.5);
  CHECK(choice.is_past_caches(1));
}

}  // namespace sgd::worker
