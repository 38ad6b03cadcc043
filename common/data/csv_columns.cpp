#include "common/data/csv_columns.hpp"

#include <algorithm>
#include <fstream>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "common/data/csv_record.hpp"
#include "common/data/file_list.hpp"
#include "common/json/lenient.hpp"
#include "common/json/suggest.hpp"
#include "common/json/words.hpp"

namespace sgd::data {
namespace {

CsvColumn column_of(const nlohmann::json& value) {
  CsvColumn column;
  if (value.is_string()) column.name = value.get<std::string>();
  if (value.is_number_integer()) column.number = value.get<std::int64_t>();
  return column;
}

/// The place of a column that a job asks for.
Result<std::size_t> place_of(const CsvColumn& column, const CsvColumns& columns) {
  if (column.number >= 0) {
    if (static_cast<std::size_t>(column.number) < columns.count) return static_cast<std::size_t>(column.number);
    return Error{fmt::format("{} columns, expected one with number {} (the first is 0)", columns.count, column.number)};
  }
  const auto found = std::find(columns.names.begin(), columns.names.end(), column.name);
  if (found != columns.names.end()) {
    if (std::find(found + 1, columns.names.end(), column.name) == columns.names.end())
      return static_cast<std::size_t>(found - columns.names.begin());
    return Error{fmt::format("two columns are named {}: ask for one by its number", json::quote(column.name))};
  }
  const auto near = json::nearest(column.name, columns.names);
  return Error{fmt::format("no column {} in its header{}", json::quote(column.name),
                           near ? fmt::format("; did you mean {}?", json::quote(*near)) : "")};
}

std::vector<std::string> feature_names(const CsvColumns& columns) {
  std::vector<std::string> names;
  for (const std::size_t column : columns.features) names.push_back(columns.names[column]);
  return names;
}

/// The first of `names` that is not among `others`.
std::optional<std::string> missing_in(const std::vector<std::string>& others, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (std::find(others.begin(), others.end(), name) == others.end()) return name;
  return std::nullopt;
}

std::optional<std::string> repeated(const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (std::count(names.begin(), names.end(), name) > 1) return name;
  return std::nullopt;
}

/// The features as `order` has them, which are the same ones.
Status put_in_order(const std::vector<std::string>& order, CsvColumns& columns) {
  const std::vector<std::string> own = feature_names(columns);
  if (own == order) return {};
  if (const auto name = missing_in(order, own))
    return Error{fmt::format("a column {} in its header, which the first file does not have", json::quote(*name))};
  if (const auto name = missing_in(own, order))
    return Error{fmt::format("no column {} in its header, which the first file has", json::quote(*name))};
  for (const auto& names : {own, order})
    if (const auto name = repeated(names))
      return Error{
          fmt::format("two columns are named {}, and its header is not that of the first file", json::quote(*name))};
  std::vector<std::size_t> ordered;
  for (const std::string& name : order)
    ordered.push_back(
        columns.features[static_cast<std::size_t>(std::find(own.begin(), own.end(), name) - own.begin())]);
  columns.features = std::move(ordered);
  return {};
}

Status find_features(const CsvSettings& settings, CsvColumns& columns) {
  for (const CsvColumn& feature : settings.features) {
    const Result<std::size_t> place = place_of(feature, columns);
    if (!place) return place.error();
    if (place.value() == columns.target)
      return Error{fmt::format("{} is a feature and the target: a model would learn to copy it",
                               columns.name_of(place.value()))};
    columns.features.push_back(place.value());
  }
  if (!settings.features.empty()) return {};
  for (std::size_t i = 0; i < columns.count; ++i) {
    if (i != columns.target) columns.features.push_back(i);
  }
  if (columns.features.empty()) return Error{"one column, expected features beside the target"};
  if (settings.order.empty() || !settings.has_header) return {};
  return put_in_order(settings.order, columns);
}

}  // namespace

std::string CsvColumns::name_of(std::size_t column) const {
  return column < names.size() ? json::quote(names[column]) : fmt::format("column {}", column);
}

CsvSettings csv_settings(const nlohmann::json& dataset) {
  CsvSettings settings;
  settings.separator = read_or(dataset, "separator", ",").front();
  settings.has_header = read_or(dataset, "header", true);
  settings.has_classes = read_or(dataset, "targets", "classes") == "classes";
  const nlohmann::json& columns = member(dataset, "columns");
  for (const auto& feature : member(columns, "features")) settings.features.push_back(column_of(feature));
  settings.target = column_of(member(columns, "target"));
  const nlohmann::json& filter = member(dataset, "filter");
  if (!filter.is_object()) return settings;
  CsvFilter& made = settings.filter.emplace();
  made.column = column_of(member(filter, "column"));
  made.op = read_or(filter, "op", "==");
  made.text = read_or(filter, "value", "");
  if (member(filter, "value").is_number()) made.number = member(filter, "value").get<double>();
  return settings;
}

Result<CsvColumns> csv_columns(const CsvSettings& settings, const std::vector<std::string_view>& first) {
  CsvColumns columns;
  columns.count = first.size();
  if (settings.has_header) {
    for (const std::string_view name : first) columns.names.emplace_back(csv_trimmed(name));
  }
  const Result<std::size_t> target = place_of(settings.target, columns);
  if (!target) return target.error();
  columns.target = target.value();
  if (settings.filter) {
    const Result<std::size_t> filter = place_of(settings.filter->column, columns);
    if (!filter) return filter.error();
    columns.filter = filter.value();
  }
  const Status features = find_features(settings, columns);
  if (!features) return features.error();
  return columns;
}

std::vector<std::string> csv_order(const CsvSettings& settings, const CsvColumns& columns) {
  if (!settings.has_header || !settings.features.empty()) return {};
  return feature_names(columns);
}

Result<CsvColumns> inspect_csv(const std::string& path, const CsvSettings& settings) {
  std::string text(kCsvRecordBytesMax, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file) return system_error("data file " + path);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  const std::string_view front = std::string_view(text).substr(csv_begin(text));
  if (front.empty()) return Error{fmt::format("data file {} is empty", path)};
  CsvRecord record(settings.separator);
  const Result<std::size_t> read = record.read(front);
  if (!read) return csv_error(path, 1, read.error().message);
  Result<CsvColumns> columns = csv_columns(settings, record.fields());
  if (!columns) return csv_error(path, 1, columns.error().message);
  return columns;
}

Error csv_error(const std::string& path, std::size_t line, const std::string& what) {
  return Error{fmt::format("data file {}:{}: {}", path, line, what)};
}

std::size_t csv_begin(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  return text.substr(0, kByteOrderMark.size()) == kByteOrderMark ? kByteOrderMark.size() : 0;
}

}  // namespace sgd::data
