#include "worker/core/checksum.hpp"

#include <array>
#include <cstring>

namespace sgd::worker {
namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78u : 0u);
    table[i] = value;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kTable = make_table();

std::uint32_t by_table(std::uint32_t state, const unsigned char* data, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) state = kTable[(state ^ data[i]) & 0xff] ^ (state >> 8);
  return state;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t by_instruction(std::uint32_t state, const unsigned char* data,
                                                               std::size_t size) {
  std::uint64_t wide = state;
  for (; size >= 8; size -= 8, data += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, data, 8);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  return by_table(static_cast<std::uint32_t>(wide), data, size);
}
#endif

}  // namespace

std::uint32_t crc32c(std::uint32_t crc, std::span<const std::byte> bytes) {
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return ~by_instruction(~crc, data, bytes.size());
#endif
  return ~by_table(~crc, data, bytes.size());
}

}  // namespace sgd::worker
