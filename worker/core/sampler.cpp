#include "worker/core/sampler.hpp"

#include <bit>
#include <limits>
#include <numeric>
#include <utility>

#include "common/base/assert.hpp"
#include "worker/core/mix_bits.hpp"

namespace sgd::worker {
namespace {

class Xoshiro256 {
 public:
  explicit Xoshiro256(std::uint64_t seed) {
    for (std::uint64_t& word : words_) word = splitmix64(seed);
  }

  std::uint64_t operator()() {
    const std::uint64_t result = std::rotl(words_[1] * 5, 7) * 9;
    const std::uint64_t shifted = words_[1] << 17;
    words_[2] ^= words_[0];
    words_[3] ^= words_[1];
    words_[1] ^= words_[2];
    words_[0] ^= words_[3];
    words_[2] ^= shifted;
    words_[3] = std::rotl(words_[3], 45);
    return result;
  }

  // Uniform in 0 .. bound-1 without a division in the common case; rejection keeps it exactly uniform.
  std::uint32_t below(std::uint32_t bound) {
    std::uint64_t product = ((*this)() >> 32) * bound;
    auto low = static_cast<std::uint32_t>(product);
    if (low < bound) {
      const std::uint32_t threshold = (0u - bound) % bound;
      while (low < threshold) {
        product = ((*this)() >> 32) * bound;
        low = static_cast<std::uint32_t>(product);
      }
    }
    return static_cast<std::uint32_t>(product >> 32);
  }

 private:
  std::uint64_t words_[4];
};

}  // namespace

std::uint64_t step_seed(std::uint64_t seed, int epoch, std::int64_t step, int rank) {
  std::uint64_t result = mixed(seed, 0x73746570);  // Apart from the shuffle's use of the same seed.
  result = mixed(result, static_cast<std::uint64_t>(epoch));
  result = mixed(result, static_cast<std::uint64_t>(step));
  return mixed(result, static_cast<std::uint64_t>(rank));
}

Sampler::Sampler(std::uint64_t seed, int epoch, std::int64_t samples, int world_size, bool shuffle)
    : samples_(samples), world_size_(world_size) {
  SGD_ASSERT(samples > 0 && samples <= std::numeric_limits<std::uint32_t>::max());
  SGD_ASSERT(world_size > 0);
  if (!shuffle) return;
  order_.resize(static_cast<std::size_t>(samples));
  std::iota(order_.begin(), order_.end(), 0u);
  Xoshiro256 random(mixed(seed, static_cast<std::uint64_t>(epoch)));
  for (auto i = static_cast<std::uint32_t>(samples - 1); i > 0; --i) {
    std::swap(order_[i], order_[random.below(i + 1)]);
  }
}

std::int64_t Sampler::length(std::int64_t position) const {
  SGD_ASSERT(position >= 0);
  if (position >= samples_) return position;
  return position + (samples_ - position + world_size_ - 1) / world_size_ * world_size_;
}

std::int64_t Sampler::batches_left(std::int64_t position, std::int64_t batch_size) const {
  SGD_ASSERT(batch_size > 0);
  const std::int64_t per_rank = (length(position) - position) / world_size_;
  return (per_rank + batch_size - 1) / batch_size;
}

std::int64_t Sampler::batch_length(std::int64_t position, std::int64_t batch_size) const {
  SGD_ASSERT(batch_size > 0);
  const std::int64_t per_rank = (length(position) - position) / world_size_;
  return per_rank < batch_size ? per_rank : batch_size;
}

std::int64_t Sampler::at(std::int64_t entry) const {
  const std::int64_t wrapped = entry < samples_ ? entry : entry % samples_;
  return order_.empty() ? wrapped : order_[static_cast<std::size_t>(wrapped)];
}

void Sampler::batch(std::int64_t position, int rank, std::int64_t batch_size,
                    std::vector<std::int64_t>& indices) const {
  SGD_ASSERT(rank >= 0 && rank < world_size_);
  const std::int64_t count = batch_length(position, batch_size);
  indices.resize(static_cast<std::size_t>(count));
  std::int64_t entry = position + rank;
  for (std::int64_t& index : indices) {
    index = at(entry);
    entry += world_size_;
  }
}

}  // namespace sgd::worker
