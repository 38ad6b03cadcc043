#pragma once
// A whole file mapped read-only. Moves, does not copy; unmaps on destruction.

#include <cstddef>
#include <span>
#include <string>

#include "common/base/result.hpp"

namespace sgd::worker {

class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }
  /// Gives the memory of the pages between back; they are read again when they are needed.
  void forget(std::size_t begin, std::size_t end) const;

 private:
  MappedFile(const std::byte* data, std::size_t size) : data_(data), size_(size) {}

  const std::byte* data_ = nullptr;  // Null for an empty file.
  std::size_t size_ = 0;
};

}  // namespace sgd::worker
