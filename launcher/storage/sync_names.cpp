#include "launcher/storage/sync_names.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include <fmt/format.h>

#include "launcher/storage/beneath.hpp"

namespace sgd::storage {
namespace fs = std::filesystem;

Status sync_path(const std::string& path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0 || (::fsync(fd.get()) != 0 && errno != EINVAL)) return system_error("cannot sync " + path);
  return {};
}

Status sync_names(const std::string& top) {
  std::error_code error;
  fs::recursive_directory_iterator entry(top, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code unknown;
    if (entry->is_symlink(unknown) || !entry->is_directory(unknown)) continue;
    if (const Status synced = sync_path(entry->path().string()); !synced) return synced;
  }
  if (error) return Error{fmt::format("cannot list {}: {}", top, error.message()), error.value()};
  const Status synced = sync_path(top);
  return synced ? sync_path(fs::path(top).parent_path().string()) : synced;
}

}  // namespace sgd::storage
