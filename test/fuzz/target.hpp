#pragma once
// What the fuzz targets share. A target is one .cpp with the entry point that libFuzzer, AFL++ and the driver
// of this folder call; it returns 0, and a broken promise aborts. FUZZ_CHECK is for promises about values,
// MemoryBound for the promise that no decoder takes memory out of proportion to its input.

#include <cstddef>
#include <cstdint>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace sgd::fuzz {

[[noreturn]] void fail(const char* what, const char* file, int line);

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// While it lives, aborts when more than `fixed + factor * input` bytes of heap are held beyond what was held
/// before. Counts only where a sanitizer's allocator runs.
class MemoryBound {
 public:
  MemoryBound(std::size_t input_bytes, std::size_t factor, std::size_t fixed = 64 << 10);
  ~MemoryBound();
};

/// What a decoder gives must mean the same after being encoded: encode(decode(encode(x))) == encode(x).
template <class Decode, class Encode>
void check_stable(std::string_view text, Decode decode, Encode encode) {
  const auto first = decode(text);
  if (!first.ok()) return;
  const auto encoded = encode(first.value());
  const auto second = decode(encoded);
  if (!second.ok()) fail("what was encoded cannot be decoded", __FILE__, __LINE__);
  if (encode(second.value()) != encoded) fail("decoding and encoding changes a message", __FILE__, __LINE__);
}

}  // namespace sgd::fuzz

#define FUZZ_CHECK(condition) ((condition) ? void() : ::sgd::fuzz::fail(#condition, __FILE__, __LINE__))
