#pragma once
// Which events an agent's journal must have, so that a machine that takes them anew stands where this one
// stands. What is soft (Agent::was_soft()) is left out, or a quiet run would fill a disk: ticks at which
// nothing was due, news of a fetch, and heartbeats.
//
// Of a link's heartbeats the newest, and the first that said the same, are held back, and written when
// something else is: they are what the watchdog and the report of an exit know of a rank. So the journal is
// exact at its every record, and what comes after its last one is soft.

#include <map>
#include <optional>
#include <vector>

#include "launcher/core/agent_io.hpp"

namespace sgd::core {

struct TimedEvent {
  TimePoint at;
  AgentEvent event;
};

class JournalFilter {
 public:
  /// `event` was taken by the machine at `now`. Appends what is to be written, in order of time.
  void take(TimePoint now, const AgentEvent& event, bool was_soft, std::vector<TimedEvent>& out);

 private:
  struct HeldHeartbeats {
    link::Heartbeat newest;
    std::optional<TimedEvent> first;  ///< That said what the newest says; absent once it is written.
    std::optional<TimedEvent> last;   ///< The newest, where it is not the first.
  };

  void write_held(std::vector<TimedEvent>& out);

  std::map<ConnectionId, HeldHeartbeats> heartbeats_;  ///< Of open links.
};

}  // namespace sgd::core
