#pragma once
// Letters of five by seven dots for images: enough for the names of metrics and for numbers, with no font of the
// system.

#include <array>
#include <cstdint>

namespace sgd::cli {

inline constexpr int kGlyphColumns = 5;
inline constexpr int kGlyphRows = 7;
/// Rows from the top; the leftmost dot is bit 4.
using Glyph = std::array<std::uint8_t, kGlyphRows>;

/// A letter that is not known is a box.
[[nodiscard]] const Glyph& glyph_of(char letter);

}  // namespace sgd::cli
