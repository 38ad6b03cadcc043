// Values made ahead: their order, the bound of how many, errors at their place, and an end in the midst of it.

#include "worker/data/prefetch.hpp"

#include <catch2/catch.hpp>

#include <stdexcept>
#include <string>

namespace sgd::worker {
namespace {

using Numbers = Prefetch<std::int64_t>;

/// Takes long for some values, differently for each, without a clock.
std::int64_t work_for(std::int64_t number) {
  volatile std::int64_t spun = 0;
  for (std::int64_t i = 0; i < (number * 7919 % 13) * 2000; ++i) spun = spun + 1;
  return number;
}

}  // namespace

TEST_CASE("prefetch: values come in their order, whatever the number of threads") {
  for (const int threads : {1, 2, 5}) {
    for (const int ahead : {1, 3, 64}) {
      Numbers numbers(threads, ahead, 50, [](std::int64_t number, const auto&) { return work_for(number); });
      for (std::int64_t i = 0; i < 50; ++i) REQUIRE(numbers.take() == i);
      CHECK(numbers.take() == std::nullopt);
      CHECK(numbers.take() == std::nullopt);
    }
  }
  Numbers none(2, 2, 0, [](std::int64_t number, const auto&) { return number; });
  CHECK(none.take() == std::nullopt);
}

TEST_CASE("prefetch: no more are made than are asked for and may be ahead") {
  std::atomic<std::int64_t> begun{0};
  constexpr std::int64_t kAhead = 3;
  Numbers numbers(4, kAhead, 1000, [&](std::int64_t number, const auto&) {
    ++begun;
    return number;
  });
  for (std::int64_t i = 0; i < 100; ++i) {
    REQUIRE(numbers.take() == i);
    REQUIRE(begun <= i + 1 + kAhead);
  }
}

TEST_CASE("prefetch: an error comes with the value that it belongs to") {
  Numbers numbers(3, 8, 20, [](std::int64_t number, const auto&) -> std::int64_t {
    if (number == 5 || number == 7) throw std::runtime_error("number " + std::to_string(number));
    return work_for(number);
  });
  for (std::int64_t i = 0; i < 5; ++i) REQUIRE(numbers.take() == i);
  CHECK_THROWS_WITH(numbers.take(), "number 5");
  CHECK(numbers.take() == 6);
  CHECK_THROWS_WITH(numbers.take(), "number 7");
  CHECK(numbers.take() == 8);
}

TEST_CASE("prefetch: the end waits for nothing but what is in work, and tells that") {
  std::atomic<int> in_work{0};
  std::atomic<bool> was_told{false};
  {
    Numbers numbers(2, 4, 1000, [&](std::int64_t number, const std::atomic<bool>& is_ending) {
      if (number < 3) return number;
      ++in_work;
      while (!is_ending) std::this_thread::yield();
      was_told = true;
      throw std::runtime_error("not wanted any more");
    });
    CHECK(numbers.take() == 0);
    while (in_work < 2) std::this_thread::yield();
  }
  CHECK(was_told);
  CHECK(in_work == 2);
  // At once, with everything made and nothing taken.
  for (int i = 0; i < 200; ++i)
    const Numbers untouched(3, 2, 10, [](std::int64_t number, const auto&) { return work_for(number); });
}

}  // namespace sgd::worker
