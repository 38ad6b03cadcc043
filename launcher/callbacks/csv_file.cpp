#include "launcher/callbacks/csv_file.hpp"

#include <utility>

#include <fmt/format.h>

#include "common/json/lenient.hpp"

namespace sgd::callbacks {
namespace {

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string csv_cell(const Report& value) {
  if (value.is_null()) return "";
  return csv_cell(value.is_string() ? value.get<std::string>() : dump_text(value));
}

}  // namespace

CsvFile::CsvFile(std::string path, const nlohmann::json& callback) : path_(std::move(path)), filter_(callback) {}

Result<std::int64_t> CsvFile::begin() {
  file_.reset();
  rows_.clear();
  for (const std::string& column : columns_) rows_ += (rows_.empty() ? "" : ",") + csv_cell(column);
  if (!columns_.empty()) rows_ += "\n";
  auto made = FreshFile::create(path_);
  if (!made) return made.error();
  file_.emplace(std::move(made).value());
  return std::int64_t{0};
}

Result<Taken> CsvFile::add(const Report& report) {
  const Report chosen = filter_.of(single_result(report));
  const auto values = flat_values(chosen);
  const std::size_t before = columns_.size();
  for (const auto& [name, value] : values) {
    if (places_.contains(name)) continue;
    if (columns_.size() >= kColumnsMax) {
      is_narrow_ = true;
      continue;
    }
    places_[name] = columns_.size();
    columns_.push_back(name);
  }
  if (columns_.size() != before) return Taken::kAgain;
  std::vector<std::string> cells(columns_.size());
  for (const auto& [name, value] : values)
    if (const auto place = places_.find(name); place != places_.end()) cells[place->second] = csv_cell(*value);
  for (std::size_t index = 0; index < cells.size(); ++index) rows_ += (index == 0 ? "" : ",") + cells[index];
  rows_ += "\n";
  if (rows_.size() < kHeldRowsBytesMax) return Taken::kYes;
  if (const Status written = write_rows(); !written) return written.error();
  return Taken::kYes;
}

Status CsvFile::write_rows() {
  const Status written = file_->append(rows_);
  if (written) rows_.clear();
  return written;
}

Status CsvFile::flush() {
  if (const Status written = write_rows(); !written) return written;
  return file_->publish();
}

std::string CsvFile::left_out() const {
  return is_narrow_ ? fmt::format("there are more than {} metrics; the first ones have columns", kColumnsMax)
                    : std::string();
}

}  // namespace sgd::callbacks
