#include "worker/core/loss_scale.hpp"

#include <cmath>

#include "common/json/lenient.hpp"

namespace sgd::worker {
namespace {

constexpr std::int64_t kStepsToGrow = 2000;
constexpr double kLargest = 16'777'216;  // Of fp32 losses above it little is left.

}  // namespace

double LossScale::end_step(bool is_infinite) {
  if (is_infinite) {
    since_change_ = 0;
    if (!can_fall()) return 1;
    value_ /= 2;
    return 0.5;
  }
  if (++since_change_ < kStepsToGrow) return 1;
  since_change_ = 0;
  if (value_ >= kLargest) return 1;
  value_ *= 2;
  return 2;
}

nlohmann::json LossScale::state() const {
  return {{"value", value_}, {"since_change", since_change_}};
}

Status LossScale::load(const nlohmann::json& state) {
  *this = LossScale();
  if (!state.is_object()) return {};
  const double value = read_or(state, "value", 0.0);
  const std::int64_t since = read_or(state, "since_change", std::int64_t{-1});
  int exponent = 0;
  if (!(value >= 1 && value <= kLargest) || std::frexp(value, &exponent) != 0.5 || since < 0)
    return Error{"loss_scale has the wrong shape"};
  value_ = value;
  since_change_ = since;
  return {};
}

}  // namespace sgd::worker
