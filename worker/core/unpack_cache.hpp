#pragma once
// Compressed data files, unpacked once for this user: in sgd-launch/data/ of $XDG_CACHE_HOME or
// ~/.cache, else in a private directory under /tmp. A cached file's name holds the source's
// name, size, modification time and a hash of its path, so a changed source is unpacked again.
//
// The cache may be filled by several processes at once and killed at any moment: a file gets
// its name by rename, after its data is on disk, so under that name it is always whole.

#include <cstddef>
#include <string>

#include "common/base/result.hpp"

namespace sgd::worker {

/// The path of the unpacked form of the gzip file `path`, which must have exactly `unpacked_bytes`.
/// Errors name the source or, when the cache cannot be written, the cache's file.
Result<std::string> unpacked_file(const std::string& path, std::size_t unpacked_bytes);

}  // namespace sgd::worker
