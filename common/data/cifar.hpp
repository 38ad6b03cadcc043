#pragma once
// CIFAR's binary files, looked at without reading them: records of one fixed size, one after the other.
//   CIFAR-10:  u8 label, 3072 bytes of pixels
//   CIFAR-100: u8 coarse label, u8 fine label, 3072 bytes of pixels
// Pixels are three planes (red, green, blue) of 32 rows of 32 columns.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.hpp"

namespace sgd::data {

inline constexpr std::int64_t kCifarChannels = 3;
inline constexpr std::int64_t kCifarSide = 32;
inline constexpr std::size_t kCifarImageBytes = 3 * 32 * 32;

struct CifarLayout {
  std::size_t label_bytes = 1;  ///< Before the pixels.
  std::size_t label_at = 0;     ///< Which of them is learnt.
  std::int64_t classes = 10;
  [[nodiscard]] std::size_t record_bytes() const { return label_bytes + kCifarImageBytes; }
};

/// By the job's "variant": "cifar10", "cifar100" (fine labels) or "cifar100_coarse".
[[nodiscard]] CifarLayout cifar_layout(std::string_view variant);

/// Records of a file. Errors name the file, the record that is cut, and the layout that would fit.
[[nodiscard]] Result<std::int64_t> inspect_cifar(const std::string& path, const CifarLayout& layout);

}  // namespace sgd::data
