#pragma once
// One record of a CSV file (RFC 4180): fields between separators, in double quotes where a field holds a separator, a
// quote (doubled) or a line break. Lines end with LF or CRLF. Nothing is converted here.

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"

namespace sgd::data {

/// Longest record, so that a quote that is never closed does not read the whole file.
inline constexpr std::size_t kCsvRecordBytesMax = 1 << 20;

class CsvRecord {
 public:
  explicit CsvRecord(char separator) : separator_(separator) {}

  /// Reads the record at the front of `text`, which is not empty; returns its bytes with the line's end. An error says
  /// what is wrong, without a place.
  Result<std::size_t> read(std::string_view text);

  /// Of the last read(); they live until the next one, and as long as its text.
  [[nodiscard]] const std::vector<std::string_view>& fields() const { return fields_; }
  /// Line breaks inside the record and at its end.
  [[nodiscard]] std::size_t lines() const { return lines_; }

 private:
  Result<std::size_t> read_field(std::string_view text, std::size_t at);
  Result<std::size_t> read_quoted(std::string_view text, std::size_t at);

  char separator_;
  std::vector<std::string_view> fields_;
  std::deque<std::string> unquoted_;  ///< Fields with doubled quotes, as they are meant.
  std::size_t lines_ = 0;
};

/// The finite number that a field is, blanks around it left out; nothing when it is none.
[[nodiscard]] std::optional<double> csv_number(std::string_view field);
[[nodiscard]] std::optional<std::int64_t> csv_integer(std::string_view field);
/// A field without the blanks around it.
[[nodiscard]] std::string_view csv_trimmed(std::string_view field);

}  // namespace sgd::data
