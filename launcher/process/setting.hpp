#pragma once
// What processes hand down to what they start, beside descriptors: environment and folder, which can be told to a
// process that runs already, and the rest (limits, cores, groups, rights), which can only be compared.

#include <sys/types.h>

#include <map>
#include <string>

#include "common/base/result.hpp"
#include "common/messages/warm.hpp"

namespace sgd::process {

/// This process's environment and folder, without a server.
[[nodiscard]] warm::Setting own_setting();

/// Of a process: by the name for people, what its children begin with, and which program it is. Error: it is gone, or
/// not ours to look at.
[[nodiscard]] Result<std::map<std::string, std::string>> inherited_from(pid_t pid);

}  // namespace sgd::process
