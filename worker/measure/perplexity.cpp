#include <algorithm>
#include <cmath>
#include <limits>

#include "worker/measure/class_rows.hpp"
#include "worker/measure/metric_state.hpp"

namespace sgd {
namespace {

constexpr std::int64_t kNumbersAtOnce = 1 << 22;  // As doubles 32 MiB, whatever vocabulary and batch are.

}  // namespace

void Perplexity::add(const at::Tensor& output, const at::Tensor& target) {
  const worker::ClassRows rows = worker::class_rows("perplexity", output, target, ignore_index_);
  worker::check_own_outputs("perplexity", rows);
  const at::NoGradGuard no_gradients;
  const std::int64_t count = rows.target.numel();
  const std::int64_t at_once = std::max<std::int64_t>(1, kNumbersAtOnce / rows.output.size(1));
  for (std::int64_t begin = 0; begin < count; begin += at_once) {
    const std::int64_t end = std::min(count, begin + at_once);
    // By rows of doubles: then what a target gives does not depend on its neighbours.
    const at::Tensor logits = rows.output.slice(0, begin, end).to(at::kDouble).contiguous();
    const at::Tensor column = rows.target.slice(0, begin, end).unsqueeze(1);
    const at::Tensor losses = at::log_softmax(logits, 1).gather(1, column).neg().to(at::kCPU).contiguous();
    const auto* values = losses.const_data_ptr<double>();
    for (std::int64_t row = 0; row < end - begin; ++row) log_loss_.add(values[row]);
  }
  counted_ += count;
}

nlohmann::ordered_json Perplexity::values() const {
  if (counted_ == 0) return {{"perplexity", std::numeric_limits<double>::quiet_NaN()}};
  return {{"perplexity", std::exp(log_loss_.value() / static_cast<double>(counted_))}};
}

nlohmann::json Perplexity::state() const {
  return {{"log_loss", log_loss_.state()}, {"counted", counted_}};
}

void Perplexity::merge(const nlohmann::json& state) {
  const std::int64_t counted = worker::count_in(state, "perplexity", "counted");
  log_loss_.merge(state.value("log_loss", nlohmann::json()));
  counted_ += counted;
}

void Perplexity::clear() {
  log_loss_.clear();
  counted_ = 0;
}

}  // namespace sgd
