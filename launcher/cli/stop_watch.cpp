#include "launcher/cli/stop_watch.hpp"

namespace sgd::cli {

void StopWatch::on_trouble(const std::string& what) {
  trouble_ = what;
  if (is_waiting_) look();
}

void StopWatch::on_stop(Duration grace, bool at_once) {
  const bool is_first = !std::exchange(is_asked_, true);
  if (at_once) return look();
  if (is_first) timer_.after(grace, [this] { look(); });
}

void StopWatch::look() {
  is_waiting_ = true;
  if (std::exchange(is_stored_, false)) handlers_.when_stored([this] { is_stored_ = true; });
  timer_.after(trouble_.empty() ? kPatience : kTroubled, [this] {
    if (is_stored_) return look();
    timer_.cancel();
    handlers_.on_given_up(trouble_);
  });
}

}  // namespace sgd::cli
