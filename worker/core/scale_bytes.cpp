#include "worker/core/scale_bytes.hpp"

#include "worker/core/simd.hpp"

namespace sgd::worker {
namespace {

SGD_CLONES void scale_all(const std::uint8_t* __restrict bytes, float* __restrict out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<float>(bytes[i]) * (1.0f / 255.0f);
}

}  // namespace

void scale_bytes(const std::uint8_t* bytes, float* out, std::size_t count) {
  scale_all(bytes, out, count);
}

}  // namespace sgd::worker
