#include "common/json/json_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "common/json/shallow.hpp"

namespace sgd::json {
namespace {

Result<std::string> text_of(int fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return system_error("cannot look at " + path);
  if (!S_ISREG(info.st_mode)) return Error{path + " is no regular file", EINVAL};
  std::string text;
  char piece[16 << 10];
  for (;;) {  // Files of /proc have no size to trust.
    const ssize_t count = ::read(fd, piece, sizeof piece);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error("cannot read " + path);
    if (count == 0) return text;
    text.append(piece, static_cast<std::size_t>(count));
  }
}

template <class Json>
Json parsed(const std::string& path) {
  const Result<std::string> text = text_of_file(path);
  bool is_deep = false;
  const auto is_kept = [&is_deep](int depth, typename Json::parse_event_t event, Json&) {
    const bool begins = event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    is_deep = is_deep || (begins && depth >= kFileDepthMax);
    return !is_deep;  // Nothing of it is built.
  };
  Json value = Json::parse(text ? text.value() : std::string(), is_kept, false, true);
  return is_deep ? Json(Json::value_t::discarded) : value;
}

}  // namespace

Result<std::string> text_of_file(const std::string& path) {
  // O_NONBLOCK: a pipe of this name, which nobody writes, holds nobody up.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return system_error("cannot open " + path);
  Result<std::string> text = text_of(fd, path);
  ::close(fd);
  return text;
}

nlohmann::json read_file(const std::string& path) {
  return parsed<nlohmann::json>(path);
}

nlohmann::ordered_json read_ordered_file(const std::string& path) {
  return parsed<nlohmann::ordered_json>(path);
}

}  // namespace sgd::json
