#pragma once
// A CSV file of a run's reports (RFC 4180): a row each, a column for every metric that any of them has, in the order in
// which they came up. A new column makes the file anew; what a report has not is empty. It is also made anew when a
// process begins with it. Rows are written whole.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/callbacks/fresh_file.hpp"
#include "launcher/callbacks/sink.hpp"

namespace sgd::callbacks {

class CsvFile : public Sink {
 public:
  /// A rank that reports under ever new names makes no file of any width.
  static constexpr std::size_t kColumnsMax = 1024;
  static constexpr std::size_t kHeldRowsBytesMax = 1 << 20;

  CsvFile(std::string path, const nlohmann::json& callback);

  [[nodiscard]] Result<std::int64_t> begin() override;
  [[nodiscard]] Result<Taken> add(const Report& report) override;
  [[nodiscard]] Status flush() override;
  [[nodiscard]] std::string place() const override { return path_; }
  [[nodiscard]] std::string left_out() const override;

 private:
  [[nodiscard]] Status write_rows();

  std::string path_;
  NameFilter filter_;
  std::vector<std::string> columns_;
  std::map<std::string, std::size_t> places_;  ///< Of columns_.
  bool is_narrow_ = false;                     ///< Metrics have no column: there are too many.
  std::optional<FreshFile> file_;
  std::string rows_;  ///< Added, and not written.
};

}  // namespace sgd::callbacks
