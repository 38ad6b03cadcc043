#pragma once
// The files of one run as they come from, and go to, another machine: logs grow by chunks, a checkpoint grows
// under a temporary name, is proven by its manifest and renamed when it is whole and safe on disk. The same
// on both sides: the coordinator receives into the run directory, a node that fetches into its spool.
//
// Every name has been checked by transfer::check_file or check_checkpoint. Everything is done in the name of the
// folder's owner. Blocks; one thread at a time per file.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "common/base/time.hpp"
#include "common/messages/transfer.hpp"
#include "launcher/storage/beneath.hpp"
#include "launcher/storage/file_owner.hpp"
#include "launcher/storage/incoming.hpp"
#include "launcher/storage/owner_room.hpp"

namespace sgd::storage {

/// What may come into one run's folder.
struct Quota {
  std::uint64_t file_bytes = std::uint64_t{1} << 40;
  std::uint64_t run_bytes = std::uint64_t{4} << 40;
  std::uint64_t run_files = 200'000;  ///< A log of each rank and generation; each takes the disk's time, even if empty.
  bool keeps_disk_free = false;       ///< Nothing more comes when the disk has little room left: it is kept for others.
  std::uint64_t log_bytes = std::uint64_t{16} << 30;  ///< Of a file that is none of a checkpoint.
};

class RunFiles : public Incoming {
 public:
  /// `charge`: at whose cost its files grow.
  [[nodiscard]] static Result<std::shared_ptr<RunFiles>> open(const std::string& folder, const Quota& quota,
                                                              Charge charge = {});

  [[nodiscard]] Held held(const std::string& file) const override;
  [[nodiscard]] Held append(const std::string& file, std::uint64_t offset, std::string_view bytes) override;
  [[nodiscard]] Status sync(const std::string& file) const;

  [[nodiscard]] bool is_stored(const std::string& checkpoint) const override;
  /// The checkpoint that was appended to is proven, safe on disk, and has its name. One that is damaged or
  /// incomplete is removed, so that the next attempt begins anew.
  [[nodiscard]] Status finish(const std::string& checkpoint) override;
  /// manifest.json the last. Error: it is not here; it has more files than can be listed (E2BIG).
  [[nodiscard]] Result<std::vector<transfer::ListedFile>> listing(const std::string& checkpoint) const;
  /// Less than `bytes` where the file ends.
  [[nodiscard]] Result<std::string> read(const std::string& file, std::uint64_t offset, std::size_t bytes) const;
  /// Removes checkpoints that `kept` (names) has superseded, but not `spared` ones, and what is left half
  /// received of them.
  void prune(const std::vector<std::string>& kept, const std::vector<std::string>& spared = {});
  /// Every file that may travel; checkpoints only by their folders' names.
  struct Inventory {
    std::vector<transfer::ListedFile> logs;  ///< Below logs/ and errors/.
    std::vector<std::string> checkpoints;    ///< Names of whole ones, without "checkpoints/".
    std::string unread;                      ///< Why not all could be looked at, which may be possible later.
    bool is_cut = false;                     ///< There are more names than Quota::run_files.
    std::size_t names_most = 0;              ///< As many.
  };
  [[nodiscard]] Inventory inventory() const;

 private:
  RunFiles(std::string path, Beneath folder, const std::optional<FileOwner>& owner, const Quota& quota, Charge charge)
      : path_(std::move(path)), folder_(std::move(folder)), owner_(owner), quota_(quota), charge_(std::move(charge)) {}
  void claim(Held& held, const std::string& file, std::uint64_t end, std::uint64_t bytes);
  [[nodiscard]] std::string why_no_room(std::uint64_t bytes) const;
  [[nodiscard]] std::string place_of(const std::string& file) const;
  [[nodiscard]] std::string over_quota(const std::string& file, std::uint64_t end, std::uint64_t bytes);
  [[nodiscard]] std::string over_files();
  [[nodiscard]] std::string why_no_file() const;
  void measure();
  [[nodiscard]] Status prove(const std::string& part, const std::string& name) const;

  std::string path_;
  Beneath folder_;
  std::optional<FileOwner> owner_;  ///< Nothing: this process.
  Quota quota_;
  Charge charge_;
  std::atomic<std::uint64_t> used_{0};  ///< Bytes.
  std::atomic<std::uint64_t> files_{0};
  std::atomic<TimePoint> measured_at_{TimePoint{}};
  std::atomic<bool> is_measured_{false};
};

}  // namespace sgd::storage
