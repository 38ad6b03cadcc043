// Measurements of numbers: mean errors and R2.
#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include <fmt/format.h>

#include "worker/measure/metric_state.hpp"
#include "worker/measure/number_columns.hpp"

namespace sgd {
namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

/// sum(t^2) - sum(t)^2 / n, with twice the digits of a double until the one subtraction that cancels.
double variation_of(const ExactSum& targets, const ExactSum& squares, double samples) {
  const double high = targets.value();
  const double product = high * high;
  const double below = std::fma(high, high, -product) + 2 * high * targets.rest();
  const double quotient = product / samples;
  const double rest = (std::fma(-quotient, samples, product) + below) / samples;
  return (squares.value() - quotient) + (squares.rest() - rest);
}

}  // namespace

void MeanError::add(const at::Tensor& output, const at::Tensor& target) {
  const bool is_absolute = kind_ == Kind::kAbsolute;
  const worker::NumberColumns columns = worker::number_columns(is_absolute ? "mae" : "mse", output, target);
  const auto* outputs = columns.output.const_data_ptr<double>();
  const auto* targets = columns.target.const_data_ptr<double>();
  const std::int64_t count = columns.output.numel();
  for (std::int64_t at = 0; at < count; ++at) {
    const double error = outputs[at] - targets[at];
    if (is_absolute) sum_.add(std::abs(error));
    if (!is_absolute) sum_.add_product(error, error);
  }
  counted_ += count;
}

nlohmann::ordered_json MeanError::values() const {
  const char* name = kind_ == Kind::kAbsolute ? "mae" : "mse";
  return {{name, counted_ == 0 ? kNothing : sum_.value() / static_cast<double>(counted_)}};
}

nlohmann::json MeanError::state() const {
  return {{"sum", sum_.state()}, {"counted", counted_}};
}

void MeanError::merge(const nlohmann::json& state) {
  const std::int64_t counted = worker::count_in(state, kind_ == Kind::kAbsolute ? "mae" : "mse", "counted");
  sum_.merge(state.value("sum", nlohmann::json()));
  counted_ += counted;
}

void MeanError::clear() {
  sum_.clear();
  counted_ = 0;
}

void R2::fit(std::int64_t columns) {
  if (!columns_.empty() && columns != static_cast<std::int64_t>(columns_.size()))
    throw std::invalid_argument(
        fmt::format("r2: a batch has {} numbers a sample, and those before it have {}", columns, columns_.size()));
  columns_.resize(static_cast<std::size_t>(columns));
}

void R2::add(const at::Tensor& output, const at::Tensor& target) {
  const worker::NumberColumns numbers = worker::number_columns("r2", output, target);
  const std::int64_t samples = numbers.output.size(0);
  if (samples == 0) return;
  fit(numbers.output.size(1));
  const auto* outputs = numbers.output.const_data_ptr<double>();
  const auto* targets = numbers.target.const_data_ptr<double>();
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    const bool is_first = counted_++ == 0;
    for (Column& column : columns_) {
      const double wanted = *targets++;
      const double error = wanted - *outputs++;
      column.targets.add(wanted);
      column.squares.add_product(wanted, wanted);
      column.residuals.add_product(error, error);
      column.least = is_first ? wanted : std::min(column.least, wanted);
      column.most = is_first ? wanted : std::max(column.most, wanted);
    }
  }
}

double R2::of(const Column& column) const {
  const double residual = column.residuals.value();
  const double variation =
      column.least == column.most ? 0 : variation_of(column.targets, column.squares, static_cast<double>(counted_));
  if (variation == 0) return residual == 0 ? 1 : 0;
  return 1 - residual / variation;
}

nlohmann::ordered_json R2::values() const {
  if (counted_ < 2 || columns_.empty()) return {{"r2", kNothing}};
  double sum = 0;
  for (const Column& column : columns_) sum += of(column);
  return {{"r2", sum / static_cast<double>(columns_.size())}};
}

nlohmann::json R2::state() const {
  nlohmann::json columns = nlohmann::json::array();
  for (const Column& column : columns_)
    columns.push_back({{"targets", column.targets.state()},
                       {"squares", column.squares.state()},
                       {"residuals", column.residuals.state()},
                       {"least_bits", worker::bits_of_double(column.least)},
                       {"most_bits", worker::bits_of_double(column.most)}});
  return {{"counted", counted_}, {"columns", std::move(columns)}};
}

void R2::merge(const nlohmann::json& state) {
  const std::int64_t counted = worker::count_in(state, "r2", "counted");
  const nlohmann::json columns = state.value("columns", nlohmann::json());
  if (!columns.is_array()) worker::bad_metric_state("r2", "columns is missing or no list");
  if (counted == 0) return;
  fit(static_cast<std::int64_t>(columns.size()));
  for (std::size_t at = 0; at < columns_.size(); ++at) {
    Column& column = columns_[at];
    const nlohmann::json& theirs = columns[at];
    const double least = worker::double_in(theirs, "r2", "least_bits");
    const double most = worker::double_in(theirs, "r2", "most_bits");
    column.targets.merge(theirs.value("targets", nlohmann::json()));
    column.squares.merge(theirs.value("squares", nlohmann::json()));
    column.residuals.merge(theirs.value("residuals", nlohmann::json()));
    column.least = counted_ == 0 ? least : std::min(column.least, least);
    column.most = counted_ == 0 ? most : std::max(column.most, most);
  }
  counted_ += counted;
}

void R2::clear() {
  columns_.clear();
  counted_ = 0;
}

}  // namespace sgd
