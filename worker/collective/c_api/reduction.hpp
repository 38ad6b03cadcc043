#pragma once
// Arithmetic on elements of any type that C callers may have, in the order of the sources, so that every rank that
// reduces the same values gets the same bits.

#include <cstddef>
#include <cstdint>
#include <span>

namespace sgd::worker {

/// Bytes of an element of an SgdcType; 0 for an unknown one.
[[nodiscard]] std::size_t element_bytes(std::uint32_t type);

/// Whether the SgdcReduction is defined for the SgdcType.
[[nodiscard]] bool can_reduce(std::uint32_t type, std::uint32_t reduction);

/// `to` becomes the reduction of all `sources`, `count` elements each; it may be one of them, but overlap none.
void reduce_elements(std::uint32_t type, std::uint32_t reduction, std::span<const std::byte* const> sources,
                     std::byte* to, std::size_t count);

}  // namespace sgd::worker
