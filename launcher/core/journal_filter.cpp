#include "launcher/core/journal_filter.hpp"

#include <algorithm>

#include "launcher/core/watchdog.hpp"

namespace sgd::core {

void JournalFilter::take(TimePoint now, const AgentEvent& event, bool was_soft, std::vector<TimedEvent>& out) {
  const auto* from_worker = std::get_if<agent_event::FromWorker>(&event);
  const auto* beat = from_worker == nullptr ? nullptr : std::get_if<link::Heartbeat>(&from_worker->message);
  if (beat != nullptr) {
    // A link's first heartbeat is written: for a command, it begins the watch.
    const auto [place, is_first] = heartbeats_.try_emplace(from_worker->connection);
    HeldHeartbeats& beats = place->second;
    const bool is_same = !is_first && Watchdog::has_same_progress(beats.newest, *beat);
    beats.newest = *beat;
    if (was_soft && !is_first) {
      (is_same ? beats.last : beats.first) = TimedEvent{now, event};
      if (!is_same) beats.last.reset();
      return;
    }
  } else if (was_soft && !(from_worker != nullptr && link::is_counted(from_worker->message))) {
    return;
  }
  write_held(out);
  out.push_back({now, event});
  if (const auto* closed = std::get_if<agent_event::LinkClosed>(&event)) heartbeats_.erase(closed->connection);
}

void JournalFilter::write_held(std::vector<TimedEvent>& out) {
  const auto begin = static_cast<std::ptrdiff_t>(out.size());
  for (auto& [connection, beats] : heartbeats_) {
    for (std::optional<TimedEvent>* held : {&beats.first, &beats.last}) {
      if (*held) out.push_back(std::move(**held));
      held->reset();
    }
  }
  std::stable_sort(out.begin() + begin, out.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
}

}  // namespace sgd::core
