#include "worker/data/cifar_dataset.hpp"

#include <algorithm>
#include <utility>

#include "common/base/assert.hpp"
#include "common/data/file_list.hpp"
#include "worker/core/label_error.hpp"
#include "worker/core/scale_bytes.hpp"

namespace sgd::worker {

Result<CifarDataset> CifarDataset::open(const std::vector<std::string>& files, const data::CifarLayout& layout,
                                        std::int64_t outputs) {
  CifarDataset dataset;
  dataset.layout_ = layout;
  const std::int64_t classes = std::min(layout.classes, outputs);
  for (const std::string& path : files) {
    const Result<std::int64_t> records = data::inspect_cifar(path, layout);
    if (!records) return records.error();
    Result<MappedFile> mapped = MappedFile::open(path);
    if (!mapped) return mapped.error();
    const auto file = std::make_shared<const MappedFile>(std::move(mapped).value());
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(file->bytes().data());
    const auto held = static_cast<std::int64_t>(file->bytes().size() / layout.record_bytes());
    for (std::int64_t i = 0; i < std::min(held, records.value()); ++i) {
      const std::uint8_t* record = bytes + static_cast<std::size_t>(i) * layout.record_bytes();
      if (record[layout.label_at] >= classes) return label_error(path, record[layout.label_at], "record", i, classes);
      dataset.records_.push_back(record);
    }
    dataset.files_.push_back(file);
  }
  const Status count = data::check_sample_count("the data set", dataset.count());
  if (!count) return count.error();
  return dataset;
}

const std::uint8_t* CifarDataset::record(std::int64_t index) const {
  SGD_ASSERT(index >= 0 && index < count());
  return records_[static_cast<std::size_t>(index)];
}

void CifarDataset::gather_images(std::span<const std::int64_t> indices, float* out) const {
  constexpr std::size_t rows_ahead = 2;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (i + rows_ahead < indices.size()) prefetch_row(image(indices[i + rows_ahead]), data::kCifarImageBytes);
    scale_bytes(image(indices[i]), out + i * data::kCifarImageBytes, data::kCifarImageBytes);
  }
}

void CifarDataset::gather_labels(std::span<const std::int64_t> indices, std::int64_t* out) const {
  for (std::size_t i = 0; i < indices.size(); ++i) out[i] = label(indices[i]);
}

}  // namespace sgd::worker
