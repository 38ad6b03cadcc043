#pragma once
// Walks over the text beside nlohmann's parser, one token per event, because that parser tells
// no positions of keys and values. Trusts that the tokens passed so far were valid JSON.

#include <algorithm>
#include <string_view>

#include "common/json/reader.hpp"

namespace sgd::json {

class TextCursor {
 public:
  explicit TextCursor(std::string_view text) : text_(text) {
    if (text_.substr(0, 3) == "\xef\xbb\xbf") offset_ = 3;  // A byte order mark; the parser skips it, too.
  }

  /// Position of the next token; afterwards the cursor is behind it.
  Position take() {
    skip_to_token();
    const Position position = here();
    skip_token();
    return position;
  }

  /// Moves forward to `offset`, which may lie inside a token or, in the current line, behind the cursor.
  Position at(std::size_t offset) {
    if (offset >= offset_) advance(std::min(offset, text_.size()) - offset_);
    return {line_, static_cast<int>(std::max(std::min(offset, text_.size()), line_begin_) - line_begin_) + 1};
  }

  /// From here on there are only white space and comments.
  bool is_rest_blank() const {
    TextCursor rest = *this;
    rest.skip_to_token();
    return rest.offset_ >= text_.size();
  }

  /// What stands at `position` up to the next delimiter.
  std::string_view word_at(Position position) const {
    std::size_t begin = 0;
    for (int line = 1; line < position.line && begin < text_.size(); ++line)
      begin = std::min(text_.find('\n', begin), text_.size() - 1) + 1;
    begin = std::min(begin + static_cast<std::size_t>(std::max(position.column, 1) - 1), text_.size());
    return text_.substr(begin, text_.find_first_of(" \t\r\n,:{}[]/\"", begin) - begin);
  }

  /// Start of the token that holds `offset`; here commas and colons are tokens, as any may be the wrong one.
  Position token_at(std::size_t offset) {
    if (offset < offset_) return at(offset);
    for (;;) {
      skip_blank("");
      const Position position = here();
      // The parser finds a cut-off "tru" wrong only at the character behind it.
      const bool literal = offset_ < text_.size() && std::string_view("tfn").find(text_[offset_]) != text_.npos;
      const bool separator = offset_ < text_.size() && std::string_view(",:").find(text_[offset_]) != text_.npos;
      if (separator) {
        advance(1);
      } else {
        skip_token();
      }
      if (offset_ + (literal ? 1 : 0) > offset || offset_ >= text_.size()) return position;
    }
  }

 private:
  Position here() const { return {line_, static_cast<int>(offset_ - line_begin_) + 1}; }
  bool starts(std::string_view word) const { return text_.substr(offset_, word.size()) == word; }

  void advance(std::size_t count) {
    for (; count > 0 && offset_ < text_.size(); --count) {
      if (text_[offset_++] == '\n') {
        ++line_;
        line_begin_ = offset_;
      }
    }
  }

  void skip_to_token() { skip_blank(",:"); }

  /// Passes white space, comments and `also`.
  void skip_blank(std::string_view also) {
    while (offset_ < text_.size()) {
      if (starts("//")) {
        advance(std::min(text_.find('\n', offset_), text_.size()) - offset_);
      } else if (starts("/*")) {
        advance(std::min(text_.find("*/", offset_ + 2), text_.size()) + 2 - offset_);
      } else if (std::string_view(" \t\r\n").find(text_[offset_]) != text_.npos ||
                 also.find(text_[offset_]) != also.npos) {
        advance(1);
      } else {
        return;
      }
    }
  }

  void skip_token() {
    if (offset_ >= text_.size()) return;
    if (text_[offset_] != '"') {
      // A bracket, or a number or literal up to its delimiter.
      const bool bracket = std::string_view("{}[]").find(text_[offset_]) != text_.npos;
      const std::size_t end = std::min(text_.find_first_of(" \t\r\n,:{}[]/\"", offset_ + 1), text_.size());
      advance(bracket ? 1 : end - offset_);
      return;
    }
    std::size_t end = offset_ + 1;
    while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2 : 1;
    advance(end + 1 - offset_);
  }

  std::string_view text_;
  std::size_t offset_ = 0;
  std::size_t line_begin_ = 0;  ///< Offset of the current line's first byte.
  int line_ = 1;
};

}  // namespace sgd::json
