#include "launcher/cli/wait_teller.hpp"

namespace sgd::cli {

std::string WaitTeller::line(const core::RunSnapshot& shot) {
  const bool is_waiting = shot.phase == core::RunPhase::kPlacing && !shot.reason.empty();
  if (!is_waiting || shot.wall_s < next_s_ || shot.reason == told_) return {};
  told_ = shot.reason;
  next_s_ = shot.wall_s + kBetween_s;
  return "waiting: " + told_;
}

}  // namespace sgd::cli
