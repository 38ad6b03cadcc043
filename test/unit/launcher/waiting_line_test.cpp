#include <catch2/catch.hpp>

#include "launcher/net/waiting_line.hpp"

using sgd::TimePoint;
using sgd::net::WaitingLine;
using namespace std::chrono_literals;

namespace {

const auto kAnybody = [](const std::string&) { return true; };

}  // namespace

TEST_CASE("waiting line: addresses take turns, and each keeps its order") {
  WaitingLine<int> line;
  for (int number = 0; number < 4; ++number) line.push({}, "many", number);
  line.push({}, "few", 10);
  CHECK(line.size() == 5);
  std::vector<int> order;
  while (const auto next = line.take(kAnybody)) order.push_back(*next);
  CHECK(order == std::vector<int>{0, 10, 1, 2, 3});
  CHECK(line.size() == 0);
}

TEST_CASE("waiting line: who may not enter keeps its place") {
  WaitingLine<int> line;
  line.push({}, "a", 1);
  line.push({}, "b", 2);
  const auto only_b = [](const std::string& address) { return address == "b"; };
  CHECK(line.take(only_b) == 2);
  CHECK_FALSE(line.take(only_b).has_value());
  CHECK(line.take(kAnybody) == 1);
}

TEST_CASE("waiting line: who has waited too long is taken out") {
  WaitingLine<int> line;
  line.push(TimePoint{1s}, "a", 1);
  line.push(TimePoint{2s}, "b", 2);
  line.push(TimePoint{3s}, "a", 3);
  CHECK(line.take_older(TimePoint{2s}) == std::vector<int>{1});
  CHECK(line.take_older(TimePoint{3s}) == std::vector<int>{2});
  CHECK(line.size() == 1);
  line.push(TimePoint{4s}, "b", 4);
  CHECK(line.take(kAnybody) == 3);
  CHECK(line.take(kAnybody) == 4);
}
