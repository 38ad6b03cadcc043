#include "common/json/suggest.hpp"

#include <algorithm>
#include <cstdlib>

namespace sgd::json {
namespace {
/// Longer words are never a slip of the hand, and the table below is quadratic.
constexpr std::size_t kWordBytesMax = 64;
}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> before(b.size() + 1);  // Row i-2, row i-1 and row i of the usual table.
  std::vector<int> above(b.size() + 1);
  std::vector<int> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) above[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int replaced = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before.swap(above);
    above.swap(row);
  }
  return above[b.size()];
}

std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.empty() || word.size() > kWordBytesMax) return std::nullopt;
  int best = word.size() <= 4 ? 2 : 3;  // One more than is accepted.
  std::optional<std::string> found;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kWordBytesMax) continue;
    // Each edit changes the length by one at most; this spares most tables where many keys are wrong.
    const std::size_t longer = std::max(word.size(), candidate.size()) - std::min(word.size(), candidate.size());
    if (longer >= static_cast<std::size_t>(best)) continue;
    const int distance = edit_distance(word, candidate);
    if (distance < best && distance < static_cast<int>(candidate.size())) {
      best = distance;
      found = candidate;
    }
  }
  return found;
}

}  // namespace sgd::json
