// When freed memory is given back to the kernel.

#include "launcher/process/heap_trim.hpp"

#include <catch2/catch.hpp>

using namespace sgd;

namespace {

constexpr std::size_t kMiB = 1 << 20;

}  // namespace

TEST_CASE("heap: it is trimmed when by much more lies idle than after the last trim, whatever lived meanwhile") {
  process::TrimRule rule;
  CHECK_FALSE(rule.is_due({2 * kMiB, 2 * kMiB}));
  CHECK_FALSE(rule.is_due({2 * kMiB, 9 * kMiB}));
  CHECK(rule.is_due({2 * kMiB, 10 * kMiB}));
  rule.trimmed({2 * kMiB, 4 * kMiB});
  CHECK_FALSE(rule.is_due({40 * kMiB, 4 * kMiB}));  // Much work, and then it is over.
  CHECK(rule.is_due({2 * kMiB, 42 * kMiB}));
  rule.trimmed({2 * kMiB, 5 * kMiB});
  CHECK_FALSE(rule.is_due({2 * kMiB, kMiB}));  // Less by itself: the next growth counts from there.
  CHECK(rule.is_due({2 * kMiB, 9 * kMiB}));
  CHECK_FALSE(rule.is_due({400 * kMiB, 100 * kMiB}));  // A large heap takes long to walk through.
  CHECK(rule.is_due({400 * kMiB, 101 * kMiB}));
}

TEST_CASE("heap: what lies in memory is known, and idle is a part of it") {
  CHECK(process::resident_bytes() > kMiB);
  CHECK(process::heap_bytes().idle < process::resident_bytes());
}
