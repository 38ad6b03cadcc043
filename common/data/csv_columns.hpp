#pragma once
// Which columns of a CSV file a job takes, and which rows: settings from the job, columns from a file's first record.
// Names are found in the header; numbers count from 0.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"

namespace sgd::data {

struct CsvColumn {
  std::string name;          ///< When it is asked for by name.
  std::int64_t number = -1;  ///< Else from 0.
};

/// Rows that are taken: column op value.
struct CsvFilter {
  CsvColumn column;
  std::string op;                ///< "==", "!=", "<", "<=", ">" or ">=".
  std::optional<double> number;  ///< Else the text is compared.
  std::string text;
};

struct CsvSettings {
  char separator = ',';
  bool has_header = true;
  std::vector<CsvColumn> features;  ///< Empty: all but the target.
  std::vector<std::string> order;   ///< Names of all those, as another file has them: taken in this order. Or empty.
  CsvColumn target;
  bool has_classes = true;  ///< The target is a class, else a number.
  std::optional<CsvFilter> filter;
};
/// From "training.dataset" of type "csv", complete.
[[nodiscard]] CsvSettings csv_settings(const nlohmann::json& dataset);

/// The columns of one file, as places in its records.
struct CsvColumns {
  std::size_t count = 0;  ///< Fields of every record.
  std::vector<std::size_t> features;
  std::size_t target = 0;
  std::size_t filter = 0;          ///< When there is one.
  std::vector<std::string> names;  ///< Empty without a header.
  /// For messages: "age", or column 3.
  [[nodiscard]] std::string name_of(std::size_t column) const;
};
[[nodiscard]] Result<CsvColumns> csv_columns(const CsvSettings& settings, const std::vector<std::string_view>& first);

/// The `order` for further files of the same columns: empty where the job itself says which are taken, or a file has no
/// names.
[[nodiscard]] std::vector<std::string> csv_order(const CsvSettings& settings, const CsvColumns& columns);

/// By the first records of a file; nothing behind them is looked at.
[[nodiscard]] Result<CsvColumns> inspect_csv(const std::string& path, const CsvSettings& settings);

/// "data file x.csv:12: what".
[[nodiscard]] Error csv_error(const std::string& path, std::size_t line, const std::string& what);

/// A file's text without a byte order mark.
[[nodiscard]] std::size_t csv_begin(std::string_view text);

}  // namespace sgd::data
