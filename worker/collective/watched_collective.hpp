#pragma once
// A collective that says in Progress when the training thread is inside of it, so that a heartbeat
// tells a rank that waits for others from one that stands still, and how long it has been in there.
// Three relaxed stores and two looks at the clock a call.

#include <memory>
#include <utility>

#include "common/base/time.hpp"
#include "worker/collective/collective.hpp"
#include "worker/link/progress.hpp"

namespace sgd::worker {

class WatchedCollective final : public Collective {
 public:
  /// `progress` outlives this object.
  WatchedCollective(std::unique_ptr<Collective> inner, Progress& progress)
      : inner_(std::move(inner)), progress_(progress) {}

  [[nodiscard]] int rank() const override { return inner_->rank(); }
  [[nodiscard]] int world_size() const override { return inner_->world_size(); }
  [[nodiscard]] std::span<float> gradients() override { return inner_->gradients(); }
  using Collective::all_reduce;
  [[nodiscard]] std::uint32_t all_reduce(std::uint32_t control_word, std::size_t offset, std::size_t count) override {
    const Waiting waiting(progress_);
    return inner_->all_reduce(control_word, offset, count);
  }
  using Collective::agree;
  [[nodiscard]] std::uint32_t agree(std::uint32_t control_word, const Call& call) override {
    const Waiting waiting(progress_);
    return inner_->agree(control_word, call);
  }
  void broadcast(std::span<std::byte> bytes, int root) override {
    const Waiting waiting(progress_);
    inner_->broadcast(bytes, root);
  }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& bytes) override {
    const Waiting waiting(progress_);
    return inner_->all_gather(bytes);
  }
  void barrier() override {
    const Waiting waiting(progress_);
    inner_->barrier();
  }
  void abort() noexcept override { inner_->abort(); }

 private:
  class Waiting {
   public:
    explicit Waiting(Progress& progress) : progress_(progress), since_(std::chrono::steady_clock::now()) {
      progress_.waiting.store(true, std::memory_order_relaxed);
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    ~Waiting() {
      const Duration waited = std::chrono::steady_clock::now() - since_;
      progress_.waited_ns.fetch_add(waited.count(), std::memory_order_relaxed);
      progress_.waiting.store(false, std::memory_order_relaxed);
    }

   private:
    Progress& progress_;
    TimePoint since_;
  };

  std::unique_ptr<Collective> inner_;
  Progress& progress_;
};

}  // namespace sgd::worker
