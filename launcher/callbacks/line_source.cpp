#include "launcher/callbacks/line_source.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace sgd::callbacks {

void LineSource::seek(std::int64_t lines) {
  file_.reset();
  read_ = 0;
  partial_.clear();
  passed_ = 0;
  skip_ = lines;
}

/// False at the end of the file.
Result<bool> LineSource::read_more() {
  if (!file_) {
    file_.reset(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file_ && errno == ENOENT) return false;
    if (!file_) return system_error("cannot open " + path_);
  }
  const std::size_t before = partial_.size();
  partial_.resize(before + kPieceBytes);
  ssize_t count = -1;
  do {
    count = ::pread(file_.get(), partial_.data() + before, kPieceBytes, static_cast<off_t>(read_));
  } while (count < 0 && errno == EINTR);
  partial_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  if (count < 0) return system_error("cannot read " + path_);
  read_ += static_cast<std::uint64_t>(count);
  return count > 0;
}

Result<std::vector<std::string>> LineSource::next() {
  std::vector<std::string> lines;
  for (;;) {
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = partial_.find('\n', begin)) != std::string::npos; begin = end + 1) {
      ++passed_;
      if (skip_ > 0) {
        --skip_;
      } else {
        lines.push_back(partial_.substr(begin, end - begin));
      }
    }
    partial_.erase(0, begin);
    if (!lines.empty()) return lines;
    const auto more = read_more();
    if (!more) return more.error();
    if (!more.value()) return lines;
  }
}

Result<std::int64_t> LineSource::left() {
  std::int64_t count = 0;
  for (;;) {
    const auto lines = next();
    if (!lines) return lines.error();
    if (lines.value().empty()) return count;
    count += static_cast<std::int64_t>(lines.value().size());
  }
}

}  // namespace sgd::callbacks
