#include "launcher/tune/trial_list.hpp"

#include <utility>
#include <vector>

#include "common/base/assert.hpp"

namespace sgd::tune {
namespace {

bool is_walked(const Domain& domain, ListKind kind) {
  return kind == ListKind::kGrid || domain.kind == DomainKind::kGrid;
}

}  // namespace

std::optional<std::uint64_t> points(const Parameters& parameters, ListKind kind) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 63;
  std::uint64_t product = 1;
  for (const auto& [path, domain] : parameters.domains) {
    if (!is_walked(domain, kind)) continue;
    const auto count = domain.count();
    if (!count || *count > kMost / product) return std::nullopt;
    product *= *count;
  }
  return product;
}

TrialList::TrialList(Parameters parameters, ListKind kind, std::uint64_t samples, std::uint64_t seed)
    : parameters_(std::move(parameters)), kind_(kind), seed_(seed) {
  const auto grid = points(parameters_, kind);
  SGD_ASSERT(grid && samples >= 1 && samples <= kTrialsMax && *grid <= kTrialsMax / samples);
  size_ = static_cast<TrialId>(*grid * samples);
}

Trial TrialList::at(TrialId id) const {
  SGD_ASSERT(id >= 0 && id < size_);
  Trial trial{id, Values::object()};
  auto point = static_cast<std::uint64_t>(id);  // Its last digits; what is above is the sample's number.
  for (auto one = parameters_.domains.rbegin(); one != parameters_.domains.rend(); ++one) {
    const auto& [path, domain] = *one;
    if (is_walked(domain, kind_)) {
      const std::uint64_t count = *domain.count();
      trial.values[path] = domain.value_at(point % count);
      point /= count;
    } else {
      KeyedRandom random(seed_, path, static_cast<std::uint64_t>(id));
      trial.values[path] = domain.draw(random);
    }
  }
  return trial;
}

}  // namespace sgd::tune
