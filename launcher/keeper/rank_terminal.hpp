#pragma once
// A terminal of a rank's own, so that it shows colours and bars: bytes come as they are written (no \r before \n), and
// what is typed is not echoed, since the terminal in front of us has done so.

#include "common/base/result.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::keeper {

struct RankTerminal {
  process::UniqueFd master;  ///< Non-blocking.
  process::UniqueFd slave;
};

[[nodiscard]] Result<RankTerminal> open_terminal();

/// `master`'s gets the size of ours, if we have one.
void take_size(int master);

}  // namespace sgd::keeper
