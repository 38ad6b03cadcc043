#pragma once
// Which files are mapped, for a signal handler that has only an address: it looks without a lock and without memory.

#include <atomic>
#include <cstddef>
#include <string>

namespace sgd::worker {

struct FileMapping {
  std::atomic<const std::byte*> begin = nullptr;  ///< Null: free for another file.
  std::size_t size = 0;
  std::string path;
  FileMapping* next = nullptr;
};

void add_mapping(const std::string& path, const std::byte* begin, std::size_t size);
void remove_mapping(const std::byte* begin);

/// Null: no file is mapped there. Valid as long as the file is.
[[nodiscard]] const FileMapping* mapping_at(const void* address);

}  // namespace sgd::worker
