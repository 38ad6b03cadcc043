#pragma once
// Text of others (ranks, jobs, peers) on its way to a person's terminal: what would steer the terminal is shown as
// "\x1b" instead of being sent. Files and pipes get bytes as they are, and need none of this.

#include <string>
#include <string_view>

namespace sgd::cli {

enum class Steering {
  kNone,    ///< Nothing but text and tabs; a newline stays.
  kColors,  ///< Also colours (ESC [ numbers m), carriage return and backspace: what progress bars use.
};

/// Bytes that are no UTF-8 are shown as "\xNN", too: an eight-bit terminal takes some of them as controls. So are
/// characters that change the order of those behind them, or end a line.
[[nodiscard]] std::string for_terminal(std::string_view text, Steering steering);

}  // namespace sgd::cli
