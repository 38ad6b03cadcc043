#include <algorithm>
#include <limits>
#include <stdexcept>

#include <fmt/format.h>

#include "common/job/metric_key.hpp"
#include "worker/measure/class_rows.hpp"
#include "worker/measure/limits.hpp"
#include "worker/measure/metric_state.hpp"

namespace sgd {
namespace {

constexpr const char* kMatrixName = "confusion_matrix";

/// Before memory for a table of them is asked for.
void check_classes(std::int64_t classes, bool shows_matrix) {
  constexpr std::int64_t kCellsOfMebibyte = (1 << 20) / sizeof(std::int64_t);
  if (classes > job::kConfusionClassesMax)
    throw std::invalid_argument(
        fmt::format("{}: a table of {} classes takes {} MiB in each worker, at most {} can be: leave the metric out",
                    kMatrixName, classes, classes * classes / kCellsOfMebibyte, job::kConfusionClassesMax));
  if (shows_matrix && classes > worker::kMatrixClassesMax)
    throw std::invalid_argument(
        fmt::format("{}: the matrix of {} classes does not fit a report, that of {} does: set \"matrix\": false",
                    kMatrixName, classes, worker::kMatrixClassesMax));
}

/// The mean of those that are no NaN.
double mean_of_known(const std::vector<double>& values) {
  double sum = 0;
  int known = 0;
  for (const double value : values) {
    if (value != value) continue;
    sum += value;
    ++known;
  }
  return known == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / known;
}

}  // namespace

void ConfusionMatrix::add(const at::Tensor& output, const at::Tensor& target) {
  const worker::ClassRows rows = worker::class_rows(kMatrixName, output, target, ignore_index_);
  if (classes_ == 0) {
    check_classes(rows.classes, shows_matrix_);
    classes_ = rows.classes;
    counts_.assign(static_cast<std::size_t>(classes_ * classes_), 0);
  }
  if (rows.classes != classes_)
    throw std::invalid_argument(
        fmt::format("{}: a batch has {} classes, and those before it have {}", kMatrixName, rows.classes, classes_));
  worker::count_into(counts_, rows.target * classes_ + worker::predicted_classes(rows));
}

nlohmann::ordered_json ConfusionMatrix::values() const {
  std::vector<double> iou;
  std::vector<double> accuracy;
  const auto classes = static_cast<std::size_t>(classes_);
  nlohmann::ordered_json matrix = nlohmann::ordered_json::array();
  for (std::size_t one = 0; one < classes; ++one) {
    std::int64_t actual = 0;
    std::int64_t predicted = 0;
    for (std::size_t other = 0; other < classes; ++other) {
      actual += counts_[one * classes + other];
      predicted += counts_[other * classes + one];
    }
    const std::int64_t right = counts_[one * classes + one];
    iou.push_back(worker::share_of(right, actual + predicted - right));
    accuracy.push_back(worker::share_of(right, actual));
    const auto row = counts_.begin() + static_cast<std::ptrdiff_t>(one * classes);
    if (shows_matrix_) matrix.push_back(std::vector<std::int64_t>(row, row + static_cast<std::ptrdiff_t>(classes)));
  }
  nlohmann::ordered_json values = {{"mean_iou", mean_of_known(iou)}};
  if (classes_ <= worker::kListedClassesMax) {
    values["iou"] = iou;
    values["class_accuracy"] = accuracy;
  }
  if (shows_matrix_) values[kMatrixName] = std::move(matrix);
  return values;
}

/// Cells that are not 0, by their place: most of a large matrix is.
nlohmann::json ConfusionMatrix::state() const {
  std::vector<std::size_t> cells;
  std::vector<std::int64_t> counts;
  for (std::size_t cell = 0; cell < counts_.size(); ++cell) {
    if (counts_[cell] == 0) continue;
    cells.push_back(cell);
    counts.push_back(counts_[cell]);
  }
  return {{"classes", classes_}, {"cells", cells}, {"counts", counts}};
}

void ConfusionMatrix::merge(const nlohmann::json& state) {
  const std::int64_t classes = worker::count_in(state, kMatrixName, "classes");
  const auto cells = worker::counts_in(state, kMatrixName, "cells");
  const auto counts = worker::counts_in(state, kMatrixName, "counts");
  if (classes > job::kConfusionClassesMax)
    worker::bad_metric_state(kMatrixName,
                             fmt::format("it has {} classes, at most {} can be", classes, job::kConfusionClassesMax));
  const auto is_outside = [&](std::int64_t cell) { return cell >= classes * classes; };
  if (cells.size() != counts.size() || std::any_of(cells.begin(), cells.end(), is_outside))
    worker::bad_metric_state(kMatrixName, "its cells are none of the table");
  if (classes == 0) return;
  if (classes_ != 0 && classes_ != classes)
    worker::bad_metric_state(kMatrixName, fmt::format("it has {} classes, and this one {}", classes, classes_));
  classes_ = classes;
  counts_.resize(static_cast<std::size_t>(classes * classes));
  for (std::size_t at = 0; at < cells.size(); ++at) counts_[static_cast<std::size_t>(cells[at])] += counts[at];
}

void ConfusionMatrix::clear() {
  classes_ = 0;
  counts_.clear();
}

at::Tensor ConfusionMatrix::counts() const {
  if (classes_ == 0) return {};
  return at::tensor(counts_, at::kLong).view({classes_, classes_});
}

}  // namespace sgd
