#pragma once
// CRC-32C (Castagnoli), the checksum of a checkpoint's files, computed piece by piece. By the
// processor's instruction where it has one.

#include <cstddef>
#include <cstdint>
#include <span>

namespace sgd::checkpoint {

/// The checksum of what `crc` is the checksum of, followed by `bytes`; 0 is the checksum of nothing.
[[nodiscard]] std::uint32_t crc32c(std::uint32_t crc, std::span<const std::byte> bytes);

/// The same without the instruction.
[[nodiscard]] std::uint32_t crc32c_portable(std::uint32_t crc, std::span<const std::byte> bytes);

/// CRC-32, the one of zlib and of Python's standard library.
[[nodiscard]] std::uint32_t crc32(std::uint32_t crc, std::span<const std::byte> bytes);

}  // namespace sgd::checkpoint
