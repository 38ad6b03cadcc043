#include "common/base/bytes.hpp"

#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace sgd {
namespace {

struct SizeUnit {
  const char* name;
  double bytes;
};
constexpr SizeUnit kSizeUnits[] = {{"B", 1},        {"kB", 1e3},     {"MB", 1e6},     {"GB", 1e9},    {"TB", 1e12},
                                   {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
constexpr SizeUnit kShown[] = {{"TiB", 0x1p40}, {"GiB", 0x1p30}, {"MiB", 0x1p20}, {"KiB", 0x1p10}};

}  // namespace

std::optional<std::int64_t> parse_bytes(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc{} || std::signbit(number)) return std::nullopt;
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  for (const SizeUnit& known : kSizeUnits) {
    if (unit != known.name) continue;
    const double bytes = number * known.bytes;
    if (!(bytes < 0x1p63)) return std::nullopt;
    return static_cast<std::int64_t>(bytes);
  }
  return std::nullopt;
}

std::string format_bytes(std::int64_t bytes) {
  for (const SizeUnit& unit : kShown) {
    const double number = static_cast<double>(bytes) / unit.bytes;
    if (number < 1) continue;
    return number == std::floor(number) ? fmt::format("{:.0f}{}", number, unit.name)
                                        : fmt::format("{:.2f}{}", number, unit.name);
  }
  return fmt::format("{}B", bytes);
}

}  // namespace sgd
