#pragma once
// Looks at checkpoints on disk: which are whole, and which is the newest. Without LibTorch: only
// names, sizes and checksums are judged. Serves a resume without a coordinator; a live run trusts
// what its coordinator accepted.

#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/checkpoint/manifest.hpp"

namespace sgd::checkpoint {

enum class Proof {
  kSizes,      ///< Manifest readable, every file there with its size.
  kChecksums,  ///< And every file's CRC-32C equal.
};

/// The manifest in `dir`, without a look at the files it lists.
[[nodiscard]] Result<Manifest> read_manifest(const std::string& dir);

/// The manifest of a whole checkpoint, or the reason why it is none, with the file it is about.
[[nodiscard]] Result<Manifest> verify(const std::string& dir, Proof proof);

struct Found {
  std::string path;  ///< Of the directory.
  DirectoryName name;
  std::string damage;  ///< Empty: whole.
};

/// All checkpoints in `dir`, newest first: the highest generation, in it the highest step, of that the last one.
/// Temporary and foreign names are left out; a missing `dir` has none.
[[nodiscard]] Result<std::vector<Found>> list_checkpoints(const std::string& dir, Proof proof);

}  // namespace sgd::checkpoint
