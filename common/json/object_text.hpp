#pragma once
// The text of a JSON object, written key by key: for what an answer holds ten thousand of. A value for each of them
// that is printed then takes three times as long.

#include <algorithm>
#include <concepts>
#include <iterator>
#include <map>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "common/json/nlohmann.hpp"

namespace sgd::json {

/// Keys are plain ASCII, and nobody looks for two that are alike. Values are written as nlohmann::json::dump() does.
class ObjectText {
 public:
  ObjectText& add(std::string_view key, std::string_view value) {
    begin(key);
    append(value);
    return *this;
  }
  template <std::integral Number>
  ObjectText& add(std::string_view key, Number value) {
    begin(key);
    append(value);
    return *this;
  }
  ObjectText& add(std::string_view key, double value) {
    begin(key);
    text_ += nlohmann::json(value).dump();
    return *this;
  }
  template <class Value>
  ObjectText& add(std::string_view key, const std::map<std::string, Value>& values) {
    begin(key);
    text_ += '{';
    for (const auto& [name, value] : values) {
      if (text_.back() != '{') text_ += ',';
      append(name);
      text_ += ':';
      append(value);
    }
    text_ += '}';
    return *this;
  }
  /// Of all that was added.
  [[nodiscard]] std::string text() const { return text_ + '}'; }

 private:
  void begin(std::string_view key) {
    if (text_.size() > 1) text_ += ',';
    append(key);
    text_ += ':';
  }
  void append(std::integral auto value) { fmt::format_to(std::back_inserter(text_), "{}", value); }
  /// Most are plain; bytes that are no UTF-8 are replaced.
  void append(std::string_view value) {
    constexpr auto is_plain = [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; };
    if (std::all_of(value.begin(), value.end(), is_plain)) {
      ((text_ += '"') += value) += '"';
      return;
    }
    text_ += nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }

  std::string text_ = "{";
};

}  // namespace sgd::json
