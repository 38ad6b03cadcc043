#pragma once
// CRC-32C (Castagnoli), the checksum of a checkpoint's files, computed piece by piece.

#include <cstddef>
#include <cstdint>
#include <span>

namespace sgd::worker {

/// The checksum of what `crc` is the checksum of, followed by `bytes`; 0 is the checksum of nothing.
[[nodiscard]] std::uint32_t crc32c(std::uint32_t crc, std::span<const std::byte> bytes);

}  // namespace sgd::worker
