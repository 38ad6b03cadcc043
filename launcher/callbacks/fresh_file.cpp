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
  using process::OwnPath;
  const auto in_it = OwnPath::find(folder + "/.new", OwnPath::Folders::kAreMade, OwnPath::LastLink::kStays);
  return in_it ? Status() : Status(Error{"cannot create " + folder + ": " + in_it.error().message, in_it.error().code});
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
  using process::OwnPath;
  auto place = OwnPath::find(path, OwnPath::Folders::kAreMade, OwnPath::LastLink::kStays);
  if (!place)
    return Error{"cannot create " + std::filesystem::path(path).parent_path().string() + ": " + place.error().message,
                 place.error().code};
  process::UniqueFd file = place.value().open(place.value().name() + ".tmp", O_RDWR | O_CREAT | O_TRUNC, 0644);
  if (!file) return system_error("cannot create " + path + ".tmp");
  return FreshFile(path, std::move(place).value(), std::move(file));
}

FreshFile::~FreshFile() {
  if (file_ && !is_published_)
    (void)::unlinkat(place_.folder(), (place_.name() + ".tmp").c_str(), 0);  // Ignoring: the next one truncates it.
}

Status FreshFile::copy_front(std::uint64_t bytes) {
  if (bytes == 0) return {};
  const process::UniqueFd old = place_.open(O_RDONLY);
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
  if (::renameat(place_.folder(), (place_.name() + ".tmp").c_str(), place_.folder(), place_.name().c_str()) != 0)
    return system_error("cannot rename to " + path_);
  is_published_ = true;
  return {};
}

}  // namespace sgd::callbacks
