#include "launcher/coordinator/checkpoint_relay.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace sgd::coordinator {

using What = RelayAction::What;

void CheckpointRelay::on_guest(TimePoint now, GuestId guest, RelayActions& out) {
  guests_.insert(guest);
  for (auto& [checkpoint, search] : searches_)
    if (!search.source) ask_next(now, checkpoint, search, out);
}

void CheckpointRelay::on_gone(TimePoint now, GuestId guest, RelayActions& out) {
  guests_.erase(guest);
  putting_.erase(guest);
  wanted_.erase(guest);
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
  const auto known = searches_.find(checkpoint);
  if (known != searches_.end() && known->second.waiting.contains(guest)) return;
  if (const auto own = wanted_.find(guest); own != wanted_.end() && own->second >= kWantedMax)
    return out.push_back({What::kRefuse, guest, checkpoint,
                          fmt::format("{} checkpoints are looked for on its behalf already", kWantedMax), 0});
  const auto [place, is_new] = searches_.try_emplace(checkpoint);
  Search& search = place->second;
  search.waiting.insert(guest);
  ++wanted_[guest];
  if (!is_new) return;
  search.began = now;
  search.news = now + kNews;
  ask_next(now, checkpoint, search, out);
}

void CheckpointRelay::on_bytes(TimePoint now, GuestId guest, const CheckpointId& checkpoint, std::int64_t bytes) {
  putting_[guest] = checkpoint;
  const auto place = searches_.find(checkpoint);
  if (place == searches_.end()) return;
  place->second.bytes += bytes;
  if (place->second.source == guest) place->second.heard = now;
}

void CheckpointRelay::on_lacks(TimePoint now, GuestId guest, const CheckpointId& checkpoint, const std::string& reason,
                               RelayActions& out) {
  if (const auto putting = putting_.find(guest); putting != putting_.end() && putting->second == checkpoint)
    putting_.erase(putting);
  const auto place = searches_.find(checkpoint);
  if (place == searches_.end() || place->second.source != guest) return;
  place->second.reason = reason;
  place->second.source.reset();
  ask_next(now, checkpoint, place->second, out);
}

std::set<GuestId> CheckpointRelay::on_stored(const CheckpointId& checkpoint) {
  std::erase_if(putting_, [&](const auto& one) { return one.second == checkpoint; });
  const auto place = searches_.find(checkpoint);
  if (place == searches_.end()) return {};
  std::set<GuestId> waiting = release(place->second);
  searches_.erase(place);
  return waiting;
}

std::set<GuestId> CheckpointRelay::release(Search& search) {
  for (const GuestId guest : search.waiting)
    if (const auto own = wanted_.find(guest); own != wanted_.end() && --own->second == 0) wanted_.erase(own);
  return std::exchange(search.waiting, {});
}

void CheckpointRelay::ask_next(TimePoint now, const CheckpointId& checkpoint, Search& search, RelayActions& out) {
  const auto may_ask = [&](GuestId guest) {
    return guests_.contains(guest) && !search.asked.contains(guest) && !search.waiting.contains(guest) &&
           may_have_(guest, checkpoint.run);
  };
  std::optional<GuestId> next;
  for (const auto& [guest, its] : putting_)
    if (!next && its == checkpoint && may_ask(guest)) next = guest;
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
      for (const GuestId guest : release(search))
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
