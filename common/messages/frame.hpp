#pragma once
// Frames over a byte stream: u32 length (network order) of what follows the kind, u8 kind,
// then the bytes. A JSON frame is at most 1 MiB, a chunk at most 4 MiB; lengths are checked
// before anything is allocated, and a bad frame ends its connection and nothing else.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.hpp"

namespace sgd {

enum class FrameKind : std::uint8_t {
  kJson = 1,   ///< A JSON text.
  kChunk = 2,  ///< Raw bytes of a file or of a log.
};

struct Frame {
  FrameKind kind = FrameKind::kJson;
  std::string bytes;
};

inline constexpr std::size_t kFrameHeaderBytes = 5;
inline constexpr std::size_t kJsonFrameBytesMax = 1 << 20;
inline constexpr std::size_t kChunkFrameBytesMax = 4 << 20;

/// Header and bytes. `bytes` must be within the kind's limit.
[[nodiscard]] std::string encode_frame(FrameKind kind, std::string_view bytes);

/// Collects bytes as they arrive and cuts them into frames.
class FrameReader {
 public:
  void append(std::string_view bytes);
  /// From here on a frame may have so many bytes at most, whatever its kind allows.
  void limit(std::size_t bytes) { limit_ = bytes; }
  /// The next whole frame, nothing when more bytes are needed, or an error after which the stream is unusable; its
  /// code is EMSGSIZE for a frame that says it is too long.
  [[nodiscard]] Result<std::optional<Frame>> next();

 private:
  std::string buffer_;
  std::size_t begin_ = 0;
  std::size_t limit_ = kChunkFrameBytesMax;
};

}  // namespace sgd
