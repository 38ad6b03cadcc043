#include "launcher/core/watchdog.hpp"

#include <catch2/catch.hpp>

using namespace sgd;
using namespace std::chrono_literals;
using core::Silence;
using core::Watchdog;

namespace {

constexpr Duration kTimeout = 5s;
constexpr Duration kStall = 30s;

TimePoint time_at(Duration duration) {
  return TimePoint(duration);
}

link::Heartbeat beat(std::int64_t samples, bool waiting = false) {
  link::Heartbeat made;
  made.step = 7;
  made.phase = "train";
  made.samples = samples;
  made.waiting = waiting;
  return made;
}

/// A rank that has said hello at 0.
Watchdog watching(std::initializer_list<Rank> ranks) {
  Watchdog dog;
  dog.reset(kTimeout, kStall);
  for (const Rank rank : ranks) {
    dog.on_spawned(time_at(0s), rank);
    dog.on_hello(time_at(0s), rank);
  }
  return dog;
}

/// Looks whenever it is due until `end`.
std::vector<Silence> look_until(Watchdog& dog, Duration end) {
  std::vector<Silence> all;
  for (auto next = dog.next_look(); next && *next <= time_at(end); next = dog.next_look())
    for (Silence& silence : dog.look(*next)) all.push_back(std::move(silence));
  return all;
}

}  // namespace

TEST_CASE("a frozen rank is told once, after a second look") {
  Watchdog dog = watching({0});
  dog.on_heartbeat(time_at(1s), 0, beat(1));
  CHECK(dog.next_look() == time_at(6s));
  CHECK(dog.look(time_at(5999ms)).empty());
  CHECK(dog.look(time_at(6s)).empty());
  CHECK(dog.next_look() == time_at(6s + Watchdog::kSecondLook));
  const auto silent = dog.look(time_at(6100ms));
  REQUIRE(silent.size() == 1);
  CHECK(silent[0].rank == 0);
  CHECK_FALSE(silent[0].is_stalled);
  CHECK(silent[0].silent_s == Approx(5.1));
  CHECK(silent[0].words == "no heartbeat for 5.1 s, in train, step 7");
  CHECK(dog.look(time_at(7s)).empty());
  CHECK_FALSE(dog.next_look().has_value());
}

TEST_CASE("a heartbeat that lay unread acquits at the second look") {
  Watchdog dog = watching({0});
  CHECK(dog.look(time_at(5s)).empty());
  dog.on_heartbeat(time_at(5050ms), 0, beat(1));
  CHECK(dog.look(time_at(5100ms)).empty());
  CHECK(dog.next_look() == time_at(10050ms));
}

TEST_CASE("the same heartbeats again and again are a stall, also when they go on after the deadline") {
  for (const bool waiting : {false, true}) {
    Watchdog dog = watching({0});
    std::vector<Silence> silent;
    for (Duration now = 500ms; now <= 31s; now += 500ms) {
      for (Silence& found : look_until(dog, now)) silent.push_back(std::move(found));
      dog.on_heartbeat(time_at(now), 0, beat(1, waiting));
    }
    REQUIRE(silent.size() == 1);
    CHECK(silent[0].is_stalled);
    CHECK(silent[0].is_waiting == waiting);
    CHECK(silent[0].silent_s == Approx(30.1));
    CHECK(silent[0].words ==
          std::string("no progress for 30.1 s, in train, step 7") + (waiting ? ", waiting for another rank" : ""));
  }
}

TEST_CASE("any progress ends a stall: a step, a phase, a batch of validation") {
  Watchdog dog = watching({0});
  for (Duration now = 500ms; now <= 300s; now += 500ms) {
    CHECK(look_until(dog, now).empty());
    dog.on_heartbeat(time_at(now), 0, beat(now / 20s));
  }
}

TEST_CASE("a rank that never says hello is missed after a minute, or a longer timeout") {
  for (const Duration timeout : {kTimeout, Duration(90s)}) {
    Watchdog dog;
    dog.reset(timeout, kStall);
    dog.on_spawned(time_at(0s), 3);
    const Duration due = std::max(Watchdog::kHelloTimeout, timeout);
    CHECK(dog.next_look() == time_at(due));
    const auto silent = look_until(dog, due + 1s);
    REQUIRE(silent.size() == 1);
    CHECK_FALSE(silent[0].is_stalled);
    CHECK(silent[0].words.find("since its start") != std::string::npos);
  }
}

TEST_CASE("a look that comes late judges nobody and gives everybody a new deadline") {
  struct Row {
    const char* what;
    Duration first_look;  // In time, or zero.
    Duration late;
  };
  const Row rows[] = {{"before any suspicion", 0s, 5500ms}, {"of a suspect", 5s, 5600ms}, {"by a night", 0s, 8h}};
  for (const Row& row : rows) {
    CAPTURE(row.what);
    Watchdog dog = watching({0, 1});
    if (row.first_look > 0s) CHECK(dog.look(time_at(row.first_look)).empty());
    CHECK(dog.look(time_at(row.late)).empty());
    CHECK(dog.next_look() == time_at(row.late + kTimeout));
    const auto silent = look_until(dog, row.late + kTimeout + 1s);
    CHECK(silent.size() == 2);
  }
}

TEST_CASE("a rank that has ended is not watched again by a heartbeat that was read late") {
  Watchdog dog = watching({0});
  dog.forget(0);
  dog.on_heartbeat(time_at(1s), 0, beat(1));
  CHECK_FALSE(dog.next_look().has_value());
  dog.reset({}, {});
  dog.on_heartbeat(time_at(2s), 0, beat(2));
  CHECK_FALSE(dog.next_look().has_value());
}

TEST_CASE("each rank has its own deadline") {
  Watchdog dog = watching({0, 1});
  for (Duration now = 500ms; now <= 7s; now += 500ms) dog.on_heartbeat(time_at(now), 1, beat(now / 500ms));
  const auto silent = look_until(dog, 5200ms);
  REQUIRE(silent.size() == 1);
  CHECK(silent[0].rank == 0);
}
