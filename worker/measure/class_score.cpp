// Precision, recall and F-beta: three counts for each class.
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include <fmt/format.h>

#include "worker/measure/class_rows.hpp"
#include "worker/measure/limits.hpp"
#include "worker/measure/metric_state.hpp"

namespace sgd {
namespace {

constexpr double kNoScore = std::numeric_limits<double>::quiet_NaN();

double total_of(const std::vector<std::int64_t>& counts) {
  return static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
}

void add_counts(std::vector<std::int64_t>& counts, const std::vector<std::int64_t>& others) {
  for (std::size_t at = 0; at < counts.size(); ++at) counts[at] += others[at];
}

const char* ending_of(Average average) {
  if (average == Average::kMicro) return "_micro";
  return average == Average::kPerClass ? "_per_class" : "";
}

}  // namespace

ClassScore::ClassScore(std::string name, Average average, IgnoreIndex ignore_index)
    : name_(std::move(name) + ending_of(average)), average_(average), ignore_index_(ignore_index) {}

void ClassScore::add(const at::Tensor& output, const at::Tensor& target) {
  const worker::ClassRows rows = worker::class_rows(name_.c_str(), output, target, ignore_index_);
  if (right_.empty()) {
    if (average_ == Average::kPerClass && rows.classes > worker::kListedClassesMax)
      throw std::invalid_argument(
          fmt::format("{}: a list of {} classes does not fit a report, at most {} do: take the "
                      "average \"macro\" or \"micro\"",
                      name_, rows.classes, worker::kListedClassesMax));
    for (auto* counts : {&right_, &predicted_, &actual_}) counts->resize(static_cast<std::size_t>(rows.classes));
  }
  if (rows.classes != static_cast<std::int64_t>(right_.size()))
    throw std::invalid_argument(
        fmt::format("{}: a batch has {} classes, and those before it have {}", name_, rows.classes, right_.size()));
  const at::Tensor predicted = worker::predicted_classes(rows);
  worker::count_into(predicted_, predicted);
  worker::count_into(actual_, rows.target);
  worker::count_into(right_, rows.target.index({predicted.eq(rows.target)}));
}

nlohmann::ordered_json ClassScore::values() const {
  if (right_.empty()) return {{name_, kNoScore}};
  if (average_ == Average::kMicro) {
    const double actual = total_of(actual_);
    return {{name_, actual == 0 ? kNoScore : score(total_of(right_), total_of(predicted_), actual)}};
  }
  std::vector<double> scores;
  double sum = 0;
  int occurring = 0;
  for (std::size_t at = 0; at < right_.size(); ++at) {
    const bool occurs = predicted_[at] + actual_[at] > 0;
    scores.push_back(occurs ? score(static_cast<double>(right_[at]), static_cast<double>(predicted_[at]),
                                    static_cast<double>(actual_[at]))
                            : kNoScore);
    if (!occurs) continue;
    sum += scores.back();
    ++occurring;
  }
  if (average_ == Average::kPerClass) return {{name_, scores}};
  return {{name_, occurring == 0 ? kNoScore : sum / occurring}};
}

nlohmann::json ClassScore::state() const {
  return {{"right", right_}, {"predicted", predicted_}, {"actual", actual_}};
}

void ClassScore::merge(const nlohmann::json& state) {
  const auto right = worker::counts_in(state, name_, "right");
  const auto predicted = worker::counts_in(state, name_, "predicted");
  const auto actual = worker::counts_in(state, name_, "actual");
  if (predicted.size() != right.size() || actual.size() != right.size())
    worker::bad_metric_state(name_, "its lists are of different lengths");
  if (right.empty()) return;
  if (right_.empty())
    for (auto* counts : {&right_, &predicted_, &actual_}) counts->resize(right.size());
  if (right.size() != right_.size())
    worker::bad_metric_state(name_, fmt::format("it has {} classes, and this one {}", right.size(), right_.size()));
  add_counts(right_, right);
  add_counts(predicted_, predicted);
  add_counts(actual_, actual);
}

void ClassScore::clear() {
  for (auto* counts : {&right_, &predicted_, &actual_}) counts->clear();
}

Precision::Precision(Average average, IgnoreIndex ignore_index) : ClassScore("precision", average, ignore_index) {}

double Precision::score(double right, double predicted, double /*actual*/) const {
  return predicted == 0 ? 0 : right / predicted;
}

Recall::Recall(Average average, IgnoreIndex ignore_index) : ClassScore("recall", average, ignore_index) {}

double Recall::score(double right, double /*predicted*/, double actual) const {
  return actual == 0 ? 0 : right / actual;
}

FBeta::FBeta(double beta, Average average, IgnoreIndex ignore_index)
    : ClassScore(fmt::format("f{:g}", beta), average, ignore_index), beta_(beta) {
  if (!(beta > 0) || !std::isfinite(beta))
    throw std::invalid_argument(fmt::format("f_beta: beta must be above 0, got {}", beta));
}

double FBeta::score(double right, double predicted, double actual) const {
  const double square = beta_ * beta_;
  const double whole = square * actual + predicted;
  return whole == 0 ? 0 : (1 + square) * right / whole;
}

}  // namespace sgd
