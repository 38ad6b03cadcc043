// A PNG file, as an image and as a mask: both are of the same size, with the pixels that it says, and memory follows
// the file's bytes, not its header. Checksums are made right first: few mutations would pass them.

#include "worker/data/png_decoder.hpp"

#include <zlib.h>

#include <algorithm>
#include <vector>

#include "test/fuzz/target.hpp"

namespace {

constexpr std::size_t kSignatureBytes = 8;
constexpr std::size_t kFrameBytes = 12;  // Of a chunk: length, type, checksum.

/// With the checksum of every whole chunk that its bytes have.
std::vector<std::uint8_t> repaired(const std::uint8_t* data, std::size_t size) {
  std::vector<std::uint8_t> file(data, data + size);
  for (std::size_t at = kSignatureBytes; at + kFrameBytes <= size;) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < 4; ++i) length = length << 8 | file[at + i];
    if (length > size - at - kFrameBytes) break;
    const auto sum = ::crc32(0, file.data() + at + 4, static_cast<unsigned>(length + 4));
    for (std::size_t i = 0; i < 4; ++i) file[at + 8 + length + i] = static_cast<std::uint8_t>(sum >> (24 - 8 * i));
    at += kFrameBytes + length;
  }
  return file;
}

/// Whether it is decoded.
bool decode(const std::vector<std::uint8_t>& file, sgd::worker::PixelKind kind, sgd::worker::DecodedImage& image) {
  // A byte can hold 1032 times eight pixels, which become four channels in a row and three in the image.
  const sgd::fuzz::MemoryBound bound(file.size(), 1032 * 8 * 7, 1 << 20);
  const sgd::Status decoded = sgd::worker::decode_png(file, kind, image);
  if (!decoded.ok()) {
    FUZZ_CHECK(!decoded.error().message.empty());
    return false;
  }
  FUZZ_CHECK(image.rows > 0 && image.columns > 0);
  FUZZ_CHECK(image.pixels.size() == static_cast<std::size_t>(image.rows * image.columns * image.channels));
  return true;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::vector<std::uint8_t> file = repaired(data, size);
  sgd::worker::DecodedImage image;
  sgd::worker::DecodedImage mask;
  const bool is_image = decode(file, sgd::worker::PixelKind::kColour, image);
  const bool is_mask = decode(file, sgd::worker::PixelKind::kClass, mask);
  FUZZ_CHECK(!is_mask || is_image);
  if (!is_mask) return 0;
  FUZZ_CHECK(mask.channels == 1 && mask.rows == image.rows && mask.columns == image.columns);
  return 0;
}
