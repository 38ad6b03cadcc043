// Frames out of a byte stream. The first byte says in which pieces the rest arrives: whatever they are, the
// frames are the same, and encoding them gives the bytes again, unless messages may come in parts.

#include "common/messages/frame.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "test/fuzz/target.hpp"

namespace {

struct Stream {
  std::vector<sgd::Frame> frames;
  bool is_broken = false;
};

Stream read(std::string_view bytes, std::size_t piece, bool takes_parts) {
  Stream stream;
  sgd::FrameReader reader;
  if (takes_parts) reader.take_long_messages();
  while (!bytes.empty() && !stream.is_broken) {
    reader.append(bytes.substr(0, piece));
    bytes.remove_prefix(std::min(piece, bytes.size()));
    for (;;) {
      auto next = reader.next();
      if (!next.ok()) stream.is_broken = true;
      if (!next.ok() || !next.value()) break;
      stream.frames.push_back(std::move(*next.value()));
    }
  }
  return stream;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes = sgd::fuzz::text_of(data, size).substr(1);
  // A frame without bytes is the costliest: 5 bytes of input become one Frame in a vector that grows.
  const sgd::fuzz::MemoryBound bound(size, 64);
  const bool takes_parts = data[0] >= 128;
  const Stream whole = read(bytes, std::max<std::size_t>(bytes.size(), 1), takes_parts);
  const Stream pieces = read(bytes, data[0] % 64 + 1, takes_parts);
  FUZZ_CHECK(whole.is_broken == pieces.is_broken);
  FUZZ_CHECK(whole.frames.size() == pieces.frames.size());
  std::string again;
  for (std::size_t index = 0; index < whole.frames.size(); ++index) {
    FUZZ_CHECK(whole.frames[index].kind == pieces.frames[index].kind);
    FUZZ_CHECK(whole.frames[index].bytes == pieces.frames[index].bytes);
    again += sgd::encode_frame(whole.frames[index].kind, whole.frames[index].bytes);
  }
  if (!takes_parts) FUZZ_CHECK(bytes.substr(0, again.size()) == again);
  return 0;
}
