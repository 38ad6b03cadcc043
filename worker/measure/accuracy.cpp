// Shares of right answers: accuracy and top-k.
#include <stdexcept>

#include <fmt/format.h>

#include "worker/measure/class_rows.hpp"
#include "worker/measure/metric_state.hpp"

namespace sgd {

using worker::class_rows;
using worker::ClassRows;

void Accuracy::add(const at::Tensor& output, const at::Tensor& target) {
  const ClassRows rows = class_rows("accuracy", output, target, ignore_index_);
  correct_ += worker::predicted_classes(rows).eq(rows.target).sum().item<std::int64_t>();
  counted_ += rows.target.numel();
}

nlohmann::ordered_json Accuracy::values() const {
  return {{"accuracy", worker::share_of(correct_, counted_)}};
}

nlohmann::json Accuracy::state() const {
  return {{"correct", correct_}, {"counted", counted_}};
}

void Accuracy::merge(const nlohmann::json& state) {
  const std::int64_t correct = worker::count_in(state, "accuracy", "correct");
  counted_ += worker::count_in(state, "accuracy", "counted");
  correct_ += correct;
}

void Accuracy::clear() {
  correct_ = counted_ = 0;
}

TopK::TopK(std::int64_t k, IgnoreIndex ignore_index) : k_(k), ignore_index_(ignore_index) {
  if (k < 1) throw std::invalid_argument(fmt::format("top_k: k must be at least 1, got {}", k));
}

void TopK::add(const at::Tensor& output, const at::Tensor& target) {
  const ClassRows rows = class_rows("top_k", output, target, ignore_index_);
  const std::int64_t classes = rows.output.size(1);
  if (k_ > classes)
    throw std::invalid_argument(
        fmt::format("top_k: k is {}, and the model has {} outputs: take a smaller k", k_, classes));
  worker::check_own_outputs("top_k", rows);
  const at::NoGradGuard no_gradients;
  const at::Tensor column = rows.target.unsqueeze(1);
  const at::Tensor own = rows.output.gather(1, column);
  // Not "less or equal", so that NaN is never among the first.
  const at::Tensor larger = rows.output.le(own).logical_not().sum(1);
  const at::Tensor numbers = at::arange(classes, rows.target.options()).unsqueeze(0);
  const at::Tensor equal_before = rows.output.eq(own).logical_and(numbers.lt(column)).sum(1);
  correct_ += (larger + equal_before).lt(k_).sum().item<std::int64_t>();
  counted_ += rows.target.numel();
}

nlohmann::ordered_json TopK::values() const {
  return {{fmt::format("top_{}", k_), worker::share_of(correct_, counted_)}};
}

nlohmann::json TopK::state() const {
  return {{"correct", correct_}, {"counted", counted_}};
}

void TopK::merge(const nlohmann::json& state) {
  const std::int64_t correct = worker::count_in(state, "top_k", "correct");
  counted_ += worker::count_in(state, "top_k", "counted");
  correct_ += correct;
}

void TopK::clear() {
  correct_ = counted_ = 0;
}

}  // namespace sgd
