#pragma once
// What the training thread has reached, published for the heartbeats. The training thread writes
// plain relaxed atomics, so publishing costs a step nothing; readers may see fields of two
// neighbouring steps.

#include <atomic>
#include <cstdint>

namespace sgd::worker {

struct Progress {
  enum class Phase { kStarting, kFetching, kTrain, kValidate, kSaving, kDone };

  std::atomic<std::int64_t> step{0};           ///< Optimizer steps since the run's start.
  std::atomic<int> epoch{0};                   ///< From 1.
  std::atomic<Phase> phase{Phase::kStarting};  ///< What the training thread does.
  std::atomic<double> loss{0};                 ///< Of this rank's last batch.
  std::atomic<std::int64_t> samples{0};        ///< This rank's samples so far; the link thread derives the rate.
  std::atomic<bool> waiting{false};            ///< The training thread is inside a collective.
  std::atomic<std::int64_t> waited_ns{0};      ///< The training thread's time inside collectives so far.
  std::atomic<std::int64_t> fetched{0};        ///< Bytes of the checkpoint that the group waits for.
  std::atomic<bool> has_gpu{false};            ///< The next three say something.
  std::atomic<double> gpu_percent{0};          ///< How busy it is.
  std::atomic<double> gpu_mib{0};              ///< In use.
  std::atomic<double> gpu_celsius{0};
};

[[nodiscard]] constexpr const char* name_of(Progress::Phase phase) {
  switch (phase) {
    case Progress::Phase::kStarting:
      return "starting";
    case Progress::Phase::kFetching:
      return "fetch";
    case Progress::Phase::kTrain:
      return "train";
    case Progress::Phase::kValidate:
      return "validate";
    case Progress::Phase::kSaving:
      return "saving";
    case Progress::Phase::kDone:
      return "done";
  }
  return "";
}

}  // namespace sgd::worker
