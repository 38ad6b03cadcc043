#include "worker/core/file_mappings.hpp"

#include <functional>
#include <mutex>

namespace sgd::worker {
namespace {

std::mutex changes;
/// Entries are used again, and never destroyed: a handler may look at any time.
std::atomic<FileMapping*> first_mapping = nullptr;

FileMapping* find(const std::byte* begin) {
  FileMapping* one = first_mapping.load();
  while (one != nullptr && one->begin.load() != begin) one = one->next;
  return one;
}

}  // namespace

void add_mapping(const std::string& path, const std::byte* begin, std::size_t size) {
  const std::lock_guard lock(changes);
  FileMapping* entry = find(nullptr);
  const bool is_new = entry == nullptr;
  if (is_new) entry = new FileMapping;
  entry->path = path;
  entry->size = size;
  entry->begin = begin;
  if (!is_new) return;
  entry->next = first_mapping.load();
  first_mapping = entry;
}

void remove_mapping(const std::byte* begin) {
  const std::lock_guard lock(changes);
  if (FileMapping* entry = find(begin); entry != nullptr) entry->begin = nullptr;
}

const FileMapping* mapping_at(const void* address) {
  const auto* place = static_cast<const std::byte*>(address);
  for (const FileMapping* one = first_mapping.load(); one != nullptr; one = one->next) {
    const std::byte* begin = one->begin.load();
    // Of the library: plain operators order pointers into one object only.
    if (begin != nullptr && std::greater_equal<>()(place, begin) && std::less<>()(place, begin + one->size)) return one;
  }
  return nullptr;
}

}  // namespace sgd::worker
