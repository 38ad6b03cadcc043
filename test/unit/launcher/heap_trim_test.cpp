// When freed memory is given back to the kernel.

#include "launcher/process/heap_trim.hpp"

#include <catch2/catch.hpp>

using namespace sgd;

TEST_CASE("heap: it is trimmed when memory has grown by much, and by a good part of what there is") {
  constexpr std::size_t kMiB = 1 << 20;
  process::TrimRule rule;
  CHECK_FALSE(rule.is_due(40 * kMiB));
  CHECK_FALSE(rule.is_due(50 * kMiB));
  CHECK(rule.is_due(57 * kMiB));
  rule.trimmed(45 * kMiB);
  CHECK_FALSE(rule.is_due(57 * kMiB));
  CHECK(rule.is_due(61 * kMiB));
  rule.trimmed(400 * kMiB);
  CHECK_FALSE(rule.is_due(450 * kMiB));
  CHECK(rule.is_due(500 * kMiB));
  CHECK_FALSE(rule.is_due(30 * kMiB));  // It has shrunk by itself: the next growth counts from there.
  CHECK(rule.is_due(47 * kMiB));
}

TEST_CASE("heap: what lies in memory is known") {
  CHECK(process::resident_bytes() > 1 << 20);
}
