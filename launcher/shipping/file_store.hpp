#pragma once
// Files by the hash of their bytes, each once, in a folder of this process's own: "<64 digits>", which nobody may
// write, and what has come so far of others, "<64 digits>.part". Whoever uses one has a link to it, which stays when
// the store gives it up.
//
// What no link leads to stays as long as there is room: the one that was asked for longest ago goes first. What is in
// use stays, and counts: when it takes all the room, nothing more is taken.
//
// Blocks; threads may share it.

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "common/base/time.hpp"
#include "launcher/storage/incoming.hpp"

namespace sgd::shipping {

class FileStore {
 public:
  struct Limits {
    std::uint64_t bytes = std::uint64_t{16} << 30;
    std::size_t files = 1 << 16;
    bool keeps_disk_free = false;  ///< Nothing more comes when the disk has little room left.
    /// Folders beside this one are other owners' stores, on the same disk. What is not in use there goes, too, before
    /// the disk is said to be full.
    bool has_siblings = false;
  };
  /// A part that nobody has added to for so long is given up when room is needed. Who goes on with it brings it anew.
  static constexpr Duration kPartRest = std::chrono::seconds(5);

  /// `folder` is made.
  [[nodiscard]] static Result<std::shared_ptr<FileStore>> open(const std::string& folder, const Limits& limits);

  /// It is here, whole; asking counts as use.
  [[nodiscard]] bool has(const std::string& sha256, std::int64_t bytes) const;
  [[nodiscard]] storage::Held held(const std::string& sha256) const;
  /// Where there is no room for them, what has come of it so far goes, too.
  /// A whole one that lacks what is brought, or bytes before `offset`, is damaged: it is given up, and comes anew.
  [[nodiscard]] storage::Held append(const std::string& sha256, std::uint64_t offset, std::string_view bytes);
  /// It is whole, and its bytes are those of the hash: looked at in any case. One that is damaged is removed; code 0.
  [[nodiscard]] Status prove(const std::string& sha256);
  [[nodiscard]] Result<std::string> read(const std::string& sha256, std::size_t bytes_max) const;
  /// `path`, which is not there, becomes a file with these bytes; on another disk a copy.
  [[nodiscard]] Status link(const std::string& sha256, const std::string& path) const;
  /// Why `bytes` more would not find room, whatever is given up; empty: they would.
  [[nodiscard]] std::string why_no_room(std::uint64_t bytes) const;

 private:
  FileStore(std::string folder, const Limits& limits) : folder_(std::move(folder)), limits_(limits) {}
  struct Entry;
  [[nodiscard]] static std::vector<Entry> entries_of(const std::string& folder);
  [[nodiscard]] std::vector<Entry> entries_of_siblings() const;
  [[nodiscard]] std::vector<Entry> entries() const;
  [[nodiscard]] std::string path_of(const std::string& sha256) const { return folder_ + "/" + sha256; }
  [[nodiscard]] std::string part_of(const std::string& sha256) const { return path_of(sha256) + ".part"; }
  [[nodiscard]] static std::vector<Entry> in_order_to_go(std::vector<Entry> entries);
  [[nodiscard]] std::string make_room(std::uint64_t bytes, std::size_t files, const std::string& path);
  void remove(const std::string& path, std::uint64_t bytes);  ///< So many bytes of it are counted.

  std::string folder_;
  Limits limits_;
  mutable std::mutex mutex_;
  std::uint64_t used_ = 0;  ///< Bytes of all that is here.
  std::size_t count_ = 0;   ///< Files.
};

/// The hash of the file's bytes. Error: it cannot be read.
[[nodiscard]] Result<std::string> sha256_of_file(const std::string& path);
[[nodiscard]] std::string sha256_of(std::string_view bytes);

}  // namespace sgd::shipping
