#include "launcher/callbacks/protobuf.hpp"

#include <bit>

namespace sgd::callbacks {
namespace {

constexpr int kVarint = 0;
constexpr int kFixed64 = 1;
constexpr int kLength = 2;
constexpr int kFixed32 = 5;

/// Takes a varint off the front of `bytes`.
std::optional<std::uint64_t> take_varint(std::string_view& bytes) {
  constexpr int kBitsOfAByte = 7;
  constexpr int kBits = 64;
  std::uint64_t value = 0;
  for (int shift = 0; shift < kBits && !bytes.empty(); shift += kBitsOfAByte) {
    const auto byte = static_cast<std::uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) return value;
  }
  return std::nullopt;
}

/// Bytes of the value that `bytes` begin with, behind its length if it has one.
std::optional<std::uint64_t> take_size(std::string_view& bytes, int wire_type) {
  if (wire_type == kFixed64) return 8;
  if (wire_type == kFixed32) return 4;
  if (wire_type == kLength) return take_varint(bytes);
  if (wire_type == kVarint && take_varint(bytes)) return 0;
  return std::nullopt;
}

}  // namespace

void Message::varint(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
  bytes_ += static_cast<char>(value);
}

void Message::key(int field, int wire_type) {
  varint(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire_type));
}

/// Little endian.
template <class Unsigned>
void Message::fixed(Unsigned value) {
  for (std::size_t byte = 0; byte < sizeof value; ++byte) bytes_ += static_cast<char>(value >> (8 * byte) & 0xff);
}

Message& Message::whole(int field, std::uint64_t value) {
  key(field, kVarint);
  varint(value);
  return *this;
}

Message& Message::real(int field, double value) {
  key(field, kFixed64);
  fixed(std::bit_cast<std::uint64_t>(value));
  return *this;
}

Message& Message::real32(int field, float value) {
  key(field, kFixed32);
  fixed(std::bit_cast<std::uint32_t>(value));
  return *this;
}

Message& Message::text(int field, std::string_view bytes) {
  key(field, kLength);
  varint(bytes.size());
  bytes_ += bytes;
  return *this;
}

Message& Message::reals(int field, const std::vector<double>& values) {
  key(field, kLength);
  varint(values.size() * sizeof(double));
  for (const double value : values) fixed(std::bit_cast<std::uint64_t>(value));
  return *this;
}

std::optional<std::string_view> find_field(std::string_view message, int field) {
  while (!message.empty()) {
    const auto key = take_varint(message);
    if (!key) return std::nullopt;
    const int wire_type = static_cast<int>(*key & 7);
    const auto size = take_size(message, wire_type);
    if (!size || *size > message.size()) return std::nullopt;
    if (wire_type == kLength && *key >> 3 == static_cast<std::uint64_t>(field)) return message.substr(0, *size);
    message.remove_prefix(*size);
  }
  return std::nullopt;
}

}  // namespace sgd::callbacks
