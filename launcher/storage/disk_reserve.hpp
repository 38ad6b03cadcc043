#pragma once
// Room on the disk of a coordinator's state that nobody else can take: a file of zeros. When the disk is full it goes,
// so that what ends the run that has filled it can still be committed, and so that a coordinator can start; it is made
// again as soon as there is room for it.

#include <cstdint>
#include <string>
#include <utility>

namespace sgd::storage {

class DiskReserve {
 public:
  static constexpr std::int64_t kBytes = 8 << 20;

  explicit DiskReserve(const std::string& folder) : path_(folder + "/reserve") {}

  /// Tries to.
  void make();
  void give_up();
  [[nodiscard]] bool is_there() const { return is_there_; }

 private:
  std::string path_;
  bool is_there_ = false;
};

/// Files that can still be made while others are to be: of those of runs, no more than leave this many.
inline constexpr std::uint64_t kFilesKeptFree = 1000;
/// That can be made where `folder` lies; the most there can be where the disk does not count them.
[[nodiscard]] std::uint64_t files_free(const std::string& folder);
/// What stays free where `folder` lies when files of runs grow: little of a small disk.
[[nodiscard]] std::uint64_t bytes_kept_free(const std::string& folder);
/// For this process; the most there can be when that cannot be told.
[[nodiscard]] std::uint64_t bytes_free(const std::string& folder);

}  // namespace sgd::storage
