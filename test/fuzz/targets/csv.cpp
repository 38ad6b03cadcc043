// A CSV file, behind a byte of settings: what is accepted can be read again, row by row and in any order.

#include "worker/data/csv_dataset.hpp"

#include <cmath>

#include "test/fuzz/memory_file.hpp"

namespace {

sgd::data::CsvSettings settings_of(std::uint8_t bits) {
  sgd::data::CsvSettings settings;
  settings.separator = (bits & 1) != 0 ? ';' : ',';
  settings.has_header = (bits & 2) == 0;
  settings.has_classes = (bits & 4) != 0;
  settings.target.number = (bits & 8) != 0 ? 1 : 0;
  if ((bits & 16) != 0) settings.filter = sgd::data::CsvFilter{{"", 0}, ">=", 1.0, ""};
  if ((bits & 32) != 0) settings.target = {"y", -1};
  return settings;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  static sgd::fuzz::MemoryFile file;
  const std::string& path = file.hold(data + 1, size - 1);
  const sgd::data::CsvSettings settings = settings_of(data[0]);
  constexpr std::int64_t kClasses = 10;
  const sgd::fuzz::MemoryBound bound(size, 256);
  const sgd::worker::ReaderResult opened = sgd::worker::CsvDataset::open({path}, settings, kClasses);
  if (!opened.ok()) return 0;
  const sgd::worker::SampleReader& rows = *opened.value();
  FUZZ_CHECK(rows.count() > 0 && rows.count() <= static_cast<std::int64_t>(size));
  std::vector<float> features(static_cast<std::size_t>(rows.sample_shape().front()));
  for (std::int64_t i = rows.count() - 1; i >= 0; --i) {
    std::int64_t label = -1;
    float number = 0;
    FUZZ_CHECK(rows.gather({&i, 1}, features.data(), {&label, &number}).ok());
    for (const float feature : features) FUZZ_CHECK(std::isfinite(feature));
    FUZZ_CHECK(settings.has_classes ? label >= 0 && label < kClasses : std::isfinite(number));
  }
  return 0;
}
