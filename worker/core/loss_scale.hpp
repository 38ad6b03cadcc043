#pragma once
// What losses are multiplied with in half precision, so that small gradients are not lost, as torch.amp.GradScaler
// finds it: half as much after a step whose gradients were infinite, which is left out, and twice as much after 2000
// that were not. A power of two, so that dividing by it changes no bit.

#include <cstdint>

#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"

namespace sgd::worker {

class LossScale {
 public:
  [[nodiscard]] double value() const { return value_; }
  /// Whether infinite gradients may be the scale's fault.
  [[nodiscard]] bool can_fall() const { return value_ > 1; }
  /// A step is done, on every rank. Returns what the scale has changed by.
  double end_step(bool is_infinite);

  [[nodiscard]] nlohmann::json state() const;
  /// Of a checkpoint; null: it has none.
  [[nodiscard]] Status load(const nlohmann::json& state);

 private:
  double value_ = 65536;
  std::int64_t since_change_ = 0;  // Steps.
};

}  // namespace sgd::worker
