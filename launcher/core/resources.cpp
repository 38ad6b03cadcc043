#include "launcher/core/resources.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

#include <fmt/format.h>

#include "common/base/bytes.hpp"

namespace sgd::core {
namespace {

/// Why this run may not use the node at all, whatever is free.
std::string why_barred(const NodeId& node, const NodeCapacity& capacity, const Demand& demand) {
  const job::PlacementRules& rules = demand.rules;
  if (!capacity.out.empty()) return capacity.out;
  if (demand.refusing.contains(node)) return "could not start it";
  if (std::find(rules.exclude.begin(), rules.exclude.end(), node) != rules.exclude.end()) return "excluded";
  for (const auto& [key, wanted] : rules.labels) {
    const auto label = capacity.labels.find(key);
    if (label == capacity.labels.end()) return fmt::format("no label {}, {} wanted", key, wanted);
    if (label->second != wanted) return fmt::format("label {} is {}, {} wanted", key, label->second, wanted);
  }
  return {};
}

LeftOutGpus left_out_on(const NodeId& node, const Demand& demand) {
  const auto left_out = demand.left_out.find(node);
  return left_out == demand.left_out.end() ? LeftOutGpus() : left_out->second;
}

/// `left_out`: GPUs among those that are free.
int fitting(const NodeCapacity& capacity, const Resources& free, int left_out, const Demand& demand) {
  const job::PerWorker& each = demand.per_worker;
  std::int64_t workers = free.slots;
  if (capacity.counts_cpus) workers = std::min<std::int64_t>(workers, free.cpus / std::max(each.cpus, 1));
  if (each.gpus > 0) workers = std::min(workers, (std::int64_t{free.gpus} - left_out) / each.gpus);
  if (each.memory_bytes > 0 && capacity.total.memory_bytes > 0)
    workers = std::min(workers, free.memory_bytes / each.memory_bytes);
  if (demand.rules.max_per_node > 0) workers = std::min<std::int64_t>(workers, demand.rules.max_per_node);
  return static_cast<int>(std::max<std::int64_t>(workers, 0));
}

/// Whatever a node says that it holds, and a job that its workers take: what is free stays a number.
template <class Number>
void take_from(Number& free, std::int64_t workers, std::int64_t each) {
  using Limits = std::numeric_limits<Number>;
  std::int64_t taken = 0;
  std::int64_t left = 0;
  if (__builtin_mul_overflow(workers, each, &taken) || __builtin_sub_overflow(std::int64_t{free}, taken, &left))
    left = workers < 0 ? Limits::max() : Limits::min();
  free = static_cast<Number>(std::clamp<std::int64_t>(left, Limits::min(), Limits::max()));
}

}  // namespace

void take(Resources& free, const job::PerWorker& per_worker, int workers) {
  take_from(free.slots, workers, 1);
  take_from(free.cpus, workers, per_worker.cpus);
  take_from(free.gpus, workers, per_worker.gpus);
  take_from(free.memory_bytes, workers, per_worker.memory_bytes);
}

int room(const NodeId& node, const NodeCapacity& capacity, const Demand& demand) {
  if (!why_barred(node, capacity, demand).empty()) return 0;
  return fitting(capacity, capacity.free, left_out_on(node, demand).free, demand);
}

int room_when_idle(const NodeId& node, const NodeCapacity& capacity, const Demand& demand) {
  if (!why_barred(node, capacity, demand).empty()) return 0;
  return fitting(capacity, capacity.total, left_out_on(node, demand).all, demand);
}

std::string why_no_room(const NodeId& node, const NodeCapacity& capacity, const Demand& demand) {
  const std::string barred = why_barred(node, capacity, demand);
  if (!barred.empty()) return barred;
  const LeftOutGpus left_out = left_out_on(node, demand);
  if (fitting(capacity, capacity.free, left_out.free, demand) > 0) return {};
  const job::PerWorker& each = demand.per_worker;
  const Resources& free = capacity.free;
  const Resources& total = capacity.total;
  if (total.slots == 0) return "offers no slots";
  if (free.slots < 1) return fmt::format("{} of {} slots free", std::max(free.slots, 0), total.slots);
  if (capacity.counts_cpus && free.cpus < each.cpus)
    return fmt::format("{} of {} cpus free, {} wanted", std::max(free.cpus, 0), total.cpus, each.cpus);
  if (std::int64_t{free.gpus} - left_out.free < each.gpus) {
    const std::string besides = left_out.all > 0 ? fmt::format(" besides {} left out", left_out.all) : "";
    return fmt::format("{} of {} gpus free{}, {} wanted", std::max(free.gpus - left_out.free, 0), total.gpus, besides,
                       each.gpus);
  }
  return fmt::format("{} of {} memory free, {} wanted", format_bytes(std::max<std::int64_t>(free.memory_bytes, 0)),
                     format_bytes(total.memory_bytes), format_bytes(each.memory_bytes));
}

}  // namespace sgd::core
