#include "worker/core/idx_dataset.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "common/data/idx.hpp"
#include "worker/core/label_error.hpp"
#include "worker/core/scale_bytes.hpp"
#include "worker/core/unpack_cache.hpp"

namespace sgd::worker {
namespace {

struct MappedIdx {
  MappedFile file;
  std::span<const std::uint8_t> payload;
};

Result<MappedIdx> map_idx(const data::IdxInfo& info) {
  std::string path = info.path;
  const std::size_t file_bytes = info.header_bytes + info.payload_bytes;
  if (info.compressed) {
    Result<std::string> unpacked = unpacked_file(path, file_bytes);
    if (!unpacked) return unpacked.error();
    path = std::move(unpacked).value();
  }
  Result<MappedFile> file = MappedFile::open(path);
  if (!file) return file.error();
  const std::span<const std::byte> bytes = file.value().bytes();
  if (bytes.size() != file_bytes) {  // It was whole when its header was checked.
    return Error{fmt::format("{}: {} bytes where its header says {}", path, bytes.size(), file_bytes), 0};
  }
  const auto* payload = reinterpret_cast<const std::uint8_t*>(bytes.data()) + info.header_bytes;
  return MappedIdx{std::move(file).value(), {payload, info.payload_bytes}};
}

Status check_labels(const std::string& path, std::span<const std::uint8_t> labels, std::int64_t outputs) {
  const auto found =
      std::find_if(labels.begin(), labels.end(), [outputs](std::uint8_t label) { return label >= outputs; });
  if (found == labels.end()) return {};
  return label_error(path, *found, "sample", found - labels.begin(), outputs);
}

}  // namespace

Result<IdxDataset> IdxDataset::open(const std::string& dir, Split split, std::int64_t outputs) {
  const auto files = data::find_idx(dir, split == Split::kTrain ? data::IdxSplit::kTrain : data::IdxSplit::kValidate);
  if (!files) return files.error();
  Result<MappedIdx> images = map_idx(files.value().images);
  if (!images) return images.error();
  Result<MappedIdx> labels = map_idx(files.value().labels);
  if (!labels) return labels.error();
  const Status checked = check_labels(files.value().labels.path, labels.value().payload, outputs);
  if (!checked) return checked.error();

  IdxDataset dataset;
  const std::vector<std::uint32_t>& dims = files.value().images.dims;
  dataset.count_ = dims.front();
  dataset.sample_shape_.assign(dims.begin() + 1, dims.end());
  dataset.images_ = images.value().payload;
  dataset.labels_ = labels.value().payload;
  dataset.sample_bytes_ = static_cast<std::int64_t>(dataset.images_.size()) / dataset.count_;
  SGD_ASSERT(static_cast<std::int64_t>(dataset.labels_.size()) == dataset.count_);
  dataset.image_file_ = std::make_shared<const MappedFile>(std::move(images).value().file);
  dataset.label_file_ = std::make_shared<const MappedFile>(std::move(labels).value().file);
  return dataset;
}

void IdxDataset::gather_images(std::span<const std::int64_t> indices, float* out) const {
  constexpr std::size_t rows_ahead = 2;
  const auto bytes = static_cast<std::size_t>(sample_bytes_);
  const auto row = [&](std::size_t i) {
    SGD_ASSERT(indices[i] >= 0 && indices[i] < count_);
    return images_.data() + static_cast<std::size_t>(indices[i]) * bytes;
  };
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (i + rows_ahead < indices.size()) prefetch_row(row(i + rows_ahead), bytes);
    scale_bytes(row(i), out + i * bytes, bytes);
  }
}

void IdxDataset::gather_labels(std::span<const std::int64_t> indices, std::int64_t* out) const {
  for (std::size_t i = 0; i < indices.size(); ++i) {
    SGD_ASSERT(indices[i] >= 0 && indices[i] < count_);
    out[i] = labels_[static_cast<std::size_t>(indices[i])];
  }
}

}  // namespace sgd::worker
