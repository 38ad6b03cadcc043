#include "test/sim/point.hpp"

#include "worker/core/sampler.hpp"

namespace sgd::sim {
namespace {

/// Positions do not depend on the order of samples, so none is made.
worker::Sampler sampler(std::int64_t samples, std::size_t world_size) {
  return {0, 0, samples, static_cast<int>(world_size), false};
}

}  // namespace

void Point::divide_anew(int world_size) {
  std::vector<std::int64_t> divided(static_cast<std::size_t>(world_size), 0);
  for (std::size_t rank = 0; rank < records.size(); ++rank) divided[rank % divided.size()] += records[rank];
  records = std::move(divided);
}

bool Point::advance(const job::Training& training, std::int64_t samples) {
  const int world_size = static_cast<int>(records.size());
  const worker::Sampler order = sampler(samples, records.size());
  const std::int64_t batch = job::batch_size_per_rank(training, world_size);
  const std::int64_t each = order.batch_length(consumed, batch);
  if (each == 0) return false;
  const std::int64_t to = order.advance(consumed, batch);
  if (stretches.empty() || stretches.back().world_size != world_size) {
    stretches.push_back({consumed, to, world_size});
  } else {
    stretches.back().to = to;
  }
  consumed = to;
  for (std::int64_t& record : records) record += each;
  if (!validating) ++step;
  return true;
}

bool Point::phase_is_done(const job::Training& training, std::int64_t samples) const {
  const std::int64_t batch = job::batch_size_per_rank(training, static_cast<int>(records.size()));
  return sampler(samples, records.size()).batch_length(consumed, batch) == 0;
}

void Point::next_phase() {
  if (validating) ++epoch;
  validating = !validating;
  consumed = 0;
  stretches.clear();
  records.assign(records.size(), 0);
}

}  // namespace sgd::sim
