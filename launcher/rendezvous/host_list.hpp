#pragma once
// Slurm's way to write down hosts: "node[01-03,07],login1" (slurm.schedmd.com, hostlist expressions). Pure.

#include <optional>
#include <string>
#include <vector>

#include "common/base/result.hpp"

namespace sgd::rendezvous {

/// More hosts than that are an error.
inline constexpr std::size_t kHostsMax = 100'000;

/// The number from 0 that `text` is, and nothing else.
[[nodiscard]] std::optional<int> whole_number(const std::string& text);

/// All of them, in their order; leading zeros stay. Error: what is wrong with `text`.
[[nodiscard]] Result<std::vector<std::string>> expand_host_list(const std::string& text);

}  // namespace sgd::rendezvous
