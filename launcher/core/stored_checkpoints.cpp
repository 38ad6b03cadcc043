#include "launcher/core/stored_checkpoints.hpp"

#include <algorithm>

namespace sgd::core {
namespace {

bool counts(const Arrival& arrival) {
  return arrival.is_accepted && arrival.is_stored;
}

Arrivals::const_iterator newest(const Arrivals& arrivals) {
  const auto last = std::find_if(arrivals.rbegin(), arrivals.rend(), counts);
  return last == arrivals.rend() ? arrivals.end() : last.base() - 1;
}

/// What has come and nobody has accepted yet.
Arrivals::const_iterator first_claim(const Arrivals& arrivals) {
  return std::find_if(arrivals.begin(), arrivals.end(), [](const Arrival& one) { return !one.is_accepted; });
}

/// Takes away what is before the newest that counts, and what is too much.
void shorten(Arrivals& arrivals) {
  if (const auto last = newest(arrivals); last != arrivals.end()) arrivals.erase(arrivals.begin(), last);
  if (arrivals.size() <= kArrivalsMax) return;
  const auto claim = first_claim(arrivals);
  const bool is_first_needed = counts(arrivals.front());
  arrivals.erase(claim != arrivals.end() ? claim : arrivals.begin() + (is_first_needed ? 1 : 0));
}

}  // namespace

void note_accepted(const std::string& path, Arrivals& arrivals) {
  const bool has_come = is_stored(path, arrivals);
  std::erase_if(arrivals, [&](const Arrival& one) { return one.path == path; });
  arrivals.insert(first_claim(arrivals), {path, true, has_come});
  shorten(arrivals);
}

void note_stored(const std::string& path, Arrivals& arrivals) {
  const auto known =
      std::find_if(arrivals.begin(), arrivals.end(), [&](const Arrival& one) { return one.path == path; });
  if (known == arrivals.end())
    arrivals.push_back({path, false, true});
  else
    known->is_stored = true;
  shorten(arrivals);
}

void note_rejected(const std::string& path, Arrivals& arrivals) {
  std::erase_if(arrivals, [&](const Arrival& one) { return path.ends_with(one.path); });
}

bool is_stored(const std::string& path, const Arrivals& arrivals) {
  return std::any_of(arrivals.begin(), arrivals.end(),
                     [&](const Arrival& one) { return one.is_stored && one.path == path; });
}

std::string newest_stored(const Arrivals& arrivals) {
  const auto last = newest(arrivals);
  return last == arrivals.end() ? std::string() : last->path;
}

std::vector<std::string> with_newest_stored(std::vector<std::string> kept, const Arrivals& arrivals) {
  const auto last = newest(arrivals);
  if (last == arrivals.end() || std::find(kept.begin(), kept.end(), last->path) != kept.end()) return kept;
  const auto is_newer = [&](const std::string& path) {
    return std::any_of(last, arrivals.end(), [&](const Arrival& one) { return one.path == path; });
  };
  kept.insert(std::find_if(kept.begin(), kept.end(), is_newer), last->path);
  return kept;
}

}  // namespace sgd::core
