#include "common/checkpoint/crc32c.hpp"

#include <boost/crc.hpp>
#include <cstring>

namespace sgd::checkpoint {
namespace {

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t by_instruction(std::uint32_t state,
                                                               std::span<const std::byte> bytes) {
  std::uint64_t wide = state;
  for (; bytes.size() >= sizeof wide; bytes = bytes.subspan(sizeof wide)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  auto narrow = static_cast<std::uint32_t>(wide);
  for (const std::byte byte : bytes)
    narrow = __builtin_ia32_crc32qi(narrow, static_cast<unsigned char>(byte));
  return narrow;
}
#endif

}  // namespace

std::uint32_t crc32c_portable(std::uint32_t crc, std::span<const std::byte> bytes) {
  using Computer = boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true>;
  // The computer takes its initial state with the bits of each value in the other order.
  std::uint32_t state = 0;
  for (int bit = 0; bit < 32; ++bit) state |= ((~crc >> bit) & 1u) << (31 - bit);
  Computer computer(state);
  computer.process_bytes(bytes.data(), bytes.size());
  return computer.checksum();
}

std::uint32_t crc32c(std::uint32_t crc, std::span<const std::byte> bytes) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return ~by_instruction(~crc, bytes);
#endif
  return crc32c_portable(crc, bytes);
}

}  // namespace sgd::checkpoint
