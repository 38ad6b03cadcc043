#pragma once
// What the tables of the store hold, read over any connection to them: the state as it was at one event, and the events
// behind it.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/base/time.hpp"
#include "launcher/storage/database.hpp"
#include "launcher/storage/state_codec.hpp"

namespace sgd::storage {

struct StoredEvent {
  std::uint64_t id = 0;
  TimePoint at;
  std::string text;  ///< As encode_event() makes it.
};

/// Where the log begins: behind this event, which is in the state with all before it.
struct CutMark {
  std::uint64_t event = 0;  ///< 0: nothing was ever cut.
  TimePoint at;
};

[[nodiscard]] Result<CutMark> read_cut(const Database& database);
[[nodiscard]] Result<std::vector<StateRow>> read_states(const Database& database);
inline constexpr std::int64_t kAllEvents = -1;
/// Those behind `cut`, in their order, up to the event `last`, at most `most` of them; an error of `take` ends it, as
/// does a missing event.
[[nodiscard]] Status read_events(const Database& database, const CutMark& cut, std::uint64_t last,
                                 const std::function<Status(StoredEvent)>& take, std::int64_t most = kAllEvents);

}  // namespace sgd::storage
