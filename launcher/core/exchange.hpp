#pragma once
// The only rendezvous: each rank of a generation gives one value under a key; when all have,
// everyone gets them, in parts that a frame takes. No store server, no port. Values that come twice must be equal, a
// finished exchange is kept so that an agent that reconnects can be answered again.

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/ids.hpp"
#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"
#include "common/messages/cluster.hpp"
#include "launcher/core/only_state.hpp"

namespace sgd::core {

struct ExchangeState {
  int world_size_ = 0;
  std::map<std::string, std::map<Rank, nlohmann::json>> values_;
  std::size_t bytes_ = 0;  ///< Of all keys and values, as text.
};

class ExchangeTable : private ExchangeState {
 public:
  using State = ExchangeState;
  static constexpr std::size_t kKeysMax = 4096;
  static constexpr std::size_t kKeyBytesMax = 256;
  static constexpr std::size_t kValueBytesMax = 48 << 10;
  /// Of one generation: half of what may wait for a node's link.
  static constexpr std::size_t kBytesMax = 8 << 20;
  /// Of the values in one message, unless a single one is larger.
  static constexpr std::size_t kMessageBytes = 256 << 10;

  ExchangeTable() = default;
  explicit ExchangeTable(State state) : State(std::move(state)) {}
  [[nodiscard]] const State& state() const { return *this; }

  /// Empties the table for a generation of `world_size` ranks.
  void reset(int world_size);

  /// Whether it was the last one, so that the exchange is finished now; or what is wrong with the value.
  [[nodiscard]] Result<bool> put(Rank rank, const std::string& key, nlohmann::json value);
  /// The values of a finished exchange in rank order; a part with no values and the count 0 for another.
  [[nodiscard]] std::vector<cluster::ExchangeDone> parts(const RunId& run, Generation generation,
                                                         const std::string& key) const;
  /// "exchange "shm": 1 of 2, missing rank 1", for status and time-outs; empty when nothing waits.
  [[nodiscard]] std::string waiting() const;
};
static_assert(has_only_state<ExchangeTable>());

/// The answer where nothing is known of it.
[[nodiscard]] inline cluster::ExchangeDone not_finished(const cluster::ExchangeAsk& ask) {
  return {ask.run, ask.generation, ask.key, 0, 0, {}};
}

}  // namespace sgd::core
