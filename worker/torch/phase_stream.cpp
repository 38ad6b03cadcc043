#include "worker/torch/phase_stream.hpp"

#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include "worker/torch/clock.hpp"

namespace sgd::worker {

PhaseStream::PhaseStream(const PhaseSettings& settings, std::shared_ptr<PassBatches> source,
                         MetricsAccumulator& metrics, BeforeBatch before, AfterBatch after)
    : settings_(settings),
      source_(std::move(source)),
      metrics_(metrics),
      before_(std::move(before)),
      after_(std::move(after)),
      batches_(settings.batches),
      started_(time_now()),
      batch_started_(started_),
      waited_before_(waited()) {}

Duration PhaseStream::waited() const {
  return settings_.waited_ns == nullptr ? Duration{0} : Duration{settings_.waited_ns->load(std::memory_order_relaxed)};
}

std::optional<Batch> PhaseStream::next() {
  if (pending_) throw std::logic_error("BatchStream::next() was called before add() completed the last batch");
  while (!interrupted_ && !ends_after(batches_)) {
    // The last of a number of batches is known without the one behind it, which may be long in coming.
    switch (source_->look(!ends_after(batches_ + 1))) {
      case PassBatches::Next::kBatch:
        return give();
      case PassBatches::Next::kIdle:
        idle();
        break;
      case PassBatches::Next::kEnd:
        if (settings_.batches_max == 0) return std::nullopt;
        source_->begin_pass(source_->pass() + 1);
        break;
    }
  }
  return std::nullopt;
}

Batch PhaseStream::give() {
  info_.epoch = settings_.epoch;
  info_.batch_index = metrics_.batch_count();
  info_.global_step = before_();
  info_.is_last = ends_after(batches_ + 1) || (settings_.batches_max == 0 && source_->is_last());
  pending_ = true;
  Batch batch = settings_.device.moved(source_->take());
  given_ = time_now();
  return batch;
}

/// A turn of the others.
void PhaseStream::idle() {
  given_ = time_now();
  source_->advance();
  interrupted_ = !after_(BatchMetrics{0, {}});
}

void PhaseStream::add(const BatchMetrics& metrics) {
  if (!pending_) throw std::logic_error("BatchStream::add() was called without a batch from next()");
  if (metrics.num_samples < 0)
    throw std::logic_error("num_samples of a batch is " + std::to_string(metrics.num_samples) +
                           ": it must be at least 0");
  pending_ = false;
  values_.clear();
  for (const auto& [name, value] : metrics.values)
    if (!settings_.skips_not_finite || std::isfinite(value)) values_.push_back({name, value});
  metrics_.add(metrics.num_samples, values_);
  source_->advance();
  ++batches_;
  samples_ += metrics.num_samples;
  const TimePoint time = time_now();
  const Duration all = waited();
  timer_.add(time - batch_started_);
  own_timer_.add(time - batch_started_ - (all - std::exchange(waited_before_, all)));
  batch_started_ = time;
  interrupted_ = !after_(metrics);
}

void PhaseStream::check_completed(const char* who) const {
  if (pending_)
    throw std::logic_error(std::string(who) +
                           " has ended before add() completed the last batch: call it for each that next() gives");
}

double PhaseStream::samples_per_s() const {
  const double elapsed_s = to_seconds(batch_started_ - started_);
  return elapsed_s > 0 ? static_cast<double>(samples_) / elapsed_s : 0;
}

}  // namespace sgd::worker
