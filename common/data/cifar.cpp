#include "common/data/cifar.hpp"

#include <fmt/format.h>

#include "common/data/file_list.hpp"

namespace sgd::data {

CifarLayout cifar_layout(std::string_view variant) {
  if (variant == "cifar100") return {2, 1, 100};
  if (variant == "cifar100_coarse") return {2, 0, 20};
  return {1, 0, 10};
}

Result<std::int64_t> inspect_cifar(const std::string& path, const CifarLayout& layout) {
  const Result<std::size_t> bytes = data_file_bytes(path);
  if (!bytes) return bytes.error();
  const std::size_t record = layout.record_bytes();
  const std::size_t rest = bytes.value() % record;
  if (bytes.value() == 0)
    return Error{fmt::format("data file {} is empty, expected records of {} bytes", path, record)};
  if (rest == 0) return static_cast<std::int64_t>(bytes.value() / record);
  const std::size_t other = record == kCifarImageBytes + 1 ? record + 1 : record - 1;
  if (bytes.value() % other == 0)
    return Error{
        fmt::format("data file {} has records of {} bytes, expected {}: name the other kind in "
                    "training.dataset.variant",
                    path, other, record)};
  return Error{fmt::format("data file {} is truncated: record {} (the first is 0) has {} bytes, expected {}", path,
                           bytes.value() / record, rest, record)};
}

}  // namespace sgd::data
