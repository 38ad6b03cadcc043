#pragma once
// Where a parameter lies in the flat buffers. Its gradient and its optimizer state lie at the same
// place in theirs.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sgd::worker {

struct ParameterPlace {
  std::string name;  ///< As PyTorch's state_dict has it, for example "conv1.weight".
  std::vector<std::int64_t> shape;
  std::size_t offset = 0;  ///< In floats, a multiple of 16.
  std::size_t count = 0;
  std::vector<std::string> also = {};  ///< Further names of the same parameter, where modules share it.
};

}  // namespace sgd::worker
