#include "launcher/keeper/console_window.hpp"

#include <algorithm>

namespace sgd::keeper {

void ConsoleWindow::acknowledged(TimePoint now, std::int64_t bytes) {
  if (bytes <= 0) return;
  unacknowledged_ = std::max<std::int64_t>(0, unacknowledged_ - bytes);
  moved_at_ = now;
  if (state_ == State::kStalled) state_ = State::kHolding;
  update(now);
}

ConsoleWindow::State ConsoleWindow::update(TimePoint now) {
  const bool full = unacknowledged_ + room_ > bytes_max_;
  if (!full) {
    state_ = State::kOpen;
  } else if (state_ == State::kOpen) {
    state_ = State::kHolding;
    moved_at_ = now;
  } else if (state_ == State::kHolding && now - moved_at_ >= patience_) {
    state_ = State::kStalled;
  }
  return state_;
}

std::optional<TimePoint> ConsoleWindow::deadline() const {
  if (state_ != State::kHolding) return std::nullopt;
  return moved_at_ + patience_;
}

}  // namespace sgd::keeper
