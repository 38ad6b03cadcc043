#pragma once
// What the shell that started this process lets it have (ulimit): files, and address space.

#include <cstdint>
#include <optional>

namespace sgd::process {

/// Raises the limit to the most that is allowed (RLIMIT_NOFILE, soft to hard). For processes that start no others: what
/// they would inherit breaks programs that use select().
void raise_file_limit();

struct ResourceLimits {
  std::optional<std::uint64_t> files;          ///< ulimit -n. Nothing: unlimited.
  std::optional<std::uint64_t> address_bytes;  ///< ulimit -v, which counts KiB. Nothing: unlimited.
};
/// The soft limits, which are what programs that are started get.
[[nodiscard]] ResourceLimits resource_limits();

}  // namespace sgd::process
