#pragma once
// The linear-regression data set of RaySGD's examples: x_i = 10*i/n, y_i = 2*x_i + 5.

#include <cstdint>
#include <span>
#include <vector>

namespace sgd::worker {

class LinearDataset {
 public:
  explicit LinearDataset(std::int64_t count);

  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(x_.size()); }
  [[nodiscard]] std::span<const float> x() const { return x_; }
  [[nodiscard]] std::span<const float> y() const { return y_; }

  void gather(std::span<const std::int64_t> indices, float* x, float* y) const;

 private:
  std::vector<float> x_;
  std::vector<float> y_;
};

}  // namespace sgd::worker
