#include "common/messages/frame.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace sgd {
namespace {

constexpr std::size_t kKeptBytesMax = 4 << 10;  // Of an empty buffer.

/// Largest body of a kind, or 0 for a kind that does not exist.
std::size_t bytes_max(std::uint8_t kind) {
  if (kind == static_cast<std::uint8_t>(FrameKind::kJson)) return kJsonFrameBytesMax;
  if (kind == static_cast<std::uint8_t>(FrameKind::kChunk)) return kChunkFrameBytesMax;
  if (kind == static_cast<std::uint8_t>(FrameKind::kPart)) return kPartFrameBytesMax;
  return 0;
}

}  // namespace

std::string encode_frame(FrameKind kind, std::string_view bytes) {
  const auto kind_byte = static_cast<std::uint8_t>(kind);
  SGD_ASSERT(bytes.size() <= bytes_max(kind_byte));
  const auto length = static_cast<std::uint32_t>(bytes.size());
  std::string frame;
  frame.reserve(kFrameHeaderBytes + bytes.size());
  for (int shift = 24; shift >= 0; shift -= 8) frame.push_back(static_cast<char>(length >> shift & 0xff));
  frame.push_back(static_cast<char>(kind_byte));
  frame.append(bytes);
  return frame;
}

std::vector<std::string> encode_message(std::string_view json) {
  std::vector<std::string> frames;
  for (; json.size() > kJsonFrameBytesMax; json.remove_prefix(kPartFrameBytesMax))
    frames.push_back(encode_frame(FrameKind::kPart, json.substr(0, kPartFrameBytesMax)));
  frames.push_back(encode_frame(FrameKind::kJson, json));
  return frames;
}

void FrameReader::append(std::string_view bytes) {
  // Consumed bytes are dropped when they are the larger half, so that each byte moves at most once on
  // average.
  if (begin_ > 0 && begin_ * 2 >= buffer_.size()) {
    buffer_.erase(0, begin_);
    begin_ = 0;
  }
  buffer_.append(bytes);
}

Status FrameReader::check(std::uint8_t kind, std::size_t length) const {
  const bool is_part = kind == static_cast<std::uint8_t>(FrameKind::kPart);
  if (bytes_max(kind) == 0 || (is_part && !takes_parts_)) return Error{"frame of unknown kind " + std::to_string(kind)};
  const std::size_t limit = std::min(bytes_max(kind), limit_);
  if (length > limit) {
    return Error{"frame of " + std::to_string(length) + " bytes; kind " + std::to_string(kind) + " may have " +
                     std::to_string(limit),
                 EMSGSIZE};
  }
  if (parts_.empty()) return {};
  if (kind == static_cast<std::uint8_t>(FrameKind::kChunk)) return Error{"a chunk between the parts of a message"};
  if (parts_.size() + length > kMessageBytesMax)
    return Error{"a message in parts of more than " + std::to_string(kMessageBytesMax) + " bytes", EMSGSIZE};
  return {};
}

Result<std::optional<Frame>> FrameReader::next() {
  for (;;) {
    const std::string_view waiting = std::string_view(buffer_).substr(begin_);
    if (waiting.size() < kFrameHeaderBytes) return std::optional<Frame>();
    std::uint32_t length = 0;
    for (int i = 0; i < 4; ++i) length = length << 8 | static_cast<std::uint8_t>(waiting[i]);
    const auto kind = static_cast<std::uint8_t>(waiting[4]);
    if (const Status checked = check(kind, length); !checked) return checked.error();
    if (waiting.size() - kFrameHeaderBytes < length) return std::optional<Frame>();
    Frame frame;
    frame.kind = static_cast<FrameKind>(kind);
    const std::string_view bytes = waiting.substr(kFrameHeaderBytes, length);
    if (frame.kind == FrameKind::kPart || !parts_.empty())
      parts_.append(bytes);
    else
      frame.bytes = bytes;
    begin_ += kFrameHeaderBytes + length;
    if (begin_ == buffer_.size()) {  // Thousands of quiet connections hold no buffers.
      begin_ = 0;
      if (buffer_.capacity() > kKeptBytesMax) buffer_ = {};
      buffer_.clear();
    }
    if (frame.kind == FrameKind::kPart) continue;
    if (!parts_.empty()) frame.bytes = std::exchange(parts_, {});
    return std::optional<Frame>(std::move(frame));
  }
}

}  // namespace sgd
