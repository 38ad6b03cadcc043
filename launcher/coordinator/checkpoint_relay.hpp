#pragma once
// Who gets a checkpoint from whom, when the coordinator does not have it: one node after the other is asked
// to put it to the coordinator, and those who wait are told when it is whole. Pure: `now` is an argument,
// what is to be done comes back.
//
//   wanted --somebody is asked--> shipping --stored--> (answered)
//             ^                      └ lacks, gone, refused or silent for kSilence: the next one
//             └ everybody was asked: those who come within kPatience are asked, too; then refused
//
// What has come before a source was lost stays where it is: the next one goes on at that chunk.

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/ids.hpp"
#include "common/base/time.hpp"

namespace sgd::coordinator {

/// A connection of a node, for files.
using PeerId = std::uint64_t;

struct CheckpointId {
  RunId run;
  std::string path;  ///< "checkpoints/step-..."
  auto operator<=>(const CheckpointId&) const = default;
};

struct RelayAction {
  enum class What {
    kShip,     ///< Ask `peer` for the checkpoint.
    kPending,  ///< Tell `peer` that it is on its way.
    kRefuse,   ///< Tell `peer` that nobody has it.
  };
  What what = What::kShip;
  PeerId peer = 0;
  CheckpointId checkpoint;
  std::string reason;      ///< With kRefuse.
  std::int64_t bytes = 0;  ///< With kPending: that have come.
};
using RelayActions = std::vector<RelayAction>;

class CheckpointRelay {
 public:
  static constexpr Duration kSilence = std::chrono::seconds(30);   ///< Without a byte of the checkpoint.
  static constexpr Duration kPatience = std::chrono::seconds(10);  ///< For a holder to connect.
  static constexpr Duration kNews = std::chrono::seconds(1);       ///< Between two kPending.
  /// That are looked for on behalf of one peer: others are asked for each, and a node gets one after the other.
  static constexpr std::size_t kWantedMax = 16;

  /// `may_have`: whether a peer may touch a run's files; others are not asked.
  explicit CheckpointRelay(std::function<bool(PeerId peer, const RunId& run)> may_have)
      : may_have_(std::move(may_have)) {}

  void on_peer(TimePoint now, PeerId peer, RelayActions& out);
  void on_gone(TimePoint now, PeerId peer, RelayActions& out);
  /// `peer` needs a checkpoint that is not here.
  void on_wanted(TimePoint now, PeerId peer, const CheckpointId& checkpoint, RelayActions& out);
  /// `peer` has put bytes of it.
  void on_bytes(TimePoint now, PeerId peer, const CheckpointId& checkpoint, std::int64_t bytes);
  /// `peer` does not have it, or what it has put was damaged.
  void on_lacks(TimePoint now, PeerId peer, const CheckpointId& checkpoint, const std::string& reason,
                RelayActions& out);
  /// It is whole: who waits for it.
  [[nodiscard]] std::set<PeerId> on_stored(const CheckpointId& checkpoint);
  void on_tick(TimePoint now, RelayActions& out);
  [[nodiscard]] std::optional<TimePoint> next_wakeup() const;

 private:
  struct Search {
    std::set<PeerId> waiting;
    std::set<PeerId> asked;
    std::optional<PeerId> source;
    TimePoint began;
    TimePoint heard;  ///< Of the source.
    TimePoint news;   ///< The next one to those who wait.
    std::int64_t bytes = 0;
    std::string reason;  ///< Of the last one that could not.
  };
  void ask_next(TimePoint now, const CheckpointId& checkpoint, Search& search, RelayActions& out);
  /// Those who wait for it do so no more.
  [[nodiscard]] std::set<PeerId> release(Search& search);

  std::function<bool(PeerId peer, const RunId& run)> may_have_;
  std::set<PeerId> peers_;
  std::map<CheckpointId, Search> searches_;
  std::map<PeerId, std::size_t> wanted_;    ///< Searches for which one waits.
  std::map<PeerId, CheckpointId> putting_;  ///< Of its own accord, the newest: it is the first to be asked for it.
};

}  // namespace sgd::coordinator
