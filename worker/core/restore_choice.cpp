#include "worker/core/restore_choice.hpp"

#include <tuple>

namespace sgd::worker {

const char* name_of(RestoreSource source) {
  switch (source) {
    case RestoreSource::kFresh:
      return "fresh";
    case RestoreSource::kMemory:
      return "memory";
    case RestoreSource::kDisk:
      return "disk";
  }
  return "";
}

std::optional<MemoryOffer> newest(const std::vector<MemoryOffer>& offers) {
  const auto key = [](const MemoryOffer& offer) {
    return std::tuple(offer.slot.generation, offer.slot.point, offer.slot.sequence, -offer.rank);
  };
  std::optional<MemoryOffer> best;
  for (const MemoryOffer& offer : offers) {
    if (!best || key(offer) > key(*best)) best = offer;
  }
  return best;
}

bool same_state(const MemoryOffer& one, const MemoryOffer& other) {
  return one.slot.generation == other.slot.generation && one.slot.point == other.slot.point;
}

RestoreSource choose(const std::optional<MemoryOffer>& memory, const std::optional<DiskOffer>& disk) {
  if (!memory) return disk ? RestoreSource::kDisk : RestoreSource::kFresh;
  if (!disk) return RestoreSource::kMemory;
  const bool disk_newer =
      std::tuple(disk->generation, disk->step) > std::tuple(memory->slot.generation, memory->slot.point.step);
  return disk_newer ? RestoreSource::kDisk : RestoreSource::kMemory;
}

}  // namespace sgd::worker
