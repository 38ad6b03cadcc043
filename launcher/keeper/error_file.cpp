#include "launcher/keeper/error_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "common/messages/codec.hpp"
#include "launcher/keeper/console_lines.hpp"
#include "launcher/keeper/traceback.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::keeper {
namespace {

constexpr std::size_t kRecordBytesMax = 256 << 10;
constexpr int kDepthMax = 16;

/// The begin of a JSON text, with what closes it.
std::string completed(std::string_view text) {
  std::string closers;
  bool is_string = false;
  bool is_escaped = false;
  for (const char letter : text) {
    if (is_escaped) {
      is_escaped = false;
    } else if (is_string) {
      is_escaped = letter == '\\';
      is_string = letter != '"';
    } else if (letter == '"') {
      is_string = true;
    } else if (letter == '{' || letter == '[') {
      closers.insert(closers.begin(), letter == '{' ? '}' : ']');
    } else if ((letter == '}' || letter == ']') && !closers.empty()) {
      closers.erase(closers.begin());
    }
  }
  if (is_escaped) text.remove_suffix(1);
  return std::string(text) + (is_string ? "\"" : "") + closers;
}

nlohmann::json parse_part(std::string_view text) {
  if (auto whole = codec::parse_object(text, kDepthMax); whole) return std::move(whole).value();
  if (auto part = codec::parse_object(completed(text), kDepthMax); part) return std::move(part).value();
  // It ends in the name of a key, or behind it: what comes before that is whole.
  const std::size_t comma = text.rfind(',');
  if (comma == std::string_view::npos) return {};
  auto part = codec::parse_object(completed(text.substr(0, comma)), kDepthMax);
  return part ? std::move(part).value() : nlohmann::json();
}

std::string text_at(const nlohmann::json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

RankError parse_error_record(std::string_view text, double at_s) {
  const nlohmann::json record = parse_part(text);
  if (!record.is_object() || !record.contains("message")) return {};
  const nlohmann::json& inner = record.at("message");
  std::string said = inner.is_object() ? text_at(inner, "message") : text_at(record, "message");
  RankError error;
  if (inner.is_object() && inner.contains("extraInfo")) {
    TracebackWatch watch;
    watch.add(text_at(inner.at("extraInfo"), "py_callstack") + "\n", at_s);
    error = watch.error();
  }
  said.erase(0, said.find_first_not_of("\r\n"));
  while (said.ends_with('\n')) said.pop_back();
  if (said.empty()) return {};
  const std::size_t end = std::min(said.find('\n'), said.size());
  const RankError named = split_exception(std::string_view(said).substr(0, end));
  error.type = named.type;
  error.message = named.message + said.substr(end);
  error.message.resize(character_end(error.message, kErrorTextBytesMax));
  error.at_s = at_s;
  return error;
}

RankError read_error_file(const std::string& path) {
  if (path.empty()) return {};
  const process::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  std::string text(kRecordBytesMax, '\0');
  const ssize_t count = ::pread(file.get(), text.data(), text.size(), 0);
  if (count <= 0) return {};
  text.resize(static_cast<std::size_t>(count));
  return parse_error_record(
      text, static_cast<double>(info.st_mtim.tv_sec) + 1e-9 * static_cast<double>(info.st_mtim.tv_nsec));
}

}  // namespace sgd::keeper
