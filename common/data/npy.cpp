#include "common/data/npy.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "common/data/file_list.hpp"

namespace sgd::data {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr std::size_t kNpyPrefixBytes = 12;  // Of version 2; version 1 has two less.

/// Walks the dictionary of a header. What is not there is told as the place reached and what was expected.
class NpyHeaderText {
 public:
  explicit NpyHeaderText(std::string_view text) : text_(text) {}

  bool take(char wanted) {
    skip_blanks();
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  bool take_word(std::string_view word) {
    skip_blanks();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  std::optional<std::string> take_string() {
    const char quote = take('\'') ? '\'' : take('"') ? '"' : '\0';
    if (quote == '\0') return std::nullopt;
    const std::size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) return std::nullopt;
    std::string value(text_.substr(at_, end - at_));
    at_ = end + 1;
    return value;
  }
  std::optional<std::int64_t> take_number() {
    skip_blanks();
    std::int64_t value = 0;
    const char* begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error != std::errc() || value < 0) return std::nullopt;
    at_ += static_cast<std::size_t>(end - begin);
    return value;
  }
  bool is_done() {
    skip_blanks();
    return at_ == text_.size();
  }
  [[nodiscard]] std::size_t at() const { return at_; }

 private:
  void skip_blanks() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

struct NpyFields {
  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<std::int64_t>> shape;
};

/// What was expected where the tuple goes wrong; empty when it is read.
std::string read_shape(NpyHeaderText& text, NpyFields& fields) {
  if (!text.take('(')) return "'(' of the shape";
  fields.shape.emplace();
  while (!text.take(')')) {
    const std::optional<std::int64_t> size = text.take_number();
    if (!size) return "a dimension";
    fields.shape->push_back(*size);
    if (text.take(',')) continue;
    if (text.take(')')) break;
    return "',' or ')' in the shape";
  }
  return {};
}

std::string read_field(NpyHeaderText& text, NpyFields& fields) {
  const std::optional<std::string> key = text.take_string();
  if (!key) return "a key in quotes";
  if (!text.take(':')) return "':'";
  if (*key == "descr" && !fields.descr) {
    fields.descr = text.take_string();
    return fields.descr ? "" : "one type of numbers (a structured array is none)";
  }
  if (*key == "fortran_order" && !fields.fortran_order) {
    fields.fortran_order = text.take_word("True");
    return *fields.fortran_order || text.take_word("False") ? "" : "True or False";
  }
  if (*key == "shape" && !fields.shape) return read_shape(text, fields);
  return "'descr', 'fortran_order' and 'shape', each once";
}

std::string read_fields(NpyHeaderText& text, NpyFields& fields) {
  if (!text.take('{')) return "'{'";
  while (!text.take('}')) {
    std::string expected = read_field(text, fields);
    if (!expected.empty()) return expected;
    if (text.take(',')) continue;
    if (text.take('}')) break;
    return "',' or '}'";
  }
  if (!fields.descr || !fields.fortran_order || !fields.shape) return "'descr', 'fortran_order' and 'shape', each once";
  return text.is_done() ? "" : "nothing behind '}'";
}

struct NpyTypeName {
  std::string_view name;
  NpyType type;
  std::size_t bytes;
};
constexpr NpyTypeName kNpyTypes[] = {{"<f4", NpyType::kF4, 4},
                                     {"<f8", NpyType::kF8, 8},
                                     {"<i4", NpyType::kI4, 4},
                                     {"<i8", NpyType::kI8, 8},
                                     {"|u1", NpyType::kU1, 1}};

Error npy_error(const std::string& path, const std::string& what) {
  return Error{fmt::format("data file {}: {}", path, what)};
}

/// The header's text; `info` gets the path and the header's length.
Result<std::string> read_npy_header(const std::string& path, std::size_t file_bytes, NpyInfo& info) {
  std::ifstream file(path, std::ios::binary);
  std::string prefix(std::min(file_bytes, kNpyPrefixBytes), '\0');
  file.read(prefix.data(), static_cast<std::streamsize>(prefix.size()));
  if (!file) return system_error("cannot read data file " + path);
  if (prefix.substr(0, kNpyMagic.size()) != kNpyMagic)
    return npy_error(path, "not .npy: it does not begin with \\x93NUMPY");
  const auto byte = [&](std::size_t at) { return std::size_t{static_cast<unsigned char>(prefix[at])}; };
  if (prefix.size() < kNpyPrefixBytes) return npy_error(path, "truncated in its header");
  const std::size_t version = byte(6);
  if (version != 1 && version != 2) return npy_error(path, fmt::format("version {}, expected 1 or 2", version));
  std::size_t length = byte(8) | byte(9) << 8;
  if (version == 2) length |= byte(10) << 16 | byte(11) << 24;
  if (length > kNpyHeaderBytesMax)
    return npy_error(path, fmt::format("its header has {} bytes, at most {}", length, kNpyHeaderBytesMax));
  const std::size_t begin = version == 1 ? kNpyPrefixBytes - 2 : kNpyPrefixBytes;
  info.path = path;
  info.header_bytes = begin + length;
  if (info.header_bytes > file_bytes) return npy_error(path, "truncated in its header");
  std::string header(length, '\0');
  file.seekg(static_cast<std::streamoff>(begin));
  file.read(header.data(), static_cast<std::streamsize>(length));
  if (!file) return system_error("cannot read data file " + path);
  return header;
}

/// The dimensions, against the bytes that are there.
Status check_shape(const NpyInfo& info, std::size_t file_bytes) {
  if (info.shape.empty()) return npy_error(info.path, "one number, expected an array of samples");
  if (info.shape.size() > kNpyDimensionsMax)
    return npy_error(info.path, fmt::format("{} dimensions, at most {}", info.shape.size(), kNpyDimensionsMax));
  const std::size_t payload = file_bytes - info.header_bytes;
  std::size_t asked = info.item_bytes;
  for (std::size_t i = 0; i < info.shape.size(); ++i) {
    const auto size = static_cast<std::size_t>(info.shape[i]);
    if (size == 0) return npy_error(info.path, fmt::format("it holds nothing: dimension {} is 0", i));
    if (asked > payload / size)
      return npy_error(info.path,
                       fmt::format("truncated: its shape asks for more than the {} bytes behind its header", payload));
    asked *= size;
  }
  if (asked != payload)
    return npy_error(info.path,
                     fmt::format("too long: its shape asks for {} bytes, {} are behind its header", asked, payload));
  return check_sample_count("data file " + info.path, info.shape.front());
}

}  // namespace

std::int64_t NpyInfo::sample_numbers() const {
  std::int64_t count = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) count *= shape[i];
  return count;
}

Result<NpyInfo> inspect_npy(const std::string& path) {
  const Result<std::size_t> bytes = data_file_bytes(path);
  if (!bytes) return bytes.error();
  NpyInfo info;
  const Result<std::string> header = read_npy_header(path, bytes.value(), info);
  if (!header) return header.error();
  NpyHeaderText text(header.value());
  NpyFields fields;
  const std::string expected = read_fields(text, fields);
  if (!expected.empty())
    return npy_error(path, fmt::format("byte {} of its header's text: expected {}", text.at(), expected));
  const auto* type = std::find_if(std::begin(kNpyTypes), std::end(kNpyTypes),
                                  [&](const NpyTypeName& known) { return known.name == *fields.descr; });
  if (type == std::end(kNpyTypes))
    return npy_error(path, fmt::format("numbers of type '{}', expected '<f4', '<f8', '<i4', '<i8' or '|u1': convert it "
                                       "with array.astype('<f4')",
                                       *fields.descr));
  if (*fields.fortran_order)
    return npy_error(path, "in Fortran order, expected C order: save numpy.ascontiguousarray(array)");
  info.type = type->type;
  info.item_bytes = type->bytes;
  info.shape = *fields.shape;
  const Status fits = check_shape(info, bytes.value());
  if (!fits) return fits.error();
  return info;
}

Result<NpyPair> inspect_npy_pair(const std::string& features, const std::string& target, bool classes) {
  Result<NpyInfo> first = inspect_npy(features);
  if (!first) return first.error();
  Result<NpyInfo> second = inspect_npy(target);
  if (!second) return second.error();
  NpyPair pair{std::move(first).value(), std::move(second).value()};
  if (pair.features.shape[0] != pair.target.shape[0])
    return Error{fmt::format("{} samples in {}, {} targets in {}: the counts differ", pair.features.shape[0], features,
                             pair.target.shape[0], target)};
  if (classes && !pair.target.is_integer())
    return npy_error(target,
                     "floating-point numbers, expected integers: classes are learnt (for numbers set "
                     "training.dataset.targets to \"numbers\")");
  if (classes && pair.target.sample_numbers() != 1)
    return npy_error(target, fmt::format("{} numbers a sample, expected 1: its class", pair.target.sample_numbers()));
  return pair;
}

}  // namespace sgd::data
