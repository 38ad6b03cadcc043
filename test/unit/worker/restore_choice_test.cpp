// Which state a generation goes on from: one row a case.
#include "worker/core/restore_choice.hpp"

#include <catch2/catch.hpp>

namespace sgd::worker {
namespace {

MemoryOffer offer(Rank rank, Generation generation, std::int64_t step, std::uint32_t sequence = 1,
                  std::int64_t consumed = 0) {
  MemoryOffer made;
  made.rank = rank;
  made.node = rank;
  made.slot.generation = generation;
  made.slot.sequence = sequence;
  made.slot.point.step = step;
  made.slot.point.consumed = consumed;
  return made;
}

}  // namespace

TEST_CASE("restore: the newest memory checkpoint, by generation before step") {
  struct Row {
    std::vector<MemoryOffer> offers;
    Rank winner;
  };
  const std::vector<Row> rows = {
      {{offer(0, 1, 10), offer(2, 1, 11)}, 2},                   // The later step.
      {{offer(0, 1, 900), offer(2, 2, 11)}, 2},                  // A node that was cut off never wins.
      {{offer(0, 1, 10, 1, 64), offer(2, 1, 10, 9, 0)}, 0},      // The later position at one step.
      {{offer(0, 1, 10, 3), offer(2, 1, 10, 4)}, 2},             // The later commit of equal states.
      {{offer(4, 1, 10), offer(2, 1, 10), offer(6, 1, 10)}, 2},  // The lowest rank of equals.
  };
  for (const Row& row : rows) CHECK(newest(row.offers)->rank == row.winner);
  CHECK_FALSE(newest({}).has_value());
}

TEST_CASE("restore: equal states have equal generation and place, whatever their sequence") {
  CHECK(same_state(offer(0, 1, 10, 3), offer(2, 1, 10, 8)));
  CHECK_FALSE(same_state(offer(0, 1, 10), offer(2, 2, 10)));
  CHECK_FALSE(same_state(offer(0, 1, 10), offer(2, 1, 11)));
  CHECK_FALSE(same_state(offer(0, 1, 10, 1, 0), offer(2, 1, 10, 1, 64)));
}

TEST_CASE("restore: disk only when it is newer") {
  struct Row {
    std::optional<MemoryOffer> memory;
    std::optional<DiskOffer> disk;
    RestoreSource source;
  };
  const std::vector<Row> rows = {
      {{}, {}, RestoreSource::kFresh},
      {{}, DiskOffer{1, 10}, RestoreSource::kDisk},
      {offer(0, 1, 10), {}, RestoreSource::kMemory},
      {offer(0, 1, 10), DiskOffer{1, 9}, RestoreSource::kMemory},
      {offer(0, 1, 10), DiskOffer{1, 10}, RestoreSource::kMemory},
      {offer(0, 1, 10), DiskOffer{1, 11}, RestoreSource::kDisk},
      {offer(0, 1, 10), DiskOffer{2, 5}, RestoreSource::kDisk},
      {offer(0, 2, 5), DiskOffer{1, 10}, RestoreSource::kMemory},
      {offer(0, 1, 10), DiskOffer{0, 99}, RestoreSource::kMemory},  // Of another run.
  };
  for (const Row& row : rows) CHECK(choose(row.memory, row.disk) == row.source);
}

}  // namespace sgd::worker
