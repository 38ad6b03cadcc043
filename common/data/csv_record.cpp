#include "common/data/csv_record.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <type_traits>

#include <fmt/format.h>

namespace sgd::data {
namespace {

/// As strtod() reads it, which takes a plus sign, too.
template <class Number>
std::optional<Number> whole_number(std::string_view field) {
  std::string_view text = csv_trimmed(field);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size()) return std::nullopt;
  if constexpr (std::is_floating_point_v<Number>) {
    // Infinite, or so small that it is 0: from_chars() does not say which.
    if (error == std::errc::result_out_of_range) return std::strtod(std::string(text).c_str(), nullptr);
  }
  if (error != std::errc()) return std::nullopt;
  return value;
}

}  // namespace

std::string_view csv_trimmed(std::string_view field) {
  while (!field.empty() && (field.front() == ' ' || field.front() == '\t')) field.remove_prefix(1);
  while (!field.empty() && (field.back() == ' ' || field.back() == '\t')) field.remove_suffix(1);
  return field;
}

std::optional<double> csv_number(std::string_view field) {
  const std::optional<double> value = whole_number<double>(field);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<std::int64_t> csv_integer(std::string_view field) {
  return whole_number<std::int64_t>(field);
}

Result<std::size_t> CsvRecord::read_quoted(std::string_view text, std::size_t at) {
  const std::size_t begin = at + 1;
  std::size_t end = begin;
  bool has_quotes = false;
  for (;;) {
    end = text.find('"', end);
    if (end == std::string_view::npos) return Error{"a quoted field is not closed"};
    if (end + 1 >= text.size() || text[end + 1] != '"') break;
    has_quotes = true;
    end += 2;
  }
  std::string_view field = text.substr(begin, end - begin);
  lines_ += static_cast<std::size_t>(std::count(field.begin(), field.end(), '\n'));
  if (has_quotes) {
    std::string& meant = unquoted_.emplace_back();
    for (std::size_t i = 0; i < field.size(); ++i) {
      meant.push_back(field[i]);
      if (field[i] == '"') ++i;
    }
    field = meant;
  }
  fields_.push_back(field);
  return end + 1;
}

Result<std::size_t> CsvRecord::read_field(std::string_view text, std::size_t at) {
  if (at < text.size() && text[at] == '"') return read_quoted(text, at);
  const std::size_t begin = at;
  while (at < text.size() && text[at] != separator_ && text[at] != '\n') {
    if (text[at] == '"')
      return Error{fmt::format("field {} has a quote inside, and does not begin with one", fields_.size())};
    ++at;
  }
  std::size_t end = at;
  const bool ends_line = at == text.size() || text[at] == '\n';
  if (ends_line && end > begin && text[end - 1] == '\r') --end;
  fields_.push_back(text.substr(begin, end - begin));
  return at;
}

Result<std::size_t> CsvRecord::read(std::string_view text) {
  fields_.clear();
  unquoted_.clear();
  lines_ = 0;
  std::size_t at = 0;
  for (;;) {
    const Result<std::size_t> end = read_field(text, at);
    if (!end) return end;
    at = end.value();
    // Behind a closing quote.
    if (at < text.size() && text[at] == '\r' && (at + 1 == text.size() || text[at + 1] == '\n')) ++at;
    if (at == text.size()) return at;
    if (text[at] == '\n') {
      ++lines_;
      return at + 1;
    }
    if (text[at] != separator_)
      return Error{fmt::format("field {} goes on behind its closing quote", fields_.size() - 1)};
    ++at;
  }
}

}  // namespace sgd::data
