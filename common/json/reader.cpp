#include "common/json/reader.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "common/json/text_cursor.hpp"
#include "common/json/words.hpp"

namespace sgd::json {
namespace {

using nlohmann::json;

/// What the parser's sentence says, without its own position and without the text that it repeats.
std::string reason_of(const std::string& sentence) {
  std::size_t begin = sentence.find("column ");
  begin = begin == std::string::npos ? sentence.find("] ") : sentence.find(": ", begin);
  std::string reason = begin == std::string::npos ? sentence : sentence.substr(begin + 2);
  reason = reason.substr(0, reason.find("; last read:"));
  const std::size_t behind = reason.find(" - ");
  if (behind != std::string::npos) reason = reason.substr(behind + 3);
  // The parser names the closing bracket alone where a comma would do as well.
  for (const char* bracket : {"; expected '}'", "; expected ']'"}) {
    const std::size_t at = reason.find(bracket);
    if (at != std::string::npos) reason.insert(at + std::string_view("; expected ").size(), "',' or ");
  }
  return reason;
}

/// What `word`, which JSON has not, is in other languages; empty: nothing that is known.
std::string foreign_word(std::string_view word) {
  if (word.starts_with('\'')) return "strings and keys need double quotes";
  const std::string_view unsigned_word = word.substr(word.starts_with('-') ? 1 : 0);
  for (const std::string_view known : {"NaN", "nan", "Infinity", "Inf", "inf"})
    if (unsigned_word == known) return fmt::format("JSON has no {}: give a finite number", word);
  for (const auto& [known, instead] : {std::pair("True", "true"), {"False", "false"}, {"None", "null"}})
    if (word == known) return fmt::format("{} is {} in JSON", known, instead);
  return {};
}

/// A byte order mark, or each second byte NUL where no text of UTF-8 has one.
bool is_utf16(std::string_view text) {
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) return true;
  const auto is_nul = [text](std::size_t at) { return text[at] == '\0'; };
  return text.size() >= 4 && is_nul(0) != is_nul(1) && is_nul(0) == is_nul(2) && is_nul(1) == is_nul(3);
}

/// Builds the value and its places from the parser's events.
class Builder {
 public:
  using number_integer_t = json::number_integer_t;
  using number_unsigned_t = json::number_unsigned_t;
  using number_float_t = json::number_float_t;
  using string_t = json::string_t;
  using binary_t = json::binary_t;

  Builder(std::string_view text, const std::string& source, Diagnostics& diagnostics)
      : text_(text), cursor_(text), source_(source), diagnostics_(diagnostics) {}

  Document take() { return std::move(document_); }

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(number_integer_t value) { return add(value); }
  bool number_unsigned(number_unsigned_t value) { return add(value); }
  bool number_float(number_float_t value, const string_t&) { return add(value); }
  bool string(string_t& value) { return add(std::move(value)); }
  bool binary(binary_t&) { return false; }  // JSON text has none.
  bool start_object(std::size_t) { return open(json::object()); }
  bool start_array(std::size_t) { return open(json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(string_t& name) {
    Frame& frame = frames_.back();
    frame.key = std::move(name);
    frame.key_position = cursor_.take();
    const auto first = frame.place->members.find(frame.key);
    if (first != frame.place->members.end()) {
      error(frame.key_position,
            fmt::format("duplicate key {}; first in line {}", quote(frame.key), first->second.key.line));
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const json::exception& exception) {
    const std::string sentence = exception.what();
    // Both ways to run out of text: between tokens, and inside a string.
    if (position > text_.size()) {
      const bool is_in_comment = sentence.find("comment") != std::string::npos;
      if (is_empty_ && !is_in_comment && cursor_.is_rest_blank()) {
        error({}, "the file holds nothing but comments");
        return false;
      }
      error(cursor_.at(text_.size()), "not JSON: the file ends too early (truncated?)");
      return false;
    }
    // A wrong token is shown at its start, a wrong byte of a string or comment at itself.
    const std::size_t last = position - std::min<std::size_t>(position, 1);
    const bool in_token =
        sentence.find("invalid string") != std::string::npos || sentence.find("invalid comment") != std::string::npos;
    const Position place = in_token ? cursor_.at(last) : cursor_.token_at(last);
    error(place, "not JSON: " + fault(place, reason_of(sentence)));
    return false;
  }

 private:
  /// The parser's words, or those for what people write most.
  std::string fault(Position place, const std::string& reason) const {
    if (reason.starts_with("unexpected '}'; expected string literal")) return "a comma before '}': remove it";
    const bool is_in_array = !frames_.empty() && frames_.back().value->is_array();
    if (is_in_array && reason.starts_with("unexpected ']'")) return "a comma before ']': remove it";
    constexpr std::string_view kOverflow = "number overflow parsing ";
    if (reason.starts_with(kOverflow))
      return fmt::format("the number {} is too large", reason.substr(kOverflow.size()));
    const std::string meant = foreign_word(cursor_.word_at(place));
    return meant.empty() ? reason : meant;
  }

  struct Frame {
    json* value;
    SourceMap* place;
    std::string key;  ///< Last one read; objects only.
    Position key_position;
  };

  void error(Position position, std::string message) {
    diagnostics_.error(source_, position.line, position.column, std::move(message));
  }

  /// Puts `value` where it belongs. The pointers stay good: a container only grows while none inside it is
  /// open.
  std::pair<json*, SourceMap*> put(json value) {
    is_empty_ = false;
    const Position position = cursor_.take();
    json* slot = &document_.value;
    SourceMap* place = &document_.source_map;
    if (!frames_.empty()) {
      Frame& frame = frames_.back();
      if (frame.value->is_object()) {
        slot = &(*frame.value)[frame.key];
        place = &frame.place->members[frame.key];
      } else {
        frame.value->push_back(nullptr);
        slot = &frame.value->back();
        place = &frame.place->items.emplace_back();
      }
      *place = SourceMap{};
      place->key = frame.key_position;
    }
    *slot = std::move(value);
    place->value = position;
    return {slot, place};
  }

  bool add(json value) {
    put(std::move(value));
    return true;
  }

  bool open(json container) {
    const auto [value, place] = put(std::move(container));
    frames_.push_back({value, place, {}, {}});
    if (static_cast<int>(frames_.size()) <= kDepthMax) return true;
    error(place->value, fmt::format("nested deeper than {} levels", kDepthMax));
    return false;
  }

  bool close() {
    cursor_.take();
    frames_.pop_back();
    return true;
  }

  std::string_view text_;
  TextCursor cursor_;
  const std::string& source_;
  Diagnostics& diagnostics_;
  Document document_;
  std::vector<Frame> frames_;
  bool is_empty_ = true;  ///< No value has begun.
};

}  // namespace

std::optional<Document> read(std::string_view text, const std::string& source, Diagnostics& diagnostics) {
  TextCursor cursor(text);
  if (is_utf16(text)) {
    diagnostics.error(source, 0, 0, "not JSON: the text is UTF-16: save it as UTF-8");
    return std::nullopt;
  }
  // The parser takes a NUL byte for the end of the text and would accept anything behind it.
  const std::size_t nul = text.find('\0');
  if (nul != std::string_view::npos) {
    const Position position = cursor.at(nul);
    diagnostics.error(source, position.line, position.column, "not JSON: NUL byte (a binary file?)");
    return std::nullopt;
  }
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    diagnostics.error(source, 0, 0, "the file is empty");
    return std::nullopt;
  }
  Diagnostics found;
  Builder builder(text, source, found);
  const bool whole = json::sax_parse(text.begin(), text.end(), &builder, json::input_format_t::json, true,
                                     /*ignore_comments=*/true);
  diagnostics.items.insert(diagnostics.items.end(), found.items.begin(), found.items.end());
  if (!whole) return std::nullopt;
  return builder.take();
}

}  // namespace sgd::json
