#pragma once
// A node's memory checkpoint of a run: two slots that outlive ranks, the older one overwritten.

#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "test/sim/point.hpp"

namespace sgd::sim {

class Memory {
 public:
  struct Slot {
    Generation generation = 0;  ///< 0: empty.
    std::uint32_t sequence = 0;
    Point point;
  };

  /// The newest slot, as a leader offers it; nothing when all are empty.
  [[nodiscard]] std::optional<worker::MemorySlot> newest() const {
    std::optional<worker::MemorySlot> best;
    for (int index = 0; index < 2; ++index) {
      const Slot& slot = slots_[static_cast<std::size_t>(index)];
      if (slot.generation == 0) continue;
      if (best && std::pair(best->generation, best->sequence) >= std::pair(slot.generation, slot.sequence)) continue;
      best = worker::MemorySlot{index, slot.generation, slot.sequence, slot.point.memory_point()};
    }
    return best;
  }
  [[nodiscard]] const Point& point(int index) const { return slots_[static_cast<std::size_t>(index)].point; }

  void commit(Generation generation, const Point& point) {
    const bool first_is_older =
        std::pair(slots_[0].generation, slots_[0].sequence) <= std::pair(slots_[1].generation, slots_[1].sequence);
    slots_[first_is_older ? 0 : 1] = {generation, ++sequence_, point};
  }
  void restamp(int index, Generation generation) { slots_[static_cast<std::size_t>(index)].generation = generation; }

 private:
  std::array<Slot, 2> slots_;
  std::uint32_t sequence_ = 0;
};

}  // namespace sgd::sim
