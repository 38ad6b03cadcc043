#include "common/data/tokens.hpp"

#include <fmt/format.h>

#include "common/data/file_list.hpp"

namespace sgd::data {

std::int64_t token_bytes(std::string_view dtype) {
  if (dtype == "u8") return 1;
  return dtype == "u32" ? 4 : 2;
}

Result<std::int64_t> inspect_tokens(const std::string& path, std::int64_t width, std::int64_t length) {
  const Result<std::size_t> size = data_file_bytes(path);
  if (!size) return size.error();
  const auto bytes = static_cast<std::int64_t>(size.value());
  if (bytes % width != 0)
    return Error{fmt::format("data file {} is truncated: token {} (the first is 0) has {} byte{}, expected {}", path,
                             bytes / width, bytes % width, bytes % width == 1 ? "" : "s", width)};
  const std::int64_t tokens = bytes / width;
  if (tokens <= length)
    return Error{fmt::format("data file {} has {} tokens, expected at least {}: a window is length + 1", path, tokens,
                             length + 1)};
  return (tokens - 1) / length;
}

}  // namespace sgd::data
