#include "worker/core/linear_dataset.hpp"

#include "common/base/assert.hpp"

namespace sgd::worker {

LinearDataset::LinearDataset(std::int64_t count) {
  SGD_ASSERT(count > 0);
  x_.reserve(static_cast<std::size_t>(count));
  y_.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const double x = 10.0 * static_cast<double>(i) / static_cast<double>(count);
    x_.push_back(static_cast<float>(x));
    y_.push_back(static_cast<float>(2 * x + 5));
  }
}

void LinearDataset::gather(std::span<const std::int64_t> indices, float* x, float* y) const {
  for (std::size_t i = 0; i < indices.size(); ++i) {
    SGD_ASSERT(indices[i] >= 0 && indices[i] < count());
    x[i] = x_[static_cast<std::size_t>(indices[i])];
    y[i] = y_[static_cast<std::size_t>(indices[i])];
  }
}

}  // namespace sgd::worker
