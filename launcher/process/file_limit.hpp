#pragma once
// How many files this process may have open.

namespace sgd::process {

/// Raises the limit to the most that is allowed (RLIMIT_NOFILE, soft to hard). For processes that start no others: what
/// they would inherit breaks programs that use select().
void raise_file_limit();

}  // namespace sgd::process
