#pragma once
// Rows of CSV files as samples. One pass when they are opened checks every row and keeps where each sample's begins
// (8 bytes a row); a batch reads its rows there, so samples come in any order from files larger than the memory. The
// files are mapped, and the pass gives their pages back as it goes.
//
// Every row has as many fields as the header. In the rows that the filter takes features and target are numbers, and
// none is missing. Where the job does not say which columns are features, files have the same, by name, and their order
// is that of the first file. Errors name file and line.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/data/csv_columns.hpp"
#include "common/data/csv_record.hpp"
#include "worker/core/mapped_file.hpp"
#include "worker/data/sample_reader.hpp"

namespace sgd::worker {

class CsvDataset final : public SampleReader {
 public:
  /// `outputs`: classes that the model knows; only used where the target is a class.
  static ReaderResult open(const std::vector<std::string>& files, const data::CsvSettings& settings,
                           std::int64_t outputs);

  [[nodiscard]] std::int64_t count() const override { return static_cast<std::int64_t>(offsets_.size()); }
  [[nodiscard]] const std::vector<std::int64_t>& sample_shape() const override { return shape_; }
  [[nodiscard]] std::int64_t target_numbers() const override { return settings_.has_classes ? 0 : 1; }
  Status gather(std::span<const std::int64_t> indices, float* features, const TargetMemory& targets) const override;

 private:
  struct File {
    std::string path;
    MappedFile bytes;
    data::CsvColumns columns;
    std::int64_t first = 0;  ///< Number of its first sample.
    [[nodiscard]] std::string_view text() const;
  };
  /// Where the numbers of a row go.
  struct Sample {
    float* features;
    std::int64_t* target_class;
    float* target_number;
  };

  CsvDataset(data::CsvSettings settings, std::int64_t classes);
  Status add_file(const std::string& path);
  /// Every row from `at` on, which is in line `line`.
  Status index_rows(const File& file, std::size_t at, std::size_t line);
  /// What is wrong with a row; nothing when it has been written.
  Status write_sample(const data::CsvColumns& columns, const data::CsvRecord& record, const Sample& sample) const;
  Result<bool> is_taken(const data::CsvColumns& columns, const data::CsvRecord& record) const;

  data::CsvSettings settings_;
  std::int64_t classes_;
  std::vector<File> files_;
  std::vector<std::uint64_t> offsets_;
  std::vector<std::int64_t> shape_;
};

}  // namespace sgd::worker
