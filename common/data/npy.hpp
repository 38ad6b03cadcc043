#pragma once
// NumPy's .npy files, looked at without reading the array: version 1 and 2, C order, little-endian numbers.
//   "\x93NUMPY", u8 major, u8 minor, header length (u16 in version 1, u32 in version 2), the header as a Python
//   dictionary with 'descr', 'fortran_order' and 'shape', then the elements, last dimension fastest.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.hpp"

namespace sgd::data {

enum class NpyType {
  kF4,  ///< float32
  kF8,  ///< float64
  kI4,  ///< int32
  kI8,  ///< int64
  kU1,  ///< uint8
};

struct NpyInfo {
  std::string path;
  NpyType type = NpyType::kF4;
  std::vector<std::int64_t> shape;  ///< At least one dimension: the samples.
  std::size_t header_bytes = 0;
  std::size_t item_bytes = 0;
  [[nodiscard]] bool is_integer() const { return type != NpyType::kF4 && type != NpyType::kF8; }
  /// Numbers of one sample: product of all dimensions but the first.
  [[nodiscard]] std::int64_t sample_numbers() const;
};

inline constexpr std::size_t kNpyHeaderBytesMax = 64 << 10;
inline constexpr std::size_t kNpyDimensionsMax = 8;

/// Errors name the file, the place in its header, and what is expected.
[[nodiscard]] Result<NpyInfo> inspect_npy(const std::string& path);

struct NpyPair {
  NpyInfo features;
  NpyInfo target;  ///< Of as many samples; one integer each when classes are learnt.
};
/// The two arrays of a split.
[[nodiscard]] Result<NpyPair> inspect_npy_pair(const std::string& features, const std::string& target, bool classes);

}  // namespace sgd::data
