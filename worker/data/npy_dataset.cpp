#include "worker/data/npy_dataset.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "worker/core/label_error.hpp"

namespace sgd::worker {
namespace {

/// Elements lie where the header ends, which need not be a multiple of their size.
template <class From, class To>
void convert(const std::byte* from, To* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + static_cast<std::size_t>(i) * sizeof(From), sizeof(From));
    to[i] = static_cast<To>(value);
  }
}

template <class To>
void convert(data::NpyType type, const std::byte* from, To* to, std::int64_t count) {
  switch (type) {
    case data::NpyType::kF4:
      return convert<float>(from, to, count);
    case data::NpyType::kF8:
      return convert<double>(from, to, count);
    case data::NpyType::kI4:
      return convert<std::int32_t>(from, to, count);
    case data::NpyType::kI8:
      return convert<std::int64_t>(from, to, count);
    case data::NpyType::kU1:
      return convert<std::uint8_t>(from, to, count);
  }
}

Status check_classes(const NpyArray& target, std::int64_t classes) {
  constexpr std::int64_t at_once = 1024;
  std::array<std::int64_t, at_once> rows{};
  std::array<std::int64_t, at_once> labels{};
  for (std::int64_t begin = 0; begin < target.rows(); begin += at_once) {
    const auto count = static_cast<std::size_t>(std::min(at_once, target.rows() - begin));
    std::iota(rows.begin(), rows.end(), begin);
    target.gather_integers(std::span(rows).first(count), labels.data());
    for (std::size_t i = 0; i < count; ++i) {
      if (labels[i] < 0 || labels[i] >= classes)
        return label_error(target.info().path, labels[i], "sample", rows[i], classes);
    }
  }
  return {};
}

}  // namespace

NpyArray::NpyArray(const data::NpyInfo& info, MappedFile file)
    : info_(info), file_(std::move(file)), row_numbers_(info.sample_numbers()) {}

Result<NpyArray> NpyArray::open(const data::NpyInfo& info) {
  Result<MappedFile> file = MappedFile::open(info.path);
  if (!file) return file.error();
  const std::size_t wanted = info.header_bytes + static_cast<std::size_t>(info.shape.front()) *
                                                     static_cast<std::size_t>(info.sample_numbers()) * info.item_bytes;
  const std::size_t bytes = file.value().bytes().size();
  if (bytes != wanted) {  // It was whole when its header was checked.
    return Error{fmt::format("data file {}: {} bytes where its header says {}", info.path, bytes, wanted)};
  }
  return NpyArray(info, std::move(file).value());
}

const std::byte* NpyArray::row(std::int64_t index) const {
  SGD_ASSERT(index >= 0 && index < rows());
  return file_.bytes().data() + info_.header_bytes + static_cast<std::size_t>(index * row_numbers_) * info_.item_bytes;
}

void NpyArray::gather(std::span<const std::int64_t> rows, float* out) const {
  for (const std::int64_t index : rows) {
    convert(info_.type, row(index), out, row_numbers_);
    out += row_numbers_;
  }
}

void NpyArray::gather_integers(std::span<const std::int64_t> rows, std::int64_t* out) const {
  SGD_ASSERT(info_.is_integer());
  for (const std::int64_t index : rows) convert(info_.type, row(index), out++, 1);
}

NpyDataset::NpyDataset(NpyArray features, NpyArray target, bool has_classes)
    : features_(std::move(features)),
      target_(std::move(target)),
      shape_(features_.info().shape.begin() + 1, features_.info().shape.end()),
      target_numbers_(has_classes ? 0 : target_.row_numbers()) {
  if (shape_.empty()) shape_.push_back(1);
}

ReaderResult NpyDataset::open(const std::string& features, const std::string& target, std::int64_t outputs) {
  const Result<data::NpyPair> pair = data::inspect_npy_pair(features, target, outputs > 0);
  if (!pair) return pair.error();
  Result<NpyArray> first = NpyArray::open(pair.value().features);
  if (!first) return first.error();
  Result<NpyArray> second = NpyArray::open(pair.value().target);
  if (!second) return second.error();
  if (outputs > 0) {
    const Status classes = check_classes(second.value(), outputs);
    if (!classes) return classes.error();
  }
  return std::unique_ptr<const SampleReader>(
      new NpyDataset(std::move(first).value(), std::move(second).value(), outputs > 0));
}

Status NpyDataset::gather(std::span<const std::int64_t> indices, float* features, const TargetMemory& targets) const {
  features_.gather(indices, features);
  if (target_numbers_ == 0)
    target_.gather_integers(indices, targets.classes);
  else
    target_.gather(indices, targets.numbers);
  return {};
}

}  // namespace sgd::worker
