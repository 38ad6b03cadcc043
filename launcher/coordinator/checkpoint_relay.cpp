#include "launcher/coordinator/checkpoint_relay.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace sgd::coordinator {

using What = RelayAction::What;

void CheckpointRelay::on_peer(TimePoint now, PeerId peer, RelayActions& out) {
  peers_.insert(peer);
  for (auto& [checkpoint, search] : searches_)
    if (!search.source) ask_next(now, checkpoint, search, out);
}

void CheckpointRelay::on_gone(TimePoint now, PeerId peer, RelayActions& out) {
  peers_.erase(peer);
  putting_.erase(peer);
  wanted_.erase(peer);
  for (auto& [checkpoint, search] : searches_) {
    search.waiting.erase(peer);
    search.asked.erase(peer);
    if (search.source != peer) continue;
    search.reason = "the node that had it is gone";
    search.source.reset();
    search.began = now;  // It may come back.
    ask_next(now, checkpoint, search, out);
  }
  std::erase_if(searches_, [](const auto& one) { return one.second.waiting.empty(); });
}

void CheckpointRelay::on_wanted(TimePoint now, PeerId peer, const CheckpointId& checkpoint, RelayActions& out) {
  const auto known = searches_.find(checkpoint);
  if (known != searches_.end() && known->second.waiting.contains(peer)) return;
  if (const auto own = wanted_.find(peer); own != wanted_.end() && own->second >= kWantedMax)
    return out.push_back({What::kRefuse, peer, checkpoint,
                          fmt::format("{} checkpoints are looked for on its behalf already", kWantedMax), 0});
  const auto [place, is_new] = searches_.try_emplace(checkpoint);
  Search& search = place->second;
  search.waiting.insert(peer);
  ++wanted_[peer];
  if (!is_new) return;
  search.began = now;
  search.news = now + kNews;
  ask_next(now, checkpoint, search, out);
}

void CheckpointRelay::on_bytes(TimePoint now, PeerId peer, const CheckpointId& checkpoint, std::int64_t bytes) {
  putting_[peer] = checkpoint;
  const auto place = searches_.find(checkpoint);
  if (place == searches_.end()) return;
  place->second.bytes += bytes;
  if (place->second.source == peer) place->second.heard = now;
}

void CheckpointRelay::on_lacks(TimePoint now, PeerId peer, const CheckpointId& checkpoint, const std::string& reason,
                               RelayActions& out) {
  if (const auto putting = putting_.find(peer); putting != putting_.end() && putting->second == checkpoint)
    putting_.erase(putting);
  const auto place = searches_.find(checkpoint);
  if (place == searches_.end() || place->second.source != peer) return;
  place->second.reason = reason;
  place->second.source.reset();
  ask_next(now, checkpoint, place->second, out);
}

std::set<PeerId> CheckpointRelay::on_stored(const CheckpointId& checkpoint) {
  std::erase_if(putting_, [&](const auto& one) { return one.second == checkpoint; });
  const auto place = searches_.find(checkpoint);
  if (place == searches_.end()) return {};
  std::set<PeerId> waiting = release(place->second);
  searches_.erase(place);
  return waiting;
}

std::set<PeerId> CheckpointRelay::release(Search& search) {
  for (const PeerId peer : search.waiting)
    if (const auto own = wanted_.find(peer); own != wanted_.end() && --own->second == 0) wanted_.erase(own);
  return std::exchange(search.waiting, {});
}

void CheckpointRelay::ask_next(TimePoint now, const CheckpointId& checkpoint, Search& search, RelayActions& out) {
  const auto may_ask = [&](PeerId peer) {
    return peers_.contains(peer) && !search.asked.contains(peer) && !search.waiting.contains(peer) &&
           may_have_(peer, checkpoint.run);
  };
  std::optional<PeerId> next;
  for (const auto& [peer, its] : putting_)
    if (!next && its == checkpoint && may_ask(peer)) next = peer;
  for (auto peer = peers_.begin(); !next && peer != peers_.end(); ++peer)
    if (may_ask(*peer)) next = *peer;
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
      for (const PeerId peer : release(search))
        out.push_back({What::kRefuse, peer, checkpoint, "nobody can give it: " + reason, 0});
    } else if (now >= search.news) {
      search.news = now + kNews;
      for (const PeerId peer : search.waiting) out.push_back({What::kPending, peer, checkpoint, "", search.bytes});
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
