#pragma once
// Keeps the runs' folders within what the operator allows: looks at those of runs that have ended, from time to time
// and when asked, beside the event loop, and removes what goes beyond, folder first, then row. A run whose folder
// cannot be removed stays, and is said. Folders that no row is of (an older version has left them) count as those of
// ended runs of nobody.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include <boost/asio/io_context.hpp>

#include "launcher/coordinator/age_clock.hpp"
#include "launcher/coordinator/coordinator_shell.hpp"
#include "launcher/net/timer.hpp"
#include "launcher/storage/file_thread.hpp"
#include "launcher/storage/owner_room.hpp"
#include "launcher/storage/retention.hpp"

namespace sgd::coordinator {

class RunRetention {
 public:
  static constexpr Duration kLook = std::chrono::minutes(10);
  static constexpr Duration kFirstLook = std::chrono::seconds(1);
  static constexpr std::size_t kEndedMax = 100;  ///< Runs that have ended since a look; then the next one comes.
  static constexpr Duration kDiskLimit = std::chrono::seconds(10);  ///< Of what somebody waits for.

  using Log = std::function<void(const std::string& line)>;
  /// Why it was not done; empty: it was.
  using Done = std::function<void(const std::string& why_not)>;

  /// All must outlive it. `runs_dir` holds the folders. `is_over`: the run has ended, and nothing of it is still on its
  /// way here.
  RunRetention(boost::asio::io_context& io, CoordinatorShell& shell, storage::FileThread& files, std::string runs_dir,
               std::function<bool(const RunId& run)> is_over, Log log);

  storage::Retention retention;
  std::int64_t owner_bytes_max = 0;  ///< Of one owner's runs; 0: a share of the disk.

  void start();
  void stop() { timer_.cancel(); }
  /// One more is over. Whoever ends runs by the thousand makes looks come sooner; not by trials, which stay as long as
  /// their experiment does: a look sums up all that this has left.
  void note_ended(const RunId& run);
  /// Of a run that is over, or a stray.
  void remove(const RunId& run, Done done);
  void pin(const RunId& run, bool pinned, Done done);
  /// As of the last look; runs that were not looked at yet are missing.
  [[nodiscard]] const std::map<RunId, storage::EndedRun>& known() const { return known_; }
  /// Runs that nobody knows, by their folders' names; as of the last look.
  [[nodiscard]] const std::map<RunId, storage::EndedRun>& strays() const { return strays_; }
  /// Its folder is being removed.
  [[nodiscard]] bool is_going(const RunId& run) const { return going_.contains(run); }
  /// What one owner's runs take, for whoever adds to it.
  [[nodiscard]] std::shared_ptr<storage::OwnerRoom> room_of(const std::string& owner);
  /// Of the disk, as of the last look, what one owner's runs may take; 0 before that, and where there is another limit.
  [[nodiscard]] std::int64_t bytes_most_of(const std::string& owner) const;
  /// Of the folders of one owner's runs: as of the last look, and what has come since.
  [[nodiscard]] std::int64_t bytes_of(const std::string& owner) const;

 private:
  void look_later(Duration delay);
  void look();
  struct Look;
  void on_looked(const Look& look);
  [[nodiscard]] std::optional<std::string> folder_of(const RunId& run) const;
  void remove_folder(const storage::EndedRun& run, const Done& done);

  CoordinatorShell& shell_;
  storage::FileThread& files_;
  std::string runs_dir_;
  std::function<bool(const RunId& run)> is_over_;
  Log log_;
  net::Timer timer_;
  AgeClock clock_;
  std::map<RunId, storage::EndedRun> known_;
  std::map<RunId, storage::EndedRun> strays_;
  std::map<std::string, std::shared_ptr<storage::OwnerRoom>> rooms_;  ///< By owner; the next look clears empty ones.
  std::optional<storage::DiskRoom> disk_;                             ///< As of the last look.
  std::set<RunId> going_;                                             ///< Their folders are being removed.
  std::size_t ended_ = 0;                                             ///< Since the last look began.
  bool is_looking_ = false;
};

}  // namespace sgd::coordinator
