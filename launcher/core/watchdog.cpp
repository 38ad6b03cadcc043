#include "launcher/core/watchdog.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace sgd::core {

bool Watchdog::has_same_progress(const link::Heartbeat& left, const link::Heartbeat& right) {
  return left.step == right.step && left.epoch == right.epoch && left.phase == right.phase &&
         left.samples == right.samples && left.fetched == right.fetched;
}

bool Watchdog::suspects(Rank rank) const {
  const auto place = ranks_.find(rank);
  return place != ranks_.end() && place->second.suspect_until;
}

void Watchdog::renew(TimePoint now) {
  for (auto& [number, rank] : ranks_) {
    rank.heard_at = rank.advanced_at = now;
    rank.beat = {};
    rank.suspect_until.reset();
    rank.is_told = false;
  }
}

void Watchdog::pause(Rank rank) {
  const auto place = ranks_.find(rank);
  if (place == ranks_.end()) return;
  place->second.is_paused = true;
  place->second.suspect_until.reset();
}

void Watchdog::resume(TimePoint now, Rank rank) {
  const auto place = ranks_.find(rank);
  if (place == ranks_.end()) return;
  place->second.is_paused = false;
  place->second.heard_at = place->second.advanced_at = now;
}

void Watchdog::reset(Duration timeout, Duration stall_timeout) {
  timeout_ = timeout;
  stall_timeout_ = stall_timeout;
  ranks_.clear();
}

void Watchdog::on_spawned(TimePoint now, Rank rank) {
  Watched& watched = ranks_[rank];
  watched.heard_at = watched.advanced_at = now;
}

void Watchdog::on_hello(TimePoint now, Rank rank) {
  Watched& watched = ranks_[rank];
  watched.has_said_hello = true;
  watched.heard_at = watched.advanced_at = now;
  watched.suspect_until.reset();
}

void Watchdog::on_heartbeat(TimePoint now, Rank rank, const link::Heartbeat& beat) {
  const auto place = ranks_.find(rank);
  if (place == ranks_.end()) return;  // The last one of a rank that has ended, or is being cleared.
  Watched& watched = place->second;
  if (!has_same_progress(watched.beat, beat)) watched.advanced_at = now;
  watched.has_said_hello = true;
  watched.heard_at = now;
  watched.beat = beat;
  if (now < deadline(watched)) watched.suspect_until.reset();
}

TimePoint Watchdog::deadline(const Watched& rank) const {
  if (!rank.has_said_hello) return rank.heard_at + std::max(kHelloTimeout, timeout_);
  return std::min(rank.heard_at + timeout_, rank.advanced_at + stall_timeout_);
}

std::vector<Silence> Watchdog::look(TimePoint now) {
  std::vector<Silence> silent;
  const bool is_late = std::any_of(ranks_.begin(), ranks_.end(), [&](const auto& rank) {
    const TimePoint due = rank.second.suspect_until.value_or(deadline(rank.second));
    return rank.second.is_watched() && now >= due + kLateLook;
  });
  for (auto& [number, rank] : ranks_) {
    if (!rank.is_watched()) continue;
    if (is_late) {
      rank.heard_at = rank.advanced_at = now;
      rank.suspect_until.reset();
    } else if (now >= deadline(rank) && !rank.suspect_until) {
      rank.suspect_until = now + kSecondLook;
    } else if (rank.suspect_until && now >= *rank.suspect_until) {
      rank.is_told = true;
      silent.push_back(describe(now, number, rank));
    }
  }
  return silent;
}

Silence Watchdog::describe(TimePoint now, Rank number, const Watched& rank) const {
  Silence silence;
  silence.rank = number;
  silence.is_stalled = rank.has_said_hello && now < rank.heard_at + timeout_;
  silence.is_waiting = silence.is_stalled && rank.beat.waiting;
  silence.silent_s = to_seconds(now - (silence.is_stalled ? rank.advanced_at : rank.heard_at));
  const std::string place =
      rank.has_said_hello
          ? fmt::format(", in {}, step {}", rank.beat.phase.empty() ? "start" : rank.beat.phase, rank.beat.step)
          : "";
  if (!rank.has_said_hello) {
    silence.words = fmt::format("no word for {:.1f} s since its start", silence.silent_s);
  } else if (silence.is_stalled) {
    silence.words = fmt::format("no progress for {:.1f} s{}{}", silence.silent_s, place,
                                silence.is_waiting ? ", waiting for another rank" : "");
  } else {
    silence.words = fmt::format("no heartbeat for {:.1f} s{}", silence.silent_s, place);
  }
  return silence;
}

std::optional<TimePoint> Watchdog::next_look() const {
  std::optional<TimePoint> next;
  for (const auto& [number, rank] : ranks_) {
    if (!rank.is_watched()) continue;
    const TimePoint at = rank.suspect_until.value_or(deadline(rank));
    next = next ? std::min(*next, at) : at;
  }
  return next;
}

}  // namespace sgd::core
