#pragma once
// The time line of one recovery, from the end that was noticed to the first step of all ranks:
//
//   end --notice--> decided --clear--> nothing left --wait--> new start --start--> ranks assigned
//       --restore--> all ready --first step--> recovered
//
// Phases are differences of the coordinator's clock, except `notice` and `restore`, which node and rank
// measured themselves.

#include <optional>
#include <string>
#include <utility>

#include "common/base/ids.hpp"
#include "common/base/time.hpp"
#include "common/json/nlohmann.hpp"
#include "common/messages/link.hpp"
#include "launcher/core/failure.hpp"
#include "launcher/core/only_state.hpp"

namespace sgd::core {

struct RecoveryState {
  std::optional<Failure> cause_;
  Duration clear_{0};  ///< Of all attempts.
  Duration wait_{0};
  Duration start_{0};  ///< Of those that failed on their way.
  TimePoint mark_;     ///< The phase in work began.
  TimePoint ready_at_;
  double restore_s_ = 0;
  link::Ready ready_;
};

class RecoveryRecord : private RecoveryState {
 public:
  using State = RecoveryState;

  RecoveryRecord() = default;
  explicit RecoveryRecord(State state) : State(std::move(state)) {}
  [[nodiscard]] const State& state() const { return *this; }

  void begin(TimePoint now, const Failure& cause);
  void cleared(TimePoint now);
  void started(TimePoint now);
  /// Once per rank; the slowest restore counts.
  void ready(TimePoint now, const link::Ready& ready);

  [[nodiscard]] bool pending() const { return cause_.has_value(); }
  /// Of a command, whose ranks may tell of no step: {"event":"restarted", ...}; the record goes on.
  [[nodiscard]] nlohmann::ordered_json started_again(TimePoint now, Generation generation, int world_size) const;
  /// Ends the record: {"event":"recovered", ...}, times in seconds.
  [[nodiscard]] nlohmann::ordered_json finish(TimePoint now, Generation generation, int world_size, bool bit_exact);
  void drop() { cause_.reset(); }
};
static_assert(has_only_state<RecoveryRecord>());

}  // namespace sgd::core
