#pragma once
// What a rank has said before its end is told upwards before that end is: nothing of a rank follows its exit, and no
// exit and no word of a group follows its clearing. Seen at the facts that an agent sends, when it sends them first.

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "common/messages/cluster.hpp"
#include "test/sim/world.hpp"

namespace sgd::sim {

class LastWords {
 public:
  struct Speaker {
    RunId run;
    Generation generation = 0;
    Rank rank = 0;
    auto operator<=>(const Speaker&) const = default;
  };

  explicit LastWords(World& world) : world_(world) {}

  /// A report is on its way from the rank to the agent.
  void on_said(const Speaker& speaker) {
    if (!seen_.ignored.contains(speaker)) seen_.said[speaker].push_back(world_.queue.now());
  }
  /// The agent hears of the end of the rank's process.
  void on_exit_heard(const Speaker& speaker) {
    if (!seen_.ignored.contains(speaker)) seen_.exits[speaker] = world_.queue.now();
  }
  /// Its link was closed, or not read for a while: what it says may be lost.
  void ignore(const Speaker& speaker);
  /// Its keeper was lost: nobody tells the ends of its ranks.
  void ignore(const RunId& run);
  /// The agent has stood still until `until`: the time that it gives to last words has passed meanwhile.
  void on_paused(TimePoint until) { well_since_ = std::max(well_since_, until); }
  /// A process of this rank starts: what there was of a generation that has been forgotten is another one's.
  void on_spawn(const Speaker& speaker);
  /// The agent is told a wish. What it answers to one that is older than the ranks is not about them: a coordinator
  /// that has lost the end of its store gives the number of their generation a second time.
  void on_wish(const RunId& run, GenerationUid uid);
  /// Another agent is here.
  void forget() { seen_ = {}; }

  void on_fact(const cluster::Fact& fact);

 private:
  void check_words(const Speaker& speaker, const char* before) const;
  void check_cleared(const cluster::Fact& fact) const;

  struct Seen {
    std::map<Speaker, std::deque<TimePoint>> said;
    std::map<Speaker, TimePoint> exits;  ///< Heard of, and not told.
    std::set<Speaker> ignored;
    std::map<RunId, GenerationUid> wish;  ///< The newest one.
    std::map<RunId, std::set<GenerationUid>> wishes;
    std::map<RunId, std::set<GenerationUid>> older_than_ranks;
    std::int64_t sequence = 0;  ///< Of the newest fact that was sent.
  };

  World& world_;
  Seen seen_;
  TimePoint well_since_{};
};

}  // namespace sgd::sim
