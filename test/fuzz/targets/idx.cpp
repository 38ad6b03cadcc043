// The header and size of an IDX file, plain or gzip.

#include "common/data/idx.hpp"

#include "test/fuzz/memory_file.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static sgd::fuzz::MemoryFile file;
  const std::string& path = file.hold(data, size);
  // zlib's window and buffers do not depend on the input.
  const sgd::fuzz::MemoryBound bound(size, 16, 256 << 10);
  const auto info = sgd::data::inspect_idx(path);
  if (!info.ok()) return 0;
  std::size_t elements = 1;
  for (const std::uint32_t extent : info.value().dims) elements *= extent;
  FUZZ_CHECK(elements == info.value().payload_bytes);
  FUZZ_CHECK(info.value().compressed || info.value().header_bytes + elements == size);
  return 0;
}
