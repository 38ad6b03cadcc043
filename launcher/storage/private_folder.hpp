#pragma once
// Folders in which runs and daemons keep what is theirs, closed to everybody else whatever the umask is.

#include <string>

#include "common/base/result.hpp"

namespace sgd::storage {

enum class Others {
  kOut,   ///< 0700.
  kPass,  ///< Where they were let through to what is theirs (0711), they still are.
};
/// Makes `folder` and what is missing above it, each with mode 0700. One that is there is closed to others if it is
/// ours; somebody else's stays as it is.
[[nodiscard]] Status make_private_folder(const std::string& folder, Others others = Others::kOut);

}  // namespace sgd::storage
