#pragma once
// The trials of an experiment that needs no search program: every point of the grids, `samples` times, the other
// parameters drawn for each. Trial i follows from (parameters, seed, i) alone: ten thousand trials are no list, and
// more samples later change none of those before. The last parameter's grid changes fastest; a whole grid comes before
// its next sample.

#include <cstdint>
#include <optional>

#include "launcher/tune/parameters.hpp"

namespace sgd::tune {

enum class ListKind {
  kRandom,  ///< Grids are walked, everything else is drawn.
  kGrid,    ///< Every value of every parameter is walked; each must be countable.
};

/// Grid points; nothing when they are more than 2^63, or a parameter cannot be counted.
[[nodiscard]] std::optional<std::uint64_t> points(const Parameters& parameters, ListKind kind);

class TrialList {
 public:
  /// points() times `samples` is at most kTrialsMax, asserted.
  TrialList(Parameters parameters, ListKind kind, std::uint64_t samples, std::uint64_t seed);

  [[nodiscard]] TrialId size() const { return size_; }
  /// `id` is below size().
  [[nodiscard]] Trial at(TrialId id) const;

 private:
  Parameters parameters_;
  ListKind kind_;
  std::uint64_t seed_;
  TrialId size_;
};

}  // namespace sgd::tune
