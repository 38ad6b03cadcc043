#pragma once
// Which parameters have had a gradient in a step on any rank: only those are updated. A parameter that is frozen, or
// that the loss does not reach, keeps its weights, as in PyTorch: no weight decay, no momentum. It costs a message only
// in the steps in which some rank's set has changed.

#include <cstdint>
#include <vector>

#include "worker/collective/collective.hpp"

namespace sgd::worker {

class UsedParameters {
 public:
  /// `collective` must outlive this object. All count as used until something else is told.
  UsedParameters(Collective& collective, std::size_t count);

  /// What goes into the step's control word: whether this rank's set is another than the one it told last.
  [[nodiscard]] std::uint32_t control_word(const std::vector<bool>& own) const;
  /// After the step's all_reduce, with what all agreed on. Collective where some rank's set has changed. Returns the
  /// parameters that some rank has used.
  const std::vector<bool>& agree(std::uint32_t agreed, const std::vector<bool>& own);

 private:
  Collective& collective_;
  std::vector<bool> told_;
  std::vector<bool> used_;
};

}  // namespace sgd::worker
