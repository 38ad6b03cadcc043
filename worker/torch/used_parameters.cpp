#include "worker/torch/used_parameters.hpp"

#include <string>

#include "common/base/assert.hpp"

namespace sgd::worker {

UsedParameters::UsedParameters(Collective& collective, std::size_t count)
    : collective_(collective), told_(count, true), used_(count, true) {}

std::uint32_t UsedParameters::control_word(const std::vector<bool>& own) const {
  return own == told_ ? 0 : control::kUsedChanged;
}

const std::vector<bool>& UsedParameters::agree(std::uint32_t agreed, const std::vector<bool>& own) {
  if ((agreed & control::kUsedChanged) == 0) return used_;
  told_ = own;
  std::string text(own.size(), '0');
  for (std::size_t i = 0; i < own.size(); ++i)
    if (own[i]) text[i] = '1';
  used_.assign(own.size(), false);
  for (const std::string& one : collective_.all_gather(text)) {
    SGD_ASSERT(one.size() == used_.size());
    for (std::size_t i = 0; i < one.size(); ++i)
      if (one[i] == '1') used_[i] = true;
  }
  return used_;
}

}  // namespace sgd::worker
