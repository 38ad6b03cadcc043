#include "common/json/words.hpp"

#include <cerrno>

namespace sgd::json {
namespace {
constexpr std::size_t kShownBytesMax = 60;

std::string printed(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}
}  // namespace

std::string quote(std::string_view text) {
  if (text.size() <= kShownBytesMax) return printed(std::string(text));
  std::size_t cut = kShownBytesMax;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xc0) == 0x80) --cut;  // Not inside a character.
  return printed(std::string(text.substr(0, cut)) + "...");
}

bool is_utf8(std::string_view text) {
  // Printing replaces bad bytes or leaves them out: the same only when there are none.
  using Handler = nlohmann::json::error_handler_t;
  const nlohmann::json value = std::string(text);
  return value.dump(-1, ' ', false, Handler::ignore) == value.dump(-1, ' ', false, Handler::replace);
}

Status check_path(std::string_view what, std::string_view path) {
  if (is_utf8(path)) return {};
  constexpr const char* kWhy =
      ": its name is not UTF-8, and no job, event or message can carry it: name another folder";
  return Error{std::string(what) + " " + quote(path) + kWhy, EILSEQ};
}

const char* type_in_words(const nlohmann::json& value) {
  switch (value.type()) {
    case nlohmann::json::value_t::null:
      return "null";
    case nlohmann::json::value_t::object:
      return "an object";
    case nlohmann::json::value_t::array:
      return "an array";
    case nlohmann::json::value_t::string:
      return "a string";
    case nlohmann::json::value_t::boolean:
      return "true or false";
    case nlohmann::json::value_t::number_integer:
    case nlohmann::json::value_t::number_unsigned:
      return "an integer";
    case nlohmann::json::value_t::number_float:
      return "a number";
    case nlohmann::json::value_t::binary:
      return "binary";
    case nlohmann::json::value_t::discarded:
      return "nothing";
  }
  return "nothing";
}

std::string shown(const nlohmann::json& value) {
  if (value.is_string()) return quote(value.get_ref<const std::string&>());
  if (value.is_structured()) return type_in_words(value);
  return printed(value);
}

std::string alternatives(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += words[i];
  }
  return text;
}

}  // namespace sgd::json
