#include <catch2/catch.hpp>

#include "launcher/net/fair_queue.hpp"

using sgd::TimePoint;
using sgd::net::FairQueue;
using namespace std::chrono_literals;

namespace {

const auto kAnybody = [](const std::string&) { return true; };

}  // namespace

TEST_CASE("waiting line: addresses take turns, and each keeps its order") {
  FairQueue<int> queue;
  for (int number = 0; number < 4; ++number) queue.push({}, "many", number);
  queue.push({}, "few", 10);
  CHECK(queue.size() == 5);
  std::vector<int> order;
  while (const auto next = queue.take(kAnybody)) order.push_back(*next);
  CHECK(order == std::vector<int>{0, 10, 1, 2, 3});
  CHECK(queue.size() == 0);
}

TEST_CASE("waiting line: who may not enter keeps its place") {
  FairQueue<int> queue;
  queue.push({}, "a", 1);
  queue.push({}, "b", 2);
  const auto only_b = [](const std::string& address) { return address == "b"; };
  CHECK(queue.take(only_b) == 2);
  CHECK_FALSE(queue.take(only_b).has_value());
  CHECK(queue.take(kAnybody) == 1);
}

TEST_CASE("waiting line: who has waited too long is taken out") {
  FairQueue<int> queue;
  queue.push(TimePoint{1s}, "a", 1);
  queue.push(TimePoint{2s}, "b", 2);
  queue.push(TimePoint{3s}, "a", 3);
  CHECK(queue.take_older(TimePoint{2s}) == std::vector<int>{1});
  CHECK(queue.take_older(TimePoint{3s}) == std::vector<int>{2});
  CHECK(queue.size() == 1);
  queue.push(TimePoint{4s}, "b", 4);
  CHECK(queue.take(kAnybody) == 3);
  CHECK(queue.take(kAnybody) == 4);
}
