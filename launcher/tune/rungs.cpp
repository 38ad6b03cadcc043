#include "launcher/tune/rungs.hpp"

#include <algorithm>

#include "common/base/assert.hpp"

namespace sgd::tune {

std::vector<std::int64_t> rungs(std::int64_t first, std::int64_t last, std::int64_t factor) {
  SGD_ASSERT(first >= 1 && first <= last && factor >= 2);
  std::vector<std::int64_t> out{first};
  while (out.back() <= last / factor) out.push_back(out.back() * factor);
  return out;
}

std::optional<int> rung_at(const std::vector<std::int64_t>& rungs, std::int64_t iteration) {
  const auto above = std::upper_bound(rungs.begin(), rungs.end(), iteration);
  if (above == rungs.begin()) return std::nullopt;
  return static_cast<int>(above - rungs.begin()) - 1;
}

}  // namespace sgd::tune
