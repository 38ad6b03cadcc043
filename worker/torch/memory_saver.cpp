#include "worker/torch/memory_saver.hpp"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <numeric>
#include <utility>

#include "worker/link/stack_signal.hpp"
#include "worker/torch/clock.hpp"

namespace sgd::worker {
namespace {

void warn(const std::string& reason) {
  std::fprintf(stderr, "sgd-worker: warning: no memory checkpoints: %s; restarts use those on disk\n", reason.c_str());
}

}  // namespace

void CopyPace::add(TimePoint began, TimePoint ended) {
  costs_[count_++ % kCosts] = ended - began;
  const Duration sum = std::accumulate(std::begin(costs_), std::end(costs_), Duration::zero());
  next_ = began + std::max(kIntervalMin, sum / std::min(count_, kCosts) * kCostFraction);
}

std::unique_ptr<MemorySaver> MemorySaver::make(int fd, Generation generation, const MemoryLayout& layout,
                                               std::unique_ptr<MemoryCheckpoint> region) {
  if (!region) {
    Result<std::unique_ptr<MemoryCheckpoint>> created = MemoryCheckpoint::create(fd, layout);
    if (!created) {
      warn(created.error().message);
      return nullptr;
    }
    region = std::move(created).value();
  }
  return std::unique_ptr<MemorySaver>(new MemorySaver(generation, std::move(region)));
}

MemorySaver::MemorySaver(Generation generation, std::unique_ptr<MemoryCheckpoint> region)
    : generation_(generation), region_(std::move(region)) {}

MemorySaver::~MemorySaver() {
  cancelled_ = true;
  if (thread_.joinable()) thread_.join();
}

void MemorySaver::start() {
  if (thread_.joinable()) return;
  const StackSignalBlock no_stack_signal;
  thread_ = std::thread([this] { populate(); });
}

void MemorySaver::populate() {
  if (Status populated = region_->populate(cancelled_); !populated) {
    warn(populated.error().message);
  } else if (!cancelled_) {
    ready_.store(true, std::memory_order_release);
  }
}

void MemorySaver::commit(const MemoryPoint& point, std::span<const std::string_view> text, const StateParts& state,
                         TimePoint began, std::optional<Duration> held) {
  if (!ready() || waits_after_failure(began)) return;
  const Status committed = region_->commit(generation_, point, text, state.readable());
  if (!committed && !failed_) {
    std::fprintf(stderr,
                 "sgd-worker: warning: no copy of step %lld in memory: %s; training goes on, and restarts use the copy "
                 "before or a checkpoint on disk\n",
                 static_cast<long long>(point.step), committed.error().message.c_str());
  }
  const TimePoint ended = time_now();
  failed_ = committed ? std::nullopt : std::optional(ended);
  // What is copied beside training takes bandwidth of it, if not time: a tenth counts.
  pace_.add(began, held ? began + std::max(*held, (ended - began) / 10) : ended);
}

}  // namespace sgd::worker
