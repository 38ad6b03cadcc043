// A JPEG file: what is decoded has the pixels that it says, and memory follows the file's bytes, not its header.

#include "worker/data/jpeg_decoder.hpp"

#include "test/fuzz/target.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Three channels and the coefficients of four, of the pixels that a byte can hold.
  const sgd::fuzz::MemoryBound bound(size, 8192, 1 << 20);
  sgd::worker::DecodedImage image;
  const sgd::Status decoded = sgd::worker::decode_jpeg({data, size}, image);
  if (!decoded.ok()) {
    FUZZ_CHECK(!decoded.error().message.empty());
    return 0;
  }
  FUZZ_CHECK(image.rows > 0 && image.columns > 0 && (image.channels == 1 || image.channels == 3));
  FUZZ_CHECK(image.pixels.size() == static_cast<std::size_t>(image.rows * image.columns * image.channels));
  return 0;
}
