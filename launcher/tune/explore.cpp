#include "launcher/tune/explore.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "launcher/tune/keyed_random.hpp"

namespace sgd::tune {
namespace {

/// The value beside it in the list, the same at an end. It is in the list.
nlohmann::json neighbour(const Domain& domain, const nlohmann::json& value, bool to_right) {
  const auto place = std::find(domain.values.begin(), domain.values.end(), value);
  SGD_ASSERT(place != domain.values.end());
  if (to_right) return place + 1 == domain.values.end() ? *place : *(place + 1);
  return place == domain.values.begin() ? *place : *(place - 1);
}

}  // namespace

Explored explore(const Values& values, const Parameters& parameters, const ExploreRules& rules, std::uint64_t seed,
                 TrialId trial, std::uint64_t round) {
  Explored out{values, {}};
  for (const std::string& path : rules.mutates) {
    const Domain& domain = parameters.domains.at(path);
    KeyedRandom random(seed, "explore " + path, static_cast<std::uint64_t>(trial), round);
    const bool is_listed = !domain.values.empty();
    const bool is_movable = is_listed ? domain.contains(values.at(path)) : values.at(path).is_number();
    nlohmann::json& value = out.values[path];
    if (random.unit() < rules.resample_probability || !is_movable) {
      value = domain.draw(random);
      out.changes.push_back(fmt::format("{} drawn anew", path));
    } else if (is_listed) {
      const bool to_right = random.below(2) == 1;
      value = neighbour(domain, value, to_right);
      out.changes.push_back(fmt::format("{} to the {}", path, to_right ? "right" : "left"));
    } else {
      const double factor = rules.factors[random.below(rules.factors.size())];
      value = domain.moved(value, factor);
      out.changes.push_back(fmt::format("{} * {}", path, factor));
    }
  }
  return out;
}

}  // namespace sgd::tune
