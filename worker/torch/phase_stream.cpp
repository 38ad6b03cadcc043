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

PhaseStream::PhaseStream(const PhaseSettings& settings, Order order, const Dataset& dataset,
                         MetricsAccumulator& metrics, BeforeBatch before, AfterBatch after)
    : settings_(settings),
      order_(std::move(order)),
      sampler_(order_(settings.pass)),
      dataset_(dataset),
      metrics_(metrics),
      before_(std::move(before)),
      after_(std::move(after)),
      pass_(settings.pass),
      consumed_(settings.consumed),
      batches_(settings.batches),
      started_(now()),
      batch_started_(started_),
      waited_before_(waited()) {
  begin_loading();
}

void PhaseStream::begin_loading() {
  loader_ = std::make_unique<Loader>(
      LoaderPhase{settings_.split, pass_, settings_.rank, settings_.batch_size, consumed_}, sampler_, dataset_);
}

void PhaseStream::begin_pass() {
  loader_.reset();  // Its threads read the order.
  ++pass_;
  consumed_ = 0;
  sampler_ = order_(pass_);
  begin_loading();
}

bool PhaseStream::ends_at(std::int64_t batches, std::int64_t consumed) const {
  return settings_.batches_max > 0 ? batches >= settings_.batches_max : samples_left(consumed) == 0;
}

Duration PhaseStream::waited() const {
  return settings_.waited_ns == nullptr ? Duration{0} : Duration{settings_.waited_ns->load(std::memory_order_relaxed)};
}

std::optional<Batch> PhaseStream::next() {
  if (pending_) throw std::logic_error("BatchStream::next() was called before add() completed the last batch");
  if (interrupted_ || ends_at(batches_, consumed_)) return std::nullopt;
  if (is_pass_done()) begin_pass();
  info_.epoch = settings_.epoch;
  info_.batch_index = metrics_.batch_count();
  info_.global_step = before_();
  info_.is_last = ends_at(batches_ + 1, sampler_.advance(consumed_, settings_.batch_size));
  pending_ = true;
  std::optional<Batch> batch = settings_.device.moved(loader_->next());
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
  ++batches_;
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
