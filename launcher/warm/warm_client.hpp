#pragma once
// One question to the warm server of this user, for verbs. Blocks, with a deadline.

#include <optional>
#include <string>

#include "common/base/result.hpp"
#include "common/base/time.hpp"
#include "common/messages/warm.hpp"

namespace sgd::warm {

/// Nothing: no server is there. Error: it does not answer, or not what it should.
[[nodiscard]] Result<std::optional<FromServer>> ask_server(const std::string& socket, const ToServer& question,
                                                           Duration limit);

}  // namespace sgd::warm
