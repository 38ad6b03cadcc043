#pragma once
// The only rendezvous: each rank of a generation gives one value under a key; when all have,
// everyone gets them. No store server, no port. Values that come twice must be equal, a
// finished exchange is kept so that an agent that reconnects can be answered again.

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/ids.hpp"
#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"
#include "launcher/core/only_state.hpp"

namespace sgd::core {

struct ExchangeState {
  int world_size_ = 0;
  std::map<std::string, std::map<Rank, nlohmann::json>> values_;
};

class ExchangeTable : private ExchangeState {
 public:
  using State = ExchangeState;
  static constexpr std::size_t kKeysMax = 4096;
  static constexpr std::size_t kValueBytesMax = 48 << 10;

  ExchangeTable() = default;
  explicit ExchangeTable(State state) : State(std::move(state)) {}
  [[nodiscard]] const State& state() const { return *this; }

  /// Empties the table for a generation of `world_size` ranks.
  void reset(int world_size);

  /// All values in rank order once the last one is in, nothing before, or what is wrong with the value.
  [[nodiscard]] Result<std::optional<std::vector<nlohmann::json>>> put(Rank rank, const std::string& key,
                                                                       nlohmann::json value);
  /// "exchange "shm": 1 of 2, missing rank 1", for status and time-outs; empty when nothing waits.
  [[nodiscard]] std::string waiting() const;
};
static_assert(has_only_state<ExchangeTable>());

}  // namespace sgd::core
