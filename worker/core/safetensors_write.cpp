#include <fcntl.h>
#include <unistd.h>

#include <set>

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "common/checkpoint/crc32c.hpp"
#include "common/json/nlohmann.hpp"
#include "worker/core/safetensors.hpp"
#include "worker/core/write_all.hpp"

namespace sgd::worker {
namespace {

// A piece is summed while it is in cache and written at once: memory is read once.
constexpr std::size_t kWritePieceBytes = std::size_t{1} << 20;

class SummingWriter {
 public:
  SummingWriter(int fd, const std::string& subject) : fd_(fd), subject_(subject) {}

  Status write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto piece = bytes.first(bytes.size() < kWritePieceBytes ? bytes.size() : kWritePieceBytes);
      file_.crc32c = checkpoint::crc32c(file_.crc32c, piece);
      Status status = write_all(fd_, piece, subject_);
      if (!status) return status;
      file_.bytes += piece.size();
      bytes = bytes.subspan(piece.size());
    }
    return {};
  }
  [[nodiscard]] WrittenFile file() const { return file_; }

 private:
  int fd_;
  const std::string& subject_;
  WrittenFile file_;
};

std::uint64_t bytes_of_shape(const TensorBytes& tensor) {
  std::uint64_t bytes = size_of(tensor.type);
  for (const std::int64_t extent : tensor.shape) {
    SGD_ASSERT(extent >= 0);
    bytes *= static_cast<std::uint64_t>(extent);
  }
  return bytes;
}

// The JSON header, padded with spaces so that the data begins at a multiple of 8.
std::string header_text(std::span<const TensorBytes> tensors, const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::set<std::string> names = {"__metadata__"};
  std::uint64_t offset = 0;
  for (const TensorBytes& tensor : tensors) {
    SGD_ASSERT(names.insert(tensor.name).second);
    SGD_ASSERT(bytes_of_shape(tensor) == tensor.bytes.size());
    nlohmann::ordered_json entry = nlohmann::ordered_json::object();
    entry["dtype"] = name_of(tensor.type);
    entry["shape"] = tensor.shape;
    entry["data_offsets"] = {offset, offset + tensor.bytes.size()};
    header[tensor.name] = std::move(entry);
    offset += tensor.bytes.size();
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

}  // namespace

Result<WrittenFile> write_safetensors(int fd, const std::string& subject, std::span<const TensorBytes> tensors,
                                      const std::map<std::string, std::string>& metadata) {
  const std::string header = header_text(tensors, metadata);
  const std::uint64_t header_bytes = header.size();
  SummingWriter out(fd, subject);
  Status status = out.write(std::as_bytes(std::span(&header_bytes, 1)));
  if (status) status = out.write(std::as_bytes(std::span(header)));
  for (const TensorBytes& tensor : tensors) {
    if (status) status = out.write(tensor.bytes);
  }
  if (!status) return status.error();
  return out.file();
}

Result<WrittenFile> write_safetensors(const std::string& path, std::span<const TensorBytes> tensors,
                                      const std::map<std::string, std::string>& metadata) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return system_error(path);
  Result<WrittenFile> written = write_safetensors(fd, path, tensors, metadata);
  if (written && ::fsync(fd) != 0) written = system_error(path);
  if (::close(fd) != 0 && written) written = system_error(path);
  return written;
}

}  // namespace sgd::worker
