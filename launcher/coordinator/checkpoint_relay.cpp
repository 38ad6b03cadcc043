#include "launcher/coordinator/checkpoint_relay.hpp"

#include <algorithm>
#include <utility>

namespace sgd::coordinator {

using What = RelayAction::What;

void CheckpointRelay::on_guest(TimePoint now, GuestId guest, RelayActions& out) {
  guests_.insert(guest);
  for (auto& [checkpoint, search] : searches_)
    if (!search.source) ask_next(now, checkpoint, search, out);
}

void CheckpointRelay::on_gone(TimePoint now, GuestId guest, RelayActions& out) {
  guests_.erase(guest);
  std::erase_if(putting_, [&](const auto& one) { return one.second == guest; });
  for (auto& [checkpoint, search] : searches_) {
    search.waiting.erase(guest);
    search.asked.erase(guest);
    if (search.source != guest) continue;
    search.reason = "the node that had it is gone";
    search.source.reset();
    search.began = now;  // It may come back.
    ask_next(now, checkpoint, search, out);
  }
  std::erase_if(searches_, [](const auto& one) { return one.second.waiting.empty(); });
}

void CheckpointRelay::on_wanted(TimePoint now, GuestId guest, const CheckpointId& checkpoint, RelayActions& out) {
  const auto [place, is_new] = searches_.try_emplace(checkpoint);
  Search& search = place->second;
  search.waiting.insert(guest);
  if (!is_new) return;
  search.began = now;
  search.news = now + kNews;
  ask_next(now, checkpoint, search, out);
}

void CheckpointRelay::on_bytes(TimePoint now, GuestId guest, const CheckpointId& checkpoint, std::int64_t bytes) {
  putting_[checkpoint] = guest;
  const auto place = searches_.find(checkpoint);
  if (place == searches_.end()) return;
  place->second.bytes += bytes;
  if (place->second.source == guest) place->second.heard = now;
}

void CheckpointRelay::on_lacks(TimePoint now, GuestId guest, const CheckpointId& checkpoint, const std::string& reason,
                               RelayActions& out) {
  putting_.erase(checkpoint);
  const auto place = searches_.find(checkpoint);
  if (place == searches_.end() || place->second.source != guest) return;
  place->second.reason = reason;
  place->second.source.reset();
  ask_next(now, checkpoint, place->second, out);
}

std::set<GuestId> CheckpointRelay::on_stored(const CheckpointId& checkpoint) {
  putting_.erase(checkpoint);
  const auto place = searches_.find(checkpoint);
  if (place == searches_.end()) return {};
  std::set<GuestId> waiting = std::move(place->second.waiting);
  searches_.erase(place);
  return waiting;
}

void CheckpointRelay::ask_next(TimePoint now, const CheckpointId& checkpoint, Search& search, RelayActions& out) {
  const auto may_ask = [&](GuestId guest) {
    return guests_.contains(guest) && !search.asked.contains(guest) && !search.waiting.contains(guest) &&
           may_have_(guest, checkpoint.run);
  };
  std::optional<GuestId> next;
  if (const auto putting = putting_.find(checkpoint); putting != putting_.end() && may_ask(putting->second))
    next = putting->second;
  for (auto guest = guests_.begin(); !next && guest != guests_.end(); ++guest)
    if (may_ask(*guest)) next = *guest;
  if (!next) return;  // Somebody may come yet.
  search.source = next;
  search.heard = now;
  search.asked.insert(*next);
  out.push_back({What::kShip, *next, checkpoint, "", 0});
}

void CheckpointRelay::on_tick(TimePoint now, RelayActions& out) {
  for (auto& [checkpoint, search] : searches_) {
    if (search.source && now >= search.heard + kSilence) {
      search.reason = "the node that has it does not send it";
      search.source.reset();
      ask_next(now, checkpoint, search, out);
    }
    if (!search.source && now >= search.began + kPatience) {
      const std::string reason = search.reason.empty() ? "no other node is connected" : search.reason;
      for (const GuestId guest : std::exchange(search.waiting, {}))
        out.push_back({What::kRefuse, guest, checkpoint, "nobody can give it: " + reason, 0});
    } else if (now >= search.news) {
      search.news = now + kNews;
      for (const GuestId guest : search.waiting) out.push_back({What::kPending, guest, checkpoint, "", search.bytes});
    }
  }
  std::erase_if(searches_, [](const auto& one) { return one.second.waiting.empty(); });
}

std::optional<TimePoint> CheckpointRelay::next_wakeup() const {
  std::optional<TimePoint> next;
  for (const auto& [checkpoint, search] : searches_) {
    const TimePoint given_up = search.source ? search.heard + kSilence : search.began + kPatience;
    const TimePoint at = std::min(given_up, search.news);
    next = next ? std::min(*next, at) : at;
  }
  return next;
}

}  // namespace sgd::coordinator
