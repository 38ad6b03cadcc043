#include "common/checkpoint/crc32c.hpp"

#include <array>
#include <boost/crc.hpp>
#include <cstring>

#include "common/checkpoint/crc32c_instruction.hpp"

namespace sgd::checkpoint {
namespace {

#if defined(SGD_CRC32C_INSTRUCTION)
// The instruction takes three cycles and one can start in each: three streams run side by side, and
// their sums are joined by appending zeros to the earlier ones, a linear map that tables hold.
constexpr std::size_t kLongBytes = 8192;  // Of one stream; joining costs little against it.
constexpr std::size_t kShortBytes = 256;

/// Reflected polynomial 0x1EDC6F41.
constexpr std::uint32_t kPolynomial = 0x82F63B78;

/// A linear map over 32 bits: the image of each bit.
using Matrix = std::array<std::uint32_t, 32>;

constexpr std::uint32_t times(const Matrix& matrix, std::uint32_t vector) {
  std::uint32_t sum = 0;
  for (std::size_t bit = 0; vector != 0; ++bit, vector >>= 1) sum ^= (vector & 1) != 0 ? matrix[bit] : 0;
  return sum;
}

constexpr Matrix squared(const Matrix& matrix) {
  Matrix square{};
  for (std::size_t bit = 0; bit < 32; ++bit) square[bit] = times(matrix, matrix[bit]);
  return square;
}

/// What `zero_bytes` zero bytes (a power of two) do to a sum, by byte of the sum.
struct ZerosTable {
  std::array<std::array<std::uint32_t, 256>, 4> parts{};

  explicit constexpr ZerosTable(std::size_t zero_bytes) {
    Matrix matrix{};  // One zero bit.
    matrix[0] = kPolynomial;
    for (std::size_t bit = 1; bit < 32; ++bit) matrix[bit] = 1u << (bit - 1);
    for (std::size_t bits = 1; bits < zero_bytes * 8; bits *= 2) matrix = squared(matrix);
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      for (std::size_t part = 0; part < 4; ++part) parts[part][byte] = times(matrix, byte << (8 * part));
    }
  }
  [[nodiscard]] std::uint32_t operator()(std::uint32_t sum) const {
    return parts[0][sum & 0xff] ^ parts[1][(sum >> 8) & 0xff] ^ parts[2][(sum >> 16) & 0xff] ^ parts[3][sum >> 24];
  }
};

constexpr ZerosTable kLongZeros(kLongBytes);
constexpr ZerosTable kShortZeros(kShortBytes);

std::uint64_t word_at(const std::byte* address) {
  std::uint64_t word = 0;
  std::memcpy(&word, address, sizeof word);
  return word;
}

/// Takes whole groups of three streams of `stream_bytes` off the front of `bytes`.
SGD_CRC32C_INSTRUCTION std::uint32_t three_streams(std::uint32_t state, std::span<const std::byte>& bytes,
                                                   std::size_t stream_bytes, const ZerosTable& zeros) {
  for (; bytes.size() >= 3 * stream_bytes; bytes = bytes.subspan(3 * stream_bytes)) {
    const std::byte* at = bytes.data();
    Crc32cState first = state;
    Crc32cState second = 0;
    Crc32cState third = 0;
    for (const std::byte* const end = at + stream_bytes; at != end; at += sizeof(std::uint64_t)) {
      first = crc32c_of_word(first, word_at(at));
      second = crc32c_of_word(second, word_at(at + stream_bytes));
      third = crc32c_of_word(third, word_at(at + 2 * stream_bytes));
    }
    const std::uint32_t joined = zeros(static_cast<std::uint32_t>(first)) ^ static_cast<std::uint32_t>(second);
    state = zeros(joined) ^ static_cast<std::uint32_t>(third);
  }
  return state;
}

SGD_CRC32C_INSTRUCTION std::uint32_t by_instruction(std::uint32_t sum, std::span<const std::byte> bytes) {
  sum = three_streams(sum, bytes, kLongBytes, kLongZeros);
  sum = three_streams(sum, bytes, kShortBytes, kShortZeros);
  Crc32cState state = sum;
  for (; bytes.size() >= sizeof(std::uint64_t); bytes = bytes.subspan(sizeof(std::uint64_t)))
    state = crc32c_of_word(state, word_at(bytes.data()));
  for (const std::byte byte : bytes) state = crc32c_of_byte(state, static_cast<std::uint8_t>(byte));
  return static_cast<std::uint32_t>(state);
}
#endif

template <class Computer>
std::uint32_t go_on(std::uint32_t crc, std::span<const std::byte> bytes) {
  // The computer takes its initial state with the bits of each value in the other order.
  std::uint32_t state = 0;
  for (int bit = 0; bit < 32; ++bit) state |= ((~crc >> bit) & 1u) << (31 - bit);
  Computer computer(state);
  computer.process_bytes(bytes.data(), bytes.size());
  return computer.checksum();
}

}  // namespace

std::uint32_t crc32c_portable(std::uint32_t crc, std::span<const std::byte> bytes) {
  return go_on<boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true>>(crc, bytes);
}

std::uint32_t crc32(std::uint32_t crc, std::span<const std::byte> bytes) {
  return go_on<boost::crc_optimal<32, 0x04C11DB7, 0xFFFFFFFF, 0xFFFFFFFF, true, true>>(crc, bytes);
}

std::uint32_t crc32c(std::uint32_t crc, std::span<const std::byte> bytes) {
#if defined(SGD_CRC32C_INSTRUCTION)
  static const bool has_instruction = has_crc32c_instruction();
  if (has_instruction) return ~by_instruction(~crc, bytes);
#endif
  return crc32c_portable(crc, bytes);
}

}  // namespace sgd::checkpoint
