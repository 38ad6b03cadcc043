#pragma once
// Takes away a folder with all that is in it, however deep that is: whoever had the folder may have made ten thousand
// levels, and a descriptor for each would be all that this process may have. Follows no links. Blocks, as long as there
// is something: work for a thread of which nobody waits for anything else.

#include <string>
#include <system_error>

namespace sgd::storage {

/// As the folder's owner, who may still change what is in it, and opens again what the owner has closed; what that
/// leaves, such as folders of others in it, as ourselves. Returns what prevents it; a missing one is no error.
[[nodiscard]] std::error_code remove_tree(const std::string& folder);

}  // namespace sgd::storage
