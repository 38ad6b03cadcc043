#pragma once
// The only rendezvous: each rank of a generation gives one value under a key; when all have,
// everyone gets them. No store server, no port. Values that come twice must be equal, a
// finished exchange is kept so that an agent that reconnects can be answered again.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.hpp"
#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"

namespace sgd::core {

class ExchangeTable {
 public:
  static constexpr std::size_t kKeysMax = 4096;
  static constexpr std::size_t kValueBytesMax = 48 << 10;

  /// Empties the table for a generation of `world_size` ranks.
  void reset(int world_size);

  /// All values in rank order once the last one is in, nothing before, or what is wrong with the value.
  [[nodiscard]] Result<std::optional<std::vector<nlohmann::json>>> put(Rank rank, const std::string& key,
                                                                       nlohmann::json value);
  /// "exchange "shm": 1 of 2, missing rank 1", for status and time-outs; empty when nothing waits.
  [[nodiscard]] std::string waiting() const;

 private:
  int world_size_ = 0;
  std::map<std::string, std::map<Rank, nlohmann::json>> values_;
};

}  // namespace sgd::core
