// When copies are made, and that none is made before the memory is there.
#include "worker/torch/memory_saver.hpp"

#include <sys/mman.h>

#include <catch2/catch.hpp>

#include "worker/link/unique_fd.hpp"

namespace sgd::worker {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint kStart = TimePoint(1000s);
constexpr std::string_view kText[] = {"{}"};

TimePoint clock_now() {
  return std::chrono::steady_clock::now();
}

struct Tensors {
  explicit Tensors(float value) : values(1000, value) {
    state.parts = {std::as_writable_bytes(std::span(values))};
    state.layout.part_bytes = {state.parts[0].size()};
    state.layout.digest = 1;
  }
  std::vector<float> values;
  StateParts state;
};

void wait_until_due(const MemorySaver& saver) {
  const TimePoint end = clock_now() + 10s;
  while (!saver.due(clock_now())) REQUIRE(clock_now() < end);
}

}  // namespace

TEST_CASE("copies cost at most one part in a hundred, and come at most every 50 ms") {
  CopyPace pace;
  CHECK(pace.due(kStart));  // The first costs what it costs.
  pace.add(kStart, kStart + 10us);
  CHECK_FALSE(pace.due(kStart + 49ms));
  CHECK(pace.due(kStart + 50ms));
  TimePoint now = kStart + 1s;
  Duration spent = 10us;
  for (const Duration cost : {4ms, 2ms, 9ms, 1ms, 1ms, 1ms, 20ms, 1ms, 1ms, 1ms, 1ms, 1ms}) {
    pace.add(now, now + cost);
    spent += cost;
    while (!pace.due(now)) now += 1ms;
  }
  CHECK(to_seconds(spent) <= 0.01 * to_seconds(now - kStart));
  // A slow machine is forgotten after four copies.
  for (int i = 0; i < 4; ++i) pace.add(now, now + 1ms);
  CHECK(pace.due(now + 100ms));
}

TEST_CASE("no copy is made before its memory is there, and an adopted one is of this generation") {
  const UniqueFd fd(::memfd_create("memory", 0));
  Tensors tensors(1.5f);
  {
    const auto saver = MemorySaver::make(fd.get(), 1, tensors.state.layout, nullptr);
    REQUIRE(saver);
    CHECK_FALSE(saver->due(clock_now()));
    saver->commit({5}, kText, tensors.state, clock_now());
    auto region = MemoryCheckpoint::attach(fd.get(), tensors.state.layout);
    CHECK_FALSE(region.value()->newest().has_value());
    saver->start();
    saver->start();
    wait_until_due(*saver);
    saver->commit({6}, kText, tensors.state, clock_now());
    CHECK_FALSE(saver->due(clock_now()));
  }
  auto region = std::move(MemoryCheckpoint::attach(fd.get(), tensors.state.layout)).value();
  const auto slot = region->newest();
  REQUIRE(slot.has_value());
  CHECK(slot->point.step == 6);
  const auto next = MemorySaver::make(fd.get(), 2, tensors.state.layout, std::move(region));
  next->adopt(slot->index);
  const auto seen = MemoryCheckpoint::attach(fd.get(), tensors.state.layout).value()->newest();
  CHECK(seen->generation == 2);
  CHECK(seen->point.step == 6);
}

TEST_CASE("where memory cannot be had, training does without") {
  CHECK(MemorySaver::make(-1, 1, Tensors(0).state.layout, nullptr) == nullptr);
}

TEST_CASE("a copy that there is no memory for is left out, the one before stays, and the next is tried after a while") {
  const UniqueFd fd(::memfd_create("memory", 0));
  Tensors tensors(1.5f);
  const auto saver = MemorySaver::make(fd.get(), 1, tensors.state.layout, nullptr);
  REQUIRE(saver);
  saver->start();
  wait_until_due(*saver);
  saver->commit({5}, kText, tensors.state, clock_now());
  wait_until_due(*saver);
  const char letter = 'x';
  const std::string_view too_long[] = {{&letter, MemoryCheckpoint::kTextBytesMax}, {&letter, 1}};
  const TimePoint before = clock_now();
  saver->commit({6}, too_long, tensors.state, before);
  const auto region = std::move(MemoryCheckpoint::attach(fd.get(), tensors.state.layout)).value();
  CHECK(region->newest()->point.step == 5);
  CHECK_FALSE(saver->due(before + MemorySaver::kRetry - 1ms));  // Nor is the group asked for its state.
  saver->commit({7}, kText, tensors.state, before + MemorySaver::kRetry - 1ms);
  CHECK(region->newest()->point.step == 5);
  const TimePoint later = clock_now() + MemorySaver::kRetry;
  CHECK(saver->due(later));
  saver->commit({8}, kText, tensors.state, later);
  CHECK(region->newest()->point.step == 8);
}

TEST_CASE("layouts differ when names, shapes, types or the optimizer do") {
  std::vector<float> values(32), momentum(32);
  const std::vector<ParameterPlace> places = {{"weight", {4, 8}, 0, 32}};
  const auto digest = [&](const std::vector<ParameterPlace>& of, const char* optimizer, const char* buffer) {
    return state_parts({{{"", values, of, 0}, {buffer, momentum, of, 0}}, {}, {{"optimizer", optimizer}}}).layout;
  };
  const MemoryLayout layout = digest(places, "sgd", "momentum_buffer");
  CHECK(layout == digest(places, "sgd", "momentum_buffer"));
  CHECK(layout.part_bytes == std::vector<std::size_t>{128, 128});
  CHECK_FALSE(layout == digest({{"weight", {8, 4}, 0, 32}}, "sgd", "momentum_buffer"));
  CHECK_FALSE(layout == digest({{"bias", {4, 8}, 0, 32}}, "sgd", "momentum_buffer"));
  CHECK_FALSE(layout == digest(places, "adam", "momentum_buffer"));
  CHECK_FALSE(layout == digest(places, "sgd", "exp_avg"));
}

}  // namespace sgd::worker
