#include "launcher/callbacks/fresh_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

namespace sgd::callbacks {

Status make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error && !std::filesystem::is_directory(folder))
    return Error{"cannot create " + folder + ": " + error.message(), error.value()};
  return {};
}

Status append_whole(int file, std::uint64_t size, std::string_view bytes, const std::string& path) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::pwrite(file, bytes.data() + done, bytes.size() - done, static_cast<off_t>(size + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const Error error = system_error("cannot write " + path);
      const int cut = ::ftruncate(file, static_cast<off_t>(size));
      (void)cut;  // Ignoring: what cannot be cut off is written over by the next attempt.
      return error;
    }
    done += static_cast<std::size_t>(count);
  }
  return {};
}

Result<FreshFile> FreshFile::create(const std::string& path) {
  if (const Status folder = make_folder(std::filesystem::path(path).parent_path().string()); !folder)
    return folder.error();
  const std::string temporary = path + ".tmp";
  process::UniqueFd file(::open(temporary.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file) return system_error("cannot create " + temporary);
  return FreshFile(path, std::move(file));
}

FreshFile::~FreshFile() {
  if (file_ && !is_published_) (void)::unlink(temporary().c_str());  // Ignoring: the next one truncates it.
}

Status FreshFile::copy_front(std::uint64_t bytes) {
  if (bytes == 0) return {};
  const process::UniqueFd old(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!old) return system_error("cannot open " + path_);
  std::string piece(1 << 20, '\0');
  while (size_ < bytes) {
    const std::size_t wanted = std::min<std::uint64_t>(piece.size(), bytes - size_);
    const ssize_t count = ::pread(old.get(), piece.data(), wanted, static_cast<off_t>(size_));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error("cannot read " + path_);
    if (count == 0) return Error{path_ + " was cut short by somebody else"};
    if (const Status written = append({piece.data(), static_cast<std::size_t>(count)}); !written) return written;
  }
  return {};
}

Status FreshFile::append(std::string_view bytes) {
  const Status written = append_whole(file_.get(), size_, bytes, is_published_ ? path_ : temporary());
  if (written) size_ += bytes.size();
  return written;
}

Status FreshFile::publish() {
  if (is_published_) return {};
  if (std::rename(temporary().c_str(), path_.c_str()) != 0) return system_error("cannot rename to " + path_);
  is_published_ = true;
  return {};
}

}  // namespace sgd::callbacks
