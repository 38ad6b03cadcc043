#pragma once
// Which ranks of a node are silent: no heartbeat for `timeout` (a frozen process), or heartbeats that say
// the same for `stall_timeout` (a collective that never completes, a loop that never ends).
//
// Nobody is judged by a late clock. A deadline that has passed only makes a rank suspect: it is looked at
// again kSecondLook later, when what lay unread in its link has been read. And a look that itself comes
// kLateLook too late (the launcher was stopped, the machine slept) gives everybody a new deadline.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/ids.hpp"
#include "common/base/time.hpp"
#include "common/messages/link.hpp"
#include "launcher/core/only_state.hpp"

namespace sgd::core {

struct Silence {
  Rank rank = 0;
  bool is_stalled = false;  ///< Else frozen.
  bool is_waiting = false;  ///< Stalled inside a collective: another rank holds it up.
  double silent_s = 0;
  std::string words;  ///< "no heartbeat for 5.1 s, in train, step 1200".
};

struct WatchdogState {
  struct Watched {
    bool has_said_hello = false;
    TimePoint heard_at;
    TimePoint advanced_at;  ///< The last heartbeat that said something new.
    link::Heartbeat beat;
    std::optional<TimePoint> suspect_until;
    bool is_told = false;
    bool is_paused = false;
    [[nodiscard]] bool is_watched() const { return !is_told && !is_paused; }
  };

  Duration timeout_ = std::chrono::seconds(5);
  Duration stall_timeout_ = std::chrono::minutes(10);
  std::map<Rank, Watched> ranks_;
};

class Watchdog : private WatchdogState {
 public:
  using State = WatchdogState;
  static constexpr Duration kSecondLook = std::chrono::milliseconds(100);
  static constexpr Duration kLateLook = std::chrono::milliseconds(500);
  /// From the start of a process to its hello.
  static constexpr Duration kHelloTimeout = std::chrono::seconds(60);

  Watchdog() = default;
  explicit Watchdog(State state) : State(std::move(state)) {}
  [[nodiscard]] const State& state() const { return *this; }

  /// Forgets all ranks.
  void reset(Duration timeout, Duration stall_timeout);
  void on_spawned(TimePoint now, Rank rank);
  void on_hello(TimePoint now, Rank rank);
  void on_heartbeat(TimePoint now, Rank rank, const link::Heartbeat& beat);
  [[nodiscard]] bool watches(Rank rank) const { return ranks_.contains(rank); }
  /// Its link is not read from here on, so that nothing can be heard of it.
  void pause(Rank rank);
  void resume(TimePoint now, Rank rank);
  /// Its next heartbeat may change what a look finds.
  [[nodiscard]] bool suspects(Rank rank) const;
  /// Everybody has all the time again: the watching itself has been interrupted.
  void renew(TimePoint now);
  [[nodiscard]] static bool has_same_progress(const link::Heartbeat& left, const link::Heartbeat& right);
  void forget(Rank rank) { ranks_.erase(rank); }

  /// Ranks that are silent; each is told once.
  [[nodiscard]] std::vector<Silence> look(TimePoint now);
  [[nodiscard]] std::optional<TimePoint> next_look() const;

 private:
  [[nodiscard]] TimePoint deadline(const Watched& rank) const;
  [[nodiscard]] Silence describe(TimePoint now, Rank number, const Watched& rank) const;
};
static_assert(has_only_state<Watchdog>());

}  // namespace sgd::core
