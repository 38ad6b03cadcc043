#pragma once
// The safetensors file format: u64 header length, JSON header, raw little-endian data. The
// writer makes one pass over the tensors' memory and the checksum of the file on the way; the
// reader maps the file and accepts nothing that is not exactly well formed: names once, known
// types, byte counts that fit the shapes, data without gap or overlap up to the end of the file.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "worker/core/mapped_file.hpp"

namespace sgd::worker {

enum class TensorType { kBool, kU8, kI8, kI16, kU16, kF16, kBF16, kI32, kU32, kF32, kI64, kU64, kF64 };

/// Bytes of one element.
[[nodiscard]] std::size_t size_of(TensorType type);
/// The format's name, for example "F32".
[[nodiscard]] const char* name_of(TensorType type);
/// Nothing for a name that the format does not know.
[[nodiscard]] std::optional<TensorType> tensor_type_named(std::string_view name);

/// A tensor in memory, contiguous: what the writer takes and the reader gives.
struct TensorBytes {
  std::string name;  ///< Unique in a file; "__metadata__" is reserved.
  TensorType type = TensorType::kF32;
  std::vector<std::int64_t> shape;   ///< Empty for a scalar.
  std::span<const std::byte> bytes;  ///< Product of shape * size_of(type) bytes.
};

/// What the manifest says about a file.
struct WrittenFile {
  std::uint64_t bytes = 0;
  std::uint32_t crc32c = 0;
};

/// Writes to `fd` from its current offset. `subject` names the file in errors.
Result<WrittenFile> write_safetensors(int fd, const std::string& subject, std::span<const TensorBytes> tensors,
                                      const std::map<std::string, std::string>& metadata = {});
/// Creates `path` (which must not exist), writes it and waits until it is on disk.
Result<WrittenFile> write_safetensors(const std::string& path, std::span<const TensorBytes> tensors,
                                      const std::map<std::string, std::string>& metadata = {});

class SafetensorsFile {
 public:
  /// Errors name the file and what is wrong in it.
  static Result<SafetensorsFile> open(const std::string& path);

  /// In the order of their data; the bytes are valid as long as this object.
  [[nodiscard]] const std::vector<TensorBytes>& tensors() const { return tensors_; }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// Null when there is none of that name.
  [[nodiscard]] const TensorBytes* find(std::string_view name) const;

 private:
  explicit SafetensorsFile(MappedFile file) : file_(std::move(file)) {}

  MappedFile file_;
  std::vector<TensorBytes> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace sgd::worker
