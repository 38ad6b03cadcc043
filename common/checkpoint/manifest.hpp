#pragma once
// What names and proves a checkpoint: its directory's name, and manifest.json with the size and
// CRC-32C of every other file (or CRC-32, which writers in Python have at speed). The manifest is written last, so a
// directory without a good one is no checkpoint. Text in, values out: files are read and written by others.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/ids.hpp"
#include "common/base/result.hpp"

namespace sgd::checkpoint {

inline constexpr const char* kManifestFile = "manifest.json";
inline constexpr std::size_t kManifestBytesMax = 1 << 20;
/// Under the run directory.
inline constexpr const char* kDirectory = "checkpoints";

enum class Checksum { kCrc32c, kCrc32 };

struct ManifestFile {
  std::string name;  ///< Without a directory.
  std::uint64_t bytes = 0;
  std::uint32_t crc = 0;
  Checksum checksum = Checksum::kCrc32c;
};
/// "CRC-32C" or "CRC-32".
[[nodiscard]] const char* name_of(Checksum checksum);

struct Manifest {
  std::int64_t step = 0;      ///< Optimizer steps since the run's start.
  int epoch = 0;              ///< Completed epochs.
  Generation generation = 0;  ///< That wrote it.
  int world_size = 0;         ///< Of that generation; 0: not recorded.
  std::vector<ManifestFile> files;
};

/// Ordered from old to new: a later generation has gone on from what counted before it.
struct DirectoryName {
  Generation generation = 0;
  std::int64_t step = 0;
  int number = 1;  ///< Tells several of one step apart: one after training, one after validation.

  auto operator<=>(const DirectoryName&) const = default;
};
/// "step-000000001200-gen-0003", and "step-000000001200-gen-0003-2" for the second one of that step.
[[nodiscard]] std::string directory_name(std::int64_t step, Generation generation, int number = 1);

/// Nothing for a name that directory_name() does not make, temporary names among them.
[[nodiscard]] std::optional<DirectoryName> parse_directory_name(std::string_view name);

[[nodiscard]] std::string encode(const Manifest& manifest);
/// Errors say which field is wrong.
[[nodiscard]] Result<Manifest> parse_manifest(std::string_view text);

}  // namespace sgd::checkpoint
