#include "common/data/idx.hpp"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>

#include <fmt/format.h>

namespace sgd::data {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kDimensionsMax = 4;
constexpr std::size_t kHeaderBytesMax = 4 + 4 * kDimensionsMax;
constexpr std::uint8_t kUnsignedByte = 0x08;
constexpr std::size_t kChunkBytes = 64 << 10;
constexpr std::size_t kSearchedBytesMax = 32 << 20;  // Of a larger file the worker tells, when it unpacks it.

std::uint32_t read_u32(const unsigned char* bytes) {
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 | std::uint32_t{bytes[2]} << 8 | bytes[3];
}

/// As gzip's trailers have it.
std::uint32_t read_little_u32(const unsigned char* bytes) {
  return std::uint32_t{bytes[3]} << 24 | std::uint32_t{bytes[2]} << 16 | std::uint32_t{bytes[1]} << 8 | bytes[0];
}

/// The first bytes, unpacked if need be; fewer when the file is shorter.
Result<std::vector<unsigned char>> read_head(const std::string& path) {
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file) return system_error("data file " + path);
  std::vector<unsigned char> head(kHeaderBytesMax);
  const int count = gzread(file.get(), head.data(), static_cast<unsigned>(head.size()));
  if (count < 0) return Error{fmt::format("data file {}: damaged gzip header", path)};
  head.resize(static_cast<std::size_t>(count));
  return head;
}

/// Unpacked size modulo 2^32 of a gzip file's last member, as its last four bytes say it (RFC 1952), or nothing for a
/// plain file.
Result<std::optional<std::uint32_t>> gzip_size(const std::string& path, std::size_t file_bytes) {
  using Nothing = std::optional<std::uint32_t>;
  std::ifstream file(path, std::ios::binary);
  unsigned char magic[2] = {};
  file.read(reinterpret_cast<char*>(magic), 2);
  if (!file || magic[0] != 0x1f || magic[1] != 0x8b) return Nothing{};
  constexpr std::size_t kSmallestGzip = 18;
  if (file_bytes < kSmallestGzip) return Error{fmt::format("data file {} is truncated: {} bytes", path, file_bytes)};
  unsigned char size[4] = {};
  file.seekg(-4, std::ios::end);
  file.read(reinterpret_cast<char*>(size), 4);
  if (!file) return system_error("cannot read data file " + path);
  return Nothing{read_little_u32(size)};
}

/// Whether the file may be of several gzip members, one behind the other: somewhere the size of one, at most
/// `member_bytes_max`, is followed by what the next one begins with. In packed data that is there by chance once in
/// some hundred files, so false is certain and true is not.
bool may_have_members(const std::string& path, std::uint64_t member_bytes_max) {
  constexpr std::size_t kMarkBytes = 8;
  std::ifstream file(path, std::ios::binary);
  std::vector<unsigned char> bytes(kChunkBytes);
  std::size_t held = 0;
  for (std::size_t searched = 0; file; searched += kChunkBytes) {
    if (searched > kSearchedBytesMax) return true;
    file.read(reinterpret_cast<char*>(bytes.data() + held), static_cast<std::streamsize>(bytes.size() - held));
    held += static_cast<std::size_t>(file.gcount());
    for (std::size_t i = 0; i + kMarkBytes <= held; ++i) {
      const unsigned char* at = bytes.data() + i;
      const bool begins = at[4] == 0x1f && at[5] == 0x8b && at[6] == Z_DEFLATED && (at[7] & 0xe0) == 0;
      if (begins && read_little_u32(at) <= member_bytes_max) return true;
    }
    const std::size_t kept = std::min(held, kMarkBytes - 1);
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(held - kept), kept, bytes.begin());
    held = kept;
  }
  return false;
}

/// What is certain without unpacking the file. Of several members the last one's size says little; that all of them are
/// as long as the header says, the worker sees when it unpacks them.
Status check_packed_size(const std::string& path, std::uint32_t last, std::size_t expected) {
  if (last == static_cast<std::uint32_t>(expected)) return {};
  const bool is_small = expected <= std::numeric_limits<std::uint32_t>::max();
  if ((!is_small || last < expected) && may_have_members(path, is_small ? expected - last : expected)) return {};
  return Error{
      fmt::format("data file {} is truncated or damaged: its header asks for {} bytes, its gzip trailer says {}", path,
                  expected, last)};
}

Result<IdxInfo> read_header(const std::string& path) {
  const auto head = read_head(path);
  if (!head) return head.error();
  const std::vector<unsigned char>& bytes = head.value();
  if (bytes.size() < 4 || bytes[0] != 0 || bytes[1] != 0)
    return Error{fmt::format("data file {} is not IDX: it does not begin with two zero bytes", path)};
  if (bytes[2] != kUnsignedByte)
    return Error{
        fmt::format("data file {}: IDX type 0x{:02x} is not supported, only unsigned bytes (0x08)", path, bytes[2])};
  const std::size_t dimensions = bytes[3];
  if (dimensions == 0 || dimensions > kDimensionsMax)
    return Error{fmt::format("data file {}: {} dimensions, expected 1 to {}", path, dimensions, kDimensionsMax)};
  IdxInfo info;
  info.path = path;
  info.header_bytes = 4 + 4 * dimensions;
  if (bytes.size() < info.header_bytes) return Error{fmt::format("data file {} is truncated in its header", path)};
  info.payload_bytes = 1;
  for (std::size_t index = 0; index < dimensions; ++index) {
    const std::uint32_t size = read_u32(bytes.data() + 4 + 4 * index);
    if (size == 0) return Error{fmt::format("data file {} holds nothing: dimension {} is 0", path, index)};
    if (info.payload_bytes > kIdxBytesMax / size)
      return Error{fmt::format("data file {}: its header claims more than {} bytes", path, kIdxBytesMax)};
    info.payload_bytes *= size;
    info.dims.push_back(size);
  }
  return info;
}

Result<IdxInfo> find_one(const std::string& directory, const std::string& name) {
  for (const char* ending : {"", ".gz"}) {
    const std::string path = (fs::path(directory) / (name + ending)).string();
    std::error_code error;
    if (fs::exists(path, error)) return inspect_idx(path);
  }
  return Error{fmt::format("data set folder {} has neither {} nor {}.gz", directory, name, name)};
}

}  // namespace

Result<IdxInfo> inspect_idx(const std::string& path) {
  std::error_code error;
  const auto file_bytes = static_cast<std::size_t>(fs::file_size(path, error));
  if (error) return Error{fmt::format("data file {}: {}", path, error.message()), error.value()};
  const auto packed = gzip_size(path, file_bytes);
  if (!packed) return packed.error();
  auto info = read_header(path);
  if (!info) return info;
  info.value().compressed = packed.value().has_value();
  const std::size_t expected = info.value().header_bytes + info.value().payload_bytes;
  if (packed.value()) {
    if (const Status whole = check_packed_size(path, *packed.value(), expected); !whole) return whole.error();
  } else if (file_bytes != expected) {
    return Error{fmt::format("data file {} is {}: {} bytes, its header asks for {}", path,
                             file_bytes < expected ? "truncated" : "too long", file_bytes, expected)};
  }
  return info;
}

Result<IdxFiles> find_idx(const std::string& directory, IdxSplit split) {
  std::error_code error;
  if (!fs::is_directory(directory, error))
    return Error{
        fmt::format("data set folder {} does not exist: install the data set (scripts/setup) or name its folder in "
                    "training.dataset.path",
                    directory)};
  const std::string prefix = split == IdxSplit::kTrain ? "train" : "t10k";
  auto images = find_one(directory, prefix + "-images-idx3-ubyte");
  if (!images) return images.error();
  auto labels = find_one(directory, prefix + "-labels-idx1-ubyte");
  if (!labels) return labels.error();
  IdxFiles files{std::move(images).value(), std::move(labels).value()};
  if (files.images.dims.size() != 3)
    return Error{fmt::format("data file {}: {} dimensions, expected 3", files.images.path, files.images.dims.size())};
  if (files.labels.dims.size() != 1)
    return Error{fmt::format("data file {}: {} dimensions, expected 1", files.labels.path, files.labels.dims.size())};
  if (files.images.dims[0] != files.labels.dims[0])
    return Error{fmt::format("{} images in {}, {} labels in {}: the counts differ", files.images.dims[0],
                             files.images.path, files.labels.dims[0], files.labels.path)};
  return files;
}

}  // namespace sgd::data
