#include "launcher/http/metrics_text.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "common/base/assert.hpp"

namespace sgd::http {
namespace {

bool is_name(std::string_view text) {
  return !text.empty() && (text.front() < '0' || text.front() > '9') &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; });
}

/// A label's value between its quotes. The format is UTF-8; what is not printable ASCII becomes '?'.
std::string escaped(std::string_view value) {
  std::string text;
  for (const char c : value) {
    switch (c) {
      case '\\':
        text += "\\\\";
        break;
      case '"':
        text += "\\\"";
        break;
      case '\n':
        text += "\\n";
        break;
      default:
        text += c >= 0x20 && c < 0x7f ? c : '?';
    }
  }
  return text;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

const char* name_of(MetricKind kind) {
  switch (kind) {
    case MetricKind::kCounter:
      return "counter";
    case MetricKind::kGauge:
      return "gauge";
    case MetricKind::kHistogram:
      return "histogram";
  }
  return "untyped";
}

}  // namespace

Histogram::Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {
  SGD_ASSERT(std::is_sorted(bounds_.begin(), bounds_.end()));
}

void Histogram::observe(double value) {
  if (std::isnan(value)) return;
  ++counts_[std::distance(bounds_.begin(), std::lower_bound(bounds_.begin(), bounds_.end(), value))];
  sum_ += value;
}

Histogram histogram_of_seconds() {
  return Histogram({0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10});
}

void CountByLabel::add(std::string_view label, std::uint64_t count) {
  auto found = counts_.find(label);
  if (found == counts_.end())
    found = counts_.try_emplace(counts_.size() < kLabelsMax ? std::string(label) : "other", 0).first;
  found->second += count;
}

MetricsText& MetricsText::family(MetricKind kind, std::string_view name, std::string_view help) {
  SGD_ASSERT(is_name(name));
  SGD_ASSERT(name.ends_with("_total") == (kind == MetricKind::kCounter));
  SGD_ASSERT(help.find_first_of("\\\n") == std::string_view::npos);
  name_ = name;
  fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, name_of(kind));
  return *this;
}

void MetricsText::line(std::string_view suffix, double value, Labels labels) {
  text_ += name_;
  text_ += suffix;
  char before = '{';
  for (const auto& [name, label] : labels) {
    SGD_ASSERT(is_name(name));
    fmt::format_to(std::back_inserter(text_), "{}{}=\"{}\"", before, name, escaped(label));
    before = ',';
  }
  if (labels.size() > 0) text_ += '}';
  fmt::format_to(std::back_inserter(text_), " {}\n", number(value));
}

MetricsText& MetricsText::sample(double value, Labels labels) {
  line("", value, labels);
  return *this;
}

MetricsText& MetricsText::samples(std::string_view label, const CountByLabel& counts) {
  for (const auto& [value, count] : counts.counts()) line("", static_cast<double>(count), {{label, value}});
  return *this;
}

MetricsText& MetricsText::histogram(const Histogram& values) {
  std::uint64_t cumulated = 0;
  for (std::size_t index = 0; index < values.counts().size(); ++index) {
    cumulated += values.counts()[index];
    const std::string bound = index < values.bounds().size() ? number(values.bounds()[index]) : "+Inf";
    line("_bucket", static_cast<double>(cumulated), {{"le", bound}});
  }
  line("_sum", values.sum(), {});
  line("_count", static_cast<double>(cumulated), {});
  return *this;
}

MetricsText& MetricsText::gauge(std::string_view name, std::string_view help, double value) {
  return family(MetricKind::kGauge, name, help).sample(value);
}

MetricsText& MetricsText::counter(std::string_view name, std::string_view help, double value) {
  return family(MetricKind::kCounter, name, help).sample(value);
}

}  // namespace sgd::http
