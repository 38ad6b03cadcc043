#pragma once
// Frames over a byte stream: u32 length (network order) of what follows the kind, u8 kind,
// then the bytes. A JSON frame is at most 1 MiB, a chunk at most 4 MiB; lengths are checked
// before anything is allocated, and a bad frame ends its connection and nothing else.
//
// A JSON text that is longer goes as parts, each a frame of its own, and its end as a JSON frame; only where the reader
// takes long messages, and at most kMessageBytesMax together.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"

namespace sgd {

enum class FrameKind : std::uint8_t {
  kJson = 1,   ///< A JSON text.
  kChunk = 2,  ///< Raw bytes of a file or of a log.
  kPart = 3,   ///< Of a JSON text: the rest follows. No frame that FrameReader gives out.
};

struct Frame {
  FrameKind kind = FrameKind::kJson;
  std::string bytes;
};

inline constexpr std::size_t kFrameHeaderBytes = 5;
inline constexpr std::size_t kJsonFrameBytesMax = 1 << 20;
inline constexpr std::size_t kChunkFrameBytesMax = 4 << 20;
inline constexpr std::size_t kPartFrameBytesMax = 256 << 10;
/// Of a JSON text in parts: what ten thousand nodes or ranks have to say, and half of what may wait for a peer.
inline constexpr std::size_t kMessageBytesMax = 8 << 20;

/// Header and bytes. `bytes` must be within the kind's limit.
[[nodiscard]] std::string encode_frame(FrameKind kind, std::string_view bytes);
/// The frames of a JSON text of at most kMessageBytesMax: one, or parts and the end.
[[nodiscard]] std::vector<std::string> encode_message(std::string_view json);

/// Collects bytes as they arrive and cuts them into frames.
class FrameReader {
 public:
  void append(std::string_view bytes);
  /// From here on a frame may have so many bytes at most, whatever its kind allows.
  void limit(std::size_t bytes) { limit_ = bytes; }
  /// From here on JSON texts may come in parts.
  void take_long_messages() { takes_parts_ = true; }
  /// The next whole frame, nothing when more bytes are needed, or an error after which the stream is unusable; its
  /// code is EMSGSIZE for a frame that says it is too long.
  [[nodiscard]] Result<std::optional<Frame>> next();

 private:
  std::string buffer_;
  std::size_t begin_ = 0;
  std::size_t limit_ = kChunkFrameBytesMax;
  bool takes_parts_ = false;
  std::string parts_;  ///< Of a JSON text whose end has not come.

  [[nodiscard]] Status check(std::uint8_t kind, std::size_t length) const;
};

}  // namespace sgd
