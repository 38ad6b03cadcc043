#pragma once
// One client that follows one run: reads the files of the run's folder as they grow, from the offsets that the client
// names, and never has more than a window under way. A slow client lags behind in the files, which lose nothing; it
// holds nobody up and costs no memory.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "common/base/ids.hpp"

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

class RunFollower {
 public:
  /// Bytes sent and not acknowledged.
  static constexpr std::uint64_t kWindow = 4 << 20;
  static constexpr std::size_t kPartBytesMax = 256 << 10;

  using Send = std::function<void(const std::string& file, std::uint64_t offset, const std::string& bytes)>;

  /// `offsets`: how much of which file the client has.
  RunFollower(std::string run_dir, FollowSelection selection, std::map<std::string, std::uint64_t> offsets, Send send);

  /// Looks for files and sends what is there.
  void begin();
  void on_grown(const std::string& file);
  /// The client has `file` up to `offset`. What lies outside of what was sent is ignored.
  void acknowledge(const std::string& file, std::uint64_t offset);
  /// Nothing grows any more.
  void settle();
  /// Settled, and everything is acknowledged.
  [[nodiscard]] bool is_done() const;

 private:
  struct Tail {
    std::uint64_t sent = 0;
    std::uint64_t acknowledged = 0;
  };

  void look_for_logs();
  void look_for_checkpoint();
  void pump();
  /// True when the file has no more for now.
  bool pump(const std::string& file, Tail& tail);

  std::string run_dir_;
  FollowSelection selection_;
  Send send_;
  std::map<std::string, Tail> tails_;
  std::set<std::string> grown_;  ///< May have bytes that were not sent.
  std::uint64_t under_way_ = 0;
  bool is_settled_ = false;
};

}  // namespace sgd::coordinator
