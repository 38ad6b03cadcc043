#include "common/base/time.hpp"

#include <array>
#include <utility>

namespace sgd {
namespace {

struct TimeUnit {
  std::string_view name;
  std::int64_t ns;
};
/// From the largest; format_duration takes the first that divides.
constexpr std::array<TimeUnit, 5> kTimeUnits{
    {{"h", 3'600'000'000'000}, {"m", 60'000'000'000}, {"s", 1'000'000'000}, {"ms", 1'000'000}, {"us", 1'000}}};
/// Ten years: adding it to any time point of a running machine cannot overflow.
constexpr std::int64_t kDurationMaxNs = 10LL * 365 * 24 * 3'600'000'000'000;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

const TimeUnit* unit_named(std::string_view name) {
  for (const TimeUnit& unit : kTimeUnits) {
    if (unit.name == name) return &unit;
  }
  return nullptr;
}

}  // namespace

std::optional<Duration> parse_duration(std::string_view text) {
  std::size_t at = 0;
  std::int64_t whole = 0;
  for (; at < text.size() && is_digit(text[at]); ++at) {
    if (whole > kDurationMaxNs) return std::nullopt;
    whole = whole * 10 + (text[at] - '0');
  }
  if (at == 0) return std::nullopt;
  double fraction = 0;
  if (at < text.size() && text[at] == '.') {
    const std::size_t first = ++at;
    double place = 0.1;
    for (; at < text.size() && is_digit(text[at]); ++at, place /= 10) fraction += place * (text[at] - '0');
    if (at == first) return std::nullopt;
  }
  const TimeUnit* unit = unit_named(text.substr(at));
  if (unit == nullptr || whole > kDurationMaxNs / unit->ns) return std::nullopt;
  const auto fraction_ns = static_cast<std::int64_t>(fraction * static_cast<double>(unit->ns) + 0.5);
  return Duration(whole * unit->ns + fraction_ns);
}

std::string format_duration(Duration duration) {
  const std::int64_t ns = duration.count();
  if (ns == 0) return "0s";
  if (ns < 0) return std::string("-").append(format_duration(-duration));
  for (const TimeUnit& unit : kTimeUnits) {
    if (ns % unit.ns == 0) return std::to_string(ns / unit.ns).append(unit.name);
  }
  // Finer than a microsecond: the only case with a fraction.
  std::string fraction = std::to_string(1000 + ns % 1000).substr(1);
  while (fraction.back() == '0') fraction.pop_back();
  return std::to_string(ns / 1000) + "." + fraction + "us";
}

}  // namespace sgd
