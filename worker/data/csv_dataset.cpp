#include "worker/data/csv_dataset.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "common/data/file_list.hpp"
#include "common/json/words.hpp"

namespace sgd::worker {
namespace {

constexpr std::size_t kWindowBytes = std::size_t{16} << 20;  // Pages of a pass that are in memory at once.

template <class Value>
bool compares(const Value& left, const std::string& op, const Value& right) {
  if (op == "==") return left == right;
  if (op == "!=") return left != right;
  if (op == "<") return left < right;
  if (op == "<=") return left <= right;
  return op == ">" ? left > right : left >= right;
}

/// "\"age\" is missing, expected a number".
Error field_error(const std::string& column, std::string_view field, const char* expected) {
  if (data::csv_trimmed(field).empty()) return Error{fmt::format("{} is missing, expected {}", column, expected)};
  return Error{fmt::format("{} is {}, expected {}", column, json::quote(field), expected)};
}

/// Reads the record at the front of `text`.
Result<std::size_t> read_record(data::CsvRecord& record, std::string_view text) {
  const std::string_view window = text.substr(0, data::kCsvRecordBytesMax);
  Result<std::size_t> read = record.read(window);
  if (window.size() == text.size() || (read && window[read.value() - 1] == '\n')) return read;
  return Error{fmt::format("a row of more than {} bytes: is a quote not closed?", data::kCsvRecordBytesMax)};
}

bool is_float(double value) {
  return std::abs(value) <= static_cast<double>(std::numeric_limits<float>::max());
}

}  // namespace

std::string_view CsvDataset::File::text() const {
  return {reinterpret_cast<const char*>(bytes.bytes().data()), bytes.bytes().size()};
}

CsvDataset::CsvDataset(data::CsvSettings settings, std::int64_t classes)
    : settings_(std::move(settings)), classes_(classes) {}

ReaderResult CsvDataset::open(const std::vector<std::string>& files, const data::CsvSettings& settings,
                              std::int64_t outputs) {
  std::unique_ptr<CsvDataset> dataset(new CsvDataset(settings, outputs));
  for (const std::string& path : files) {
    const Status added = dataset->add_file(path);
    if (!added) return added.error();
  }
  dataset->offsets_.shrink_to_fit();
  if (dataset->offsets_.empty())
    return Error{fmt::format("data file {}: no row is taken, expected at least one", files.front())};
  const Status count = data::check_sample_count("the data set", dataset->count());
  if (!count) return count.error();
  return std::unique_ptr<const SampleReader>(std::move(dataset));
}

Status CsvDataset::add_file(const std::string& path) {
  Result<MappedFile> bytes = MappedFile::open(path);
  if (!bytes) return bytes.error();
  File file{path, std::move(bytes).value(), {}, count()};
  const std::size_t begin = data::csv_begin(file.text());
  if (begin == file.text().size()) return Error{fmt::format("data file {} is empty", path)};
  data::CsvRecord record(settings_.separator);
  const Result<std::size_t> read = read_record(record, file.text().substr(begin));
  if (!read) return data::csv_error(path, 1, read.error().message);
  Result<data::CsvColumns> columns = data::csv_columns(settings_, record.fields());
  if (!columns) return data::csv_error(path, 1, columns.error().message);
  file.columns = std::move(columns).value();
  const auto features = static_cast<std::int64_t>(file.columns.features.size());
  if (shape_.empty()) shape_ = {features};
  if (shape_.front() != features)
    return data::csv_error(path, 1,
                           fmt::format("{} features, and {} has {}", features, files_.front().path, shape_[0]));
  if (settings_.order.empty()) settings_.order = data::csv_order(settings_, file.columns);
  const bool is_row = !settings_.has_header;
  const Status rows = index_rows(file, is_row ? begin : begin + read.value(), is_row ? 1 : 1 + record.lines());
  if (!rows) return rows;
  files_.push_back(std::move(file));
  return {};
}

Status CsvDataset::index_rows(const File& file, std::size_t at, std::size_t line) {
  const std::string_view text = file.text();
  data::CsvRecord record(settings_.separator);
  std::vector<float> features(file.columns.features.size());
  std::int64_t target_class = 0;
  float target_number = 0;
  std::size_t kept_from = 0;
  while (at < text.size()) {
    if (text.find_first_not_of("\r\n", at) == std::string_view::npos) break;  // Empty lines at the end.
    const Result<std::size_t> read = read_record(record, text.substr(at));
    if (!read) return data::csv_error(file.path, line, read.error().message);
    if (record.fields().size() != file.columns.count)
      return data::csv_error(file.path, line,
                             fmt::format("{} field{}, expected {}", record.fields().size(),
                                         record.fields().size() == 1 ? "" : "s", file.columns.count));
    const Result<bool> taken = is_taken(file.columns, record);
    if (!taken) return data::csv_error(file.path, line, taken.error().message);
    if (taken.value()) {
      const Status sample = write_sample(file.columns, record, {features.data(), &target_class, &target_number});
      if (!sample) return data::csv_error(file.path, line, sample.error().message);
      offsets_.push_back(at);
    }
    at += read.value();
    line += record.lines();
    if (at - kept_from < kWindowBytes) continue;
    file.bytes.forget(kept_from, at);
    kept_from = at;
  }
  return {};
}

Result<bool> CsvDataset::is_taken(const data::CsvColumns& columns, const data::CsvRecord& record) const {
  if (!settings_.filter) return true;
  const data::CsvFilter& filter = *settings_.filter;
  const std::string_view field = record.fields()[columns.filter];
  if (!filter.number) return compares<std::string_view>(data::csv_trimmed(field), filter.op, filter.text);
  const std::optional<double> number = data::csv_number(field);
  if (!number) return field_error(columns.name_of(columns.filter), field, "a number to compare");
  return compares(*number, filter.op, *filter.number);
}

Status CsvDataset::write_sample(const data::CsvColumns& columns, const data::CsvRecord& record,
                                const Sample& sample) const {
  float* out = sample.features;
  for (const std::size_t column : columns.features) {
    const std::optional<double> number = data::csv_number(record.fields()[column]);
    if (!number || !is_float(*number))
      return field_error(columns.name_of(column), record.fields()[column], "a number that float32 can hold");
    *out++ = static_cast<float>(*number);
  }
  const std::string_view field = record.fields()[columns.target];
  if (!settings_.has_classes) {
    const std::optional<double> number = data::csv_number(field);
    if (!number || !is_float(*number))
      return field_error(columns.name_of(columns.target), field, "a number that float32 can hold");
    *sample.target_number = static_cast<float>(*number);
    return {};
  }
  const std::optional<std::int64_t> label = data::csv_integer(field);
  if (!label) return field_error(columns.name_of(columns.target), field, "a class, as an integer");
  if (*label < 0 || *label >= classes_)
    return Error{fmt::format("{} is {}, expected 0..{}, what the model gives outputs for",
                             columns.name_of(columns.target), *label, classes_ - 1)};
  *sample.target_class = *label;
  return {};
}

Status CsvDataset::gather(std::span<const std::int64_t> indices, float* features, const TargetMemory& targets) const {
  data::CsvRecord record(settings_.separator);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    SGD_ASSERT(indices[i] >= 0 && indices[i] < count());
    const auto behind = std::upper_bound(files_.begin(), files_.end(), indices[i],
                                         [](std::int64_t number, const File& file) { return number < file.first; });
    const File& file = *(behind - 1);
    const std::uint64_t offset = offsets_[static_cast<std::size_t>(indices[i])];
    const Result<std::size_t> read = read_record(record, file.text().substr(offset));
    const Sample sample{features, targets.classes == nullptr ? nullptr : targets.classes + i,
                        targets.numbers == nullptr ? nullptr : targets.numbers + i};
    const bool is_whole = read && record.fields().size() == file.columns.count;
    if (!is_whole || !write_sample(file.columns, record, sample))
      return Error{fmt::format("data file {} has changed since it was opened: its row at byte {} is another", file.path,
                               offset)};
    features += shape_.front();
  }
  return {};
}

}  // namespace sgd::worker
