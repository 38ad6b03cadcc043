#pragma once
// Sizes as people write them: "512MiB", "4GiB", "1.5GB".

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sgd {

/// Reads a number with B, kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of 1024), rounded
/// down to a byte; nothing for any other text, a negative value or one of 2^63 and more.
[[nodiscard]] std::optional<std::int64_t> parse_bytes(std::string_view text);

/// With two digits behind the point where they say something: "4GiB", "1.50GiB", "512B".
[[nodiscard]] std::string format_bytes(std::int64_t bytes);

}  // namespace sgd
