#include "worker/data/image_decoder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include <fmt/format.h>

#include "worker/data/jpeg_decoder.hpp"
#include "worker/data/png_decoder.hpp"

namespace sgd::worker {
namespace {

/// Reads `bytes.size()` bytes, or as many as there are.
Status read_all(int fd, const std::string& path, std::vector<std::uint8_t>& bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = ::read(fd, bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("data file " + path);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  bytes.resize(done);
  return {};
}

Status read_open(int fd, const std::string& path, std::vector<std::uint8_t>& bytes) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return system_error("data file " + path);
  if (!S_ISREG(info.st_mode)) return Error{fmt::format("data file {} is not a regular file", path)};
  if (info.st_size > kImageFileBytesMax)
    return Error{fmt::format("data file {} has {} bytes, expected an image of at most {}", path, info.st_size,
                             kImageFileBytesMax)};
  bytes.resize(static_cast<std::size_t>(info.st_size));
  return read_all(fd, path, bytes);
}

}  // namespace

Status read_image_file(const std::string& path, std::vector<std::uint8_t>& bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // A pipe's name would hold it for ever.
  if (fd < 0) return system_error("data file " + path);
  Status read = read_open(fd, path, bytes);
  ::close(fd);
  return read;
}

Status decode_image(std::span<const std::uint8_t> file, PixelKind kind, DecodedImage& out) {
  Status decoded;
  if (is_png(file))
    decoded = decode_png(file, kind, out);
  else if (kind == PixelKind::kClass)
    decoded = Error{"not a PNG file"};
  else if (is_jpeg(file))
    decoded = decode_jpeg(file, out);
  else
    decoded = Error{"neither a JPEG nor a PNG file"};
  if (decoded.ok() && kind == PixelKind::kGrey && out.channels == 3) make_grey(out);
  return decoded;
}

}  // namespace sgd::worker
