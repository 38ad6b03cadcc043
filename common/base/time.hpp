#pragma once
// Time as values. Decisions take `TimePoint now` as an argument; only shells read clocks.
// Monotonic time decides, wall time is written into files and never compared.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sgd {

using Duration = std::chrono::nanoseconds;
/// Monotonic: nanoseconds since an arbitrary origin of this machine.
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

/// Reads "250us", "500ms", "10s", "5m", "2h" or "1.5s"; nothing for any other text, a negative or a huge value.
[[nodiscard]] std::optional<Duration> parse_duration(std::string_view text);

/// The shortest text that reads back as the same duration, for example "500ms" or "10s".
[[nodiscard]] std::string format_duration(Duration duration);

[[nodiscard]] inline double to_seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}
[[nodiscard]] inline Duration from_seconds(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

}  // namespace sgd
