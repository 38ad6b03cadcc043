#pragma once
// IDX files (the format of MNIST and Fashion-MNIST), looked at without unpacking them: header,
// dimensions, and whether the size fits. Plain or gzip, of one member or several. The data itself is read by the
// worker.
//   u16 0, u8 type (0x08: unsigned byte), u8 number of dimensions, then u32 per dimension, all
//   in network order, then the elements, last dimension fastest.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.hpp"

namespace sgd::data {

struct IdxInfo {
  std::string path;
  bool compressed = false;          ///< gzip.
  std::vector<std::uint32_t> dims;  ///< For images {count, rows, columns}, for labels {count}.
  std::size_t header_bytes = 0;
  std::size_t payload_bytes = 0;  ///< Product of dims: elements are bytes.
};

enum class IdxSplit {
  kTrain,     ///< train-images-idx3-ubyte, train-labels-idx1-ubyte.
  kValidate,  ///< t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte.
};

struct IdxFiles {
  IdxInfo images;  ///< Three dimensions.
  IdxInfo labels;  ///< One dimension, of the same count.
};

inline constexpr std::size_t kIdxBytesMax = std::size_t{1} << 40;

/// Errors name the file and what is wrong: absent, not IDX, truncated, too long.
[[nodiscard]] Result<IdxInfo> inspect_idx(const std::string& path);
/// The two files of a split in `directory`, plain before gzip.
[[nodiscard]] Result<IdxFiles> find_idx(const std::string& directory, IdxSplit split);

}  // namespace sgd::data
