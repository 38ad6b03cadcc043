#pragma once
// When the console is shown a line that is still being written: a bar (its writer goes back with \r) as it moves, and
// a question that waits for an answer once its writer is quiet. Pure: the time is an argument.

#include <optional>
#include <string_view>

#include "common/base/time.hpp"

namespace sgd::keeper {

class OpenLine {
 public:
  /// Of a bar, from one frame to the next; of another line, from its last byte on.
  static constexpr Duration kPause = std::chrono::milliseconds(100);

  /// `line` is what there is of it by now; empty: there is none.
  void changed(TimePoint now, std::string_view line) {
    is_pending_ = !line.empty();
    is_bar_ = !line.empty() && line.front() == '\r';
    changed_at_ = now;
  }
  void shown(TimePoint now) {
    is_pending_ = false;
    shown_at_ = now;
  }
  /// When it is to be shown; nothing: what there is of it is shown.
  [[nodiscard]] std::optional<TimePoint> deadline() const {
    if (!is_pending_) return std::nullopt;
    return (is_bar_ ? shown_at_ : changed_at_) + kPause;
  }

 private:
  bool is_pending_ = false;
  bool is_bar_ = false;
  TimePoint changed_at_{};
  TimePoint shown_at_{};
};

}  // namespace sgd::keeper
