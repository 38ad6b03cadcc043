#pragma once
// The CPU's instruction for CRC-32C, where there is one: SGD_CRC32C_INSTRUCTION is defined then, and what is compiled
// with it may call the two steps. Whether the CPU at hand has it is asked at run time.

#if defined(__x86_64__)
#include <nmmintrin.h>
#define SGD_CRC32C_INSTRUCTION __attribute__((target("sse4.2")))
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#define SGD_CRC32C_INSTRUCTION __attribute__((target("+crc")))
#endif

#include <cstdint>

namespace sgd::checkpoint {

#if defined(__x86_64__)
using Crc32cState = std::uint64_t;  ///< As the instruction takes and gives it: the upper half is zero.

inline bool has_crc32c_instruction() {
  return __builtin_cpu_supports("sse4.2");
}
SGD_CRC32C_INSTRUCTION inline Crc32cState crc32c_of_word(Crc32cState state, std::uint64_t word) {
  return _mm_crc32_u64(state, word);
}
SGD_CRC32C_INSTRUCTION inline Crc32cState crc32c_of_byte(Crc32cState state, std::uint8_t byte) {
  return _mm_crc32_u8(static_cast<std::uint32_t>(state), byte);
}
#elif defined(__aarch64__)
using Crc32cState = std::uint32_t;

inline bool has_crc32c_instruction() {
  return (::getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
}
SGD_CRC32C_INSTRUCTION inline Crc32cState crc32c_of_word(Crc32cState state, std::uint64_t word) {
  return __crc32cd(state, word);
}
SGD_CRC32C_INSTRUCTION inline Crc32cState crc32c_of_byte(Crc32cState state, std::uint8_t byte) {
  return __crc32cb(state, byte);
}
#endif

}  // namespace sgd::checkpoint
