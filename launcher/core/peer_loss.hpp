#pragma once
// Words by which a command's rank says that it has lost another one: a consequence of that one's failure.

#include <string>
#include <vector>

#include "common/messages/rank_error.hpp"

namespace sgd::core {

[[nodiscard]] bool is_peer_loss(const RankError& error);
/// Of the last lines of an output that has no traceback.
[[nodiscard]] bool tells_peer_loss(const std::vector<std::string>& tail);

/// It would fail again the same way: the program is not there, or is none. The exit code tells whether that has ended
/// it: what was caught and printed has not.
[[nodiscard]] bool is_beyond_restart(const RankError& error, int exit_code);

/// "ValueError: loss is NaN": one line, the first one of its message.
[[nodiscard]] std::string words(const RankError& error);
/// The same with all lines of its message.
[[nodiscard]] std::string whole_words(const RankError& error);

}  // namespace sgd::core
