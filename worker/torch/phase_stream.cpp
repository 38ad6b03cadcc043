#include "worker/torch/phase_stream.hpp"

#include <chrono>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace sgd::worker {
namespace {

TimePoint now() {
  return std::chrono::steady_clock::now();
}

}  // namespace

PhaseStream::PhaseStream(const PhaseSettings& settings, const Sampler& sampler, const Dataset& dataset,
                         MetricsAccumulator& metrics, BeforeBatch before, AfterBatch after)
    : settings_(settings),
      sampler_(sampler),
      metrics_(metrics),
      before_(std::move(before)),
      after_(std::move(after)),
      consumed_(settings.consumed),
      loader_({settings.split, settings.epoch, settings.rank, settings.batch_size, settings.consumed}, sampler,
              dataset),
      started_(now()),
      batch_started_(started_),
      waited_before_(waited()) {}

Duration PhaseStream::waited() const {
  return settings_.waited_ns == nullptr ? Duration{0} : Duration{settings_.waited_ns->load(std::memory_order_relaxed)};
}

std::optional<Batch> PhaseStream::next() {
  if (pending_) throw std::logic_error("BatchStream::next() was called before add() completed the last batch");
  if (interrupted_ || sampler_.batch_length(consumed_, settings_.batch_size) == 0) return std::nullopt;
  info_.epoch = settings_.epoch;
  info_.batch_index = metrics_.batch_count();
  info_.global_step = before_();
  info_.is_last = sampler_.batch_length(sampler_.advance(consumed_, settings_.batch_size), settings_.batch_size) == 0;
  pending_ = true;
  std::optional<Batch> batch = loader_.next();
  given_ = now();
  return batch;
}

void PhaseStream::add(const BatchMetrics& metrics) {
  if (!pending_) throw std::logic_error("BatchStream::add() was called without a batch from next()");
  pending_ = false;
  values_.clear();
  for (const auto& [name, value] : metrics.values)
    if (!settings_.skips_not_finite || std::isfinite(value)) values_.push_back({name, value});
  metrics_.add(metrics.num_samples, values_);
  consumed_ = sampler_.advance(consumed_, settings_.batch_size);
  samples_ += metrics.num_samples;
  const TimePoint time = now();
  const Duration all = waited();
  timer_.add(time - batch_started_);
  own_timer_.add(time - batch_started_ - (all - std::exchange(waited_before_, all)));
  batch_started_ = time;
  interrupted_ = !after_(metrics);
}

double PhaseStream::samples_per_s() const {
  const double elapsed_s = to_seconds(batch_started_ - started_);
  return elapsed_s > 0 ? static_cast<double>(samples_) / elapsed_s : 0;
}

}  // namespace sgd::worker
