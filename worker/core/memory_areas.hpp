#pragma once
// Where in a memory checkpoint's file the texts lie: behind all that has a fixed place, one area a slot, of any size.
// Says where a new one fits, and has the system give and take back the memory of one. Knows nothing of slots.

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/base/result.hpp"

namespace sgd::worker {

/// A stretch of the file in whole pages.
struct FileArea {
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;

  [[nodiscard]] std::uint64_t end() const { return begin + bytes; }
  [[nodiscard]] bool touches(const FileArea& other) const { return begin < other.end() && other.begin < end(); }
  bool operator==(const FileArea&) const = default;
};

/// As one word, which one store replaces: the first page and the number of pages, 32 bits each.
[[nodiscard]] std::uint64_t word_of(const FileArea& area);
[[nodiscard]] FileArea area_of(std::uint64_t word);

/// The first place from `begin` on for so many bytes that touches none of `taken`.
[[nodiscard]] FileArea place_beside(std::uint64_t begin, std::uint64_t bytes, std::span<const FileArea> taken);

/// The file has all pages of the area, and is long enough for it; keeps what is there. The error is the system's: there
/// is no memory for that, and some pages may have come.
[[nodiscard]] Status take_memory(int fd, const FileArea& area);
/// The file has none of the area's pages any more; they read as zeros.
void give_back_memory(int fd, const FileArea& area);
/// So for all from `begin` to the file's end but `kept`.
void give_back_all_but(int fd, std::uint64_t begin, std::span<const FileArea> kept);

}  // namespace sgd::worker
