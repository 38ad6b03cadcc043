#pragma once
// Figures in Prometheus' text format (version 0.0.4): families with HELP and TYPE, samples with labels,
// histograms. Pure text. Names and labels come from this program; nothing that a peer chose may become a
// label's value unless CountByLabel bounds how many there are.

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sgd::http {

/// Observations counted by upper bound, for one histogram.
class Histogram {
 public:
  /// `bounds` ascend; +Inf is added when it is written.
  explicit Histogram(std::vector<double> bounds);
  void observe(double value);

  [[nodiscard]] const std::vector<double>& bounds() const { return bounds_; }
  /// One more than bounds; not cumulated.
  [[nodiscard]] const std::vector<std::uint64_t>& counts() const { return counts_; }
  [[nodiscard]] double sum() const { return sum_; }

 private:
  std::vector<double> bounds_;
  std::vector<std::uint64_t> counts_;
  double sum_ = 0;
};

/// Bounds for times of 1 ms to 10 s, in seconds.
[[nodiscard]] Histogram histogram_of_seconds();

/// A count per value of one label. Beyond kLabelsMax different values are counted together, as "other".
class CountByLabel {
 public:
  static constexpr std::size_t kLabelsMax = 32;
  void add(std::string_view label, std::uint64_t count = 1);
  [[nodiscard]] const std::map<std::string, std::uint64_t, std::less<>>& counts() const { return counts_; }

 private:
  std::map<std::string, std::uint64_t, std::less<>> counts_;
};

enum class MetricKind {
  kCounter,    ///< Only grows; its name ends in _total.
  kGauge,      ///< Goes up and down.
  kHistogram,  ///< Written by histogram().
};

class MetricsText {
 public:
  using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

  /// Begins a family; the samples that follow are of it. `help` is one sentence.
  MetricsText& family(MetricKind kind, std::string_view name, std::string_view help);
  MetricsText& sample(double value, Labels labels = {});
  /// A sample for each value of `label`.
  MetricsText& samples(std::string_view label, const CountByLabel& counts);
  MetricsText& histogram(const Histogram& values);
  /// A family of one sample without labels.
  MetricsText& gauge(std::string_view name, std::string_view help, double value);
  MetricsText& counter(std::string_view name, std::string_view help, double value);

  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  void line(std::string_view suffix, double value, Labels labels);

  std::string name_;
  std::string text_;
};

}  // namespace sgd::http
