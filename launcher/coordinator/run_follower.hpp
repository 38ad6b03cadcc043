#pragma once
// One client that follows one run: reads the files of the run's folder as they grow, from the offsets that the client
// names, and never has more than a window under way. A slow client lags behind in the files, which lose nothing; it
// holds nobody up and costs no memory. Files are looked for and read by a thread, one piece of work at a time: a disk
// that hangs holds up those who follow, and nobody else.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "common/base/ids.hpp"
#include "common/base/time.hpp"
#include "launcher/storage/file_thread.hpp"

namespace sgd::coordinator {

/// Which files of a run: events.jsonl, metrics.jsonl, logs/gen-*/rank-*.log, those of a checkpoint.
struct FollowSelection {
  bool events = false;
  bool metrics = false;
  bool logs = false;
  std::optional<Rank> rank;              ///< Of the logs; absent: all.
  std::optional<Generation> generation;  ///< Of the logs; absent: all.
  std::string checkpoint;                ///< Its folder, "checkpoints/step-..."; empty: none.

  /// `file` is relative to the run's folder.
  [[nodiscard]] bool takes(const std::string& file) const;
};

/// Which file is read first: of logs the one of the lower generation, then of the lower rank, by their numbers.
struct FollowOrder {
  [[nodiscard]] bool operator()(const std::string& one, const std::string& other) const;
};

class RunFollower {
 public:
  /// Bytes sent and not acknowledged.
  static constexpr std::uint64_t kWindow = 4 << 20;
  static constexpr std::size_t kPartBytesMax = 256 << 10;

  using Send = std::function<void(const std::string& file, std::uint64_t offset, const std::string& bytes)>;

  /// Bytes, and files, of one piece of work.
  static constexpr std::size_t kReadBytesMax = 1 << 20;
  static constexpr std::size_t kReadFilesMax = 64;

  /// `offsets`: how much of which file the client has. `on_change`: something was read; this may end with it.
  RunFollower(storage::FileThread& files, std::string run_dir, FollowSelection selection,
              std::map<std::string, std::uint64_t> offsets, Send send, std::function<void()> on_change);
  ~RunFollower();
  RunFollower(const RunFollower&) = delete;
  RunFollower& operator=(const RunFollower&) = delete;

  /// Looks for files and sends what is there.
  void begin();
  void on_grown(const std::string& file);
  /// The client has `file` up to `offset`. What lies outside of what was sent is ignored.
  void acknowledge(const std::string& file, std::uint64_t offset);
  /// Nothing grows any more.
  void settle();
  /// Settled, and everything is acknowledged.
  [[nodiscard]] bool is_done() const;
  /// How long the disk has been at work on what was asked of it last, or has failed at it; zero: on nothing.
  [[nodiscard]] Duration unanswered_for(TimePoint now) const;
  /// Why something could not be read that may be there; empty: nothing of the kind.
  [[nodiscard]] const std::string& trouble() const { return trouble_; }
  /// Reads what could not be read.
  void try_again();

 private:
  struct Tail {
    std::uint64_t sent = 0;
    std::uint64_t acknowledged = 0;
  };

  struct Reading;
  void pump();
  void on_read(const Reading& reading);

  storage::FileThread& files_;
  std::string run_dir_;
  FollowSelection selection_;
  Send send_;
  std::function<void()> on_change_;
  std::map<std::string, Tail> tails_;
  std::set<std::string, FollowOrder> grown_;  ///< May have bytes that were not sent.
  std::uint64_t under_way_ = 0;
  bool looks_ = false;                 ///< For files that it does not know.
  std::optional<TimePoint> asked_at_;  ///< Of the work that is under way.
  std::string trouble_;
  std::optional<TimePoint> troubled_at_;
  bool is_settled_ = false;
  std::shared_ptr<bool> is_here_ = std::make_shared<bool>(true);  ///< What is read may come when this is gone.
};

}  // namespace sgd::coordinator
