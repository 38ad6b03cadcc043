// A safetensors file: what is accepted covers its data exactly, and every byte of it can be read.

#include "worker/core/safetensors.hpp"

#include "test/fuzz/memory_file.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static sgd::fuzz::MemoryFile file;
  const std::string& path = file.hold(data, size);
  const sgd::fuzz::MemoryBound bound(size, 512);
  const auto opened = sgd::worker::SafetensorsFile::open(path);
  if (!opened.ok()) return 0;
  std::size_t bytes = 0;
  unsigned sum = 0;
  for (const sgd::worker::TensorBytes& tensor : opened.value().tensors()) {
    FUZZ_CHECK(opened.value().find(tensor.name) == &tensor);
    bytes += tensor.bytes.size();
    for (const std::byte one : tensor.bytes) sum += std::to_integer<unsigned>(one);
  }
  volatile unsigned read = sum;  // Reading it is the point: the sanitizer watches.
  (void)read;
  FUZZ_CHECK(bytes < size);
  return 0;
}
