// Memory checkpoints: what is committed comes back, whatever was killed or damaged in between.
#include "worker/core/memory_checkpoint.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <numeric>

#include <catch2/catch.hpp>

#include "test/unit/worker/rank_processes.hpp"

namespace sgd::worker {
namespace {

using testing::Memory;

constexpr off_t kHeaderBytes = 4096;  // Of the region and of each slot.

/// The tensors of a tiny model whose every value tells the step.
struct State {
  explicit State(std::int64_t step, std::size_t floats = 3000) : weights(floats), momenta(floats), counter(step) {
    std::iota(weights.begin(), weights.end(), static_cast<float>(step));
    std::iota(momenta.begin(), momenta.end(), static_cast<float>(-step));
  }
  [[nodiscard]] std::vector<std::span<std::byte>> parts() {
    return {std::as_writable_bytes(std::span(weights)),
            std::as_writable_bytes(std::span(momenta)),
            std::as_writable_bytes(std::span(&counter, 1)),
            {}};
  }
  [[nodiscard]] MemoryLayout layout() {
    MemoryLayout made;
    for (const auto part : parts()) made.part_bytes.push_back(part.size());
    made.digest = 42;
    return made;
  }
  bool operator==(const State&) const = default;

  std::vector<float> weights, momenta;
  std::int64_t counter;
};

std::string text_of(std::int64_t step) {
  return "{\"step\":" + std::to_string(step) + "}";
}

void commit(MemoryCheckpoint& region, Generation generation, std::int64_t step) {
  State state(step);
  const std::vector<std::span<std::byte>> parts = state.parts();
  const std::vector<std::span<const std::byte>> readable(parts.begin(), parts.end());
  const std::string text = text_of(step);
  const std::string_view pieces[] = {std::string_view(text).substr(0, 3), "", std::string_view(text).substr(3)};
  REQUIRE(region.commit(generation, {step, 2, true, 7}, pieces, readable).ok());
}

std::unique_ptr<MemoryCheckpoint> created(const Memory& memory) {
  auto region = MemoryCheckpoint::create(memory.fd(), State(0).layout());
  REQUIRE(region.ok());
  return std::move(region).value();
}

std::unique_ptr<MemoryCheckpoint> attached(const Memory& memory, const MemoryLayout& layout = State(0).layout()) {
  auto region = MemoryCheckpoint::attach(memory.fd(), layout);
  REQUIRE(region.ok());
  return std::move(region).value();
}

/// The step of the newest whole slot, after a check that all of it belongs to that step; -1 for none. Damaged ones are
/// discarded on the way.
std::int64_t newest_step(MemoryCheckpoint& region, std::vector<std::string>* damage = nullptr) {
  for (auto slot = region.newest(); slot; slot = region.newest()) {
    State state(0);
    const Result<std::string> text = region.read(slot->index, state.parts());
    if (text) {
      CHECK(state == State(slot->point.step));
      CHECK(text.value() == text_of(slot->point.step));
      return slot->point.step;
    }
    if (damage != nullptr) damage->push_back(text.error().message);
    region.discard(slot->index);
  }
  return -1;
}

void flip(const Memory& memory, off_t at) {
  unsigned char byte = 0;
  REQUIRE(::pread(memory.fd(), &byte, 1, at) == 1);
  byte ^= 0x10;
  REQUIRE(::pwrite(memory.fd(), &byte, 1, at) == 1);
}

/// Places in each part of a slot: its header's fields, its text, its first two parts.
std::vector<off_t> places_in_slot(const Memory& memory, int index) {
  const off_t header = (1 + index) * kHeaderBytes;
  std::uint64_t area = 0;
  REQUIRE(::pread(memory.fd(), &area, sizeof area, header + 48) == sizeof area);
  const auto text = static_cast<off_t>((area >> 32) * 4096);
  constexpr off_t kPartsBytes = 24'576;  // Of a State in whole pages.
  const off_t parts = 3 * kHeaderBytes + index * kPartsBytes;
  return {header + 8,  header + 24, header + 32, header + 40, header + 49,    header + 52,
          header + 56, text,        text + 5,    parts,       parts + 11'999, parts + 12'032};
}

}  // namespace

TEST_CASE("memory checkpoint: the newest of two comes back whole") {
  const Memory memory;
  CHECK(attached(memory) == nullptr);  // Empty, as the keeper made it.
  created(memory);
  CHECK(newest_step(*attached(memory)) == -1);
  for (const std::int64_t step : {10, 20, 30}) {
    commit(*attached(memory), 1, step);
    CHECK(newest_step(*attached(memory)) == step);
  }
  const auto slot = attached(memory)->newest();
  CHECK(slot->generation == 1);
  CHECK(slot->sequence == 3);
  CHECK(slot->point == MemoryPoint{30, 2, true, 7});
}

TEST_CASE("memory checkpoint: the region keeps its pages and its state when it is populated") {
  const Memory memory;
  const auto region = created(memory);
  commit(*region, 1, 5);
  std::atomic<bool> cancelled{true};
  CHECK(region->populate(cancelled).ok());  // Ends at once.
  cancelled = false;
  CHECK(region->populate(cancelled).ok());
  CHECK(attached(memory)->populate(cancelled).ok());
  CHECK(newest_step(*region) == 5);
}

TEST_CASE("memory checkpoint: every damaged byte is found, and the copy before is used") {
  const Memory memory;
  for (std::size_t place = 0; place < 12; ++place) {
    CAPTURE(place);
    created(memory);
    commit(*attached(memory), 1, 10);
    commit(*attached(memory), 1, 20);
    flip(memory, places_in_slot(memory, 1).at(place));  // The second commit.
    std::vector<std::string> damage;
    const auto region = attached(memory);
    CHECK(newest_step(*region, &damage) == 10);
    REQUIRE(damage.size() == 1);
    CHECK_THAT(damage[0], Catch::StartsWith("its CRC-32C is ") || Catch::Equals("its header is damaged"));
    // The next commit replaces the damaged one, not the whole one.
    CHECK_FALSE(region->slot(1).has_value());
    commit(*region, 1, 30);
    CHECK(region->slot(0)->point.step == 10);
    CHECK(newest_step(*region) == 30);
    flip(memory, places_in_slot(memory, 1).at(place));
    CHECK(newest_step(*region) == 10);
  }
  flip(memory, places_in_slot(memory, 0).at(7));
  CHECK(newest_step(*attached(memory)) == -1);
}

TEST_CASE("memory checkpoint: a region of another model is ignored") {
  const Memory memory;
  created(memory);
  commit(*attached(memory), 1, 10);
  MemoryLayout other = State(0).layout();
  other.digest = 43;
  CHECK(attached(memory, other) == nullptr);
  other = State(0).layout();
  std::swap(other.part_bytes[1], other.part_bytes[2]);
  CHECK(attached(memory, other) == nullptr);
  CHECK(attached(memory, State(0, 3001).layout()) == nullptr);
  CHECK(newest_step(*attached(memory)) == 10);
}

TEST_CASE("memory checkpoint: a later generation wins whatever the step, and its stamp is one store") {
  const Memory memory;
  const auto region = created(memory);
  commit(*region, 1, 100);
  commit(*region, 1, 200);
  region->restamp(0, 2);  // The generation went on from step 100.
  CHECK(newest_step(*region) == 100);
  commit(*region, 2, 110);  // Over the older stamp.
  CHECK(newest_step(*region) == 110);
  CHECK(region->slot(0)->point.step == 100);
}

TEST_CASE("memory checkpoint: what does not fit changes nothing") {
  const Memory memory;
  const auto region = created(memory);
  commit(*region, 1, 10);
  State state(11);
  std::vector<std::span<const std::byte>> parts;
  for (const auto part : state.parts()) parts.push_back(part);
  const char letter = 'x';
  const std::string_view too_long[] = {{&letter, MemoryCheckpoint::kTextBytesMax}, {&letter, 1}};
  const Status refused = region->commit(1, {11}, too_long, parts);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message ==
        "the state beside the tensors has 68719476737 bytes, a memory checkpoint takes 68719476736");
  parts[0] = parts[0].first(4);
  CHECK_FALSE(region->commit(1, {11}, {}, parts).ok());
  CHECK(newest_step(*region) == 10);
}

TEST_CASE("memory checkpoint: the live step is known once it was told") {
  const Memory memory;
  created(memory);
  CHECK_FALSE(attached(memory)->live_step().has_value());
  attached(memory)->set_live_step(17);
  CHECK(*attached(memory)->live_step() == 17);
}

TEST_CASE("memory checkpoint: a writer killed at any instant leaves a whole copy, none older than one commit") {
  const Memory memory;
  created(memory);
  commit(*attached(memory), 1, 1);
  std::int64_t before = 1;
  for (int round = 0; round < 200; ++round) {
    int told[2];
    REQUIRE(::pipe(told) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      const auto region = MemoryCheckpoint::attach(memory.fd(), State(0).layout());
      for (std::int64_t step = before + 1;; ++step) {
        State state(step);
        std::vector<std::span<const std::byte>> parts;
        for (const auto part : state.parts()) parts.push_back(part);
        const std::string text = text_of(step);
        const std::string_view pieces[] = {text};
        (void)region.value()->commit(1, {step, 2, true, 7}, pieces, parts);
        region.value()->set_live_step(step);
        if (::write(told[1], "x", 1) != 1) _exit(1);
      }
    }
    ::close(told[1]);
    // A different instant each round: after some commits, and within the next one.
    char letters[8];
    for (int commits = 0; commits <= round % 5; ++commits) REQUIRE(::read(told[0], letters, 1) == 1);
    for (std::atomic<int> spin = 0; spin < round * 37; ++spin) {
    }
    REQUIRE(::kill(child, SIGKILL) == 0);
    REQUIRE(::waitpid(child, nullptr, 0) == child);
    ::close(told[0]);
    const auto region = attached(memory);
    std::vector<std::string> damage;
    const std::int64_t step = newest_step(*region, &damage);
    CHECK(damage.empty());
    const std::int64_t live = *region->live_step();
    CHECK(step >= live);  // The live step is told after the commit here.
    CHECK(step <= live + 1);
    CHECK(step > before);
    before = step;
  }
}

}  // namespace sgd::worker
