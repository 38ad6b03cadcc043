#include "worker/torch/job_groups.hpp"

#include <fnmatch.h>

#include <algorithm>

#include <fmt/format.h>

#include "common/json/words.hpp"
#include "worker/torch/errors.hpp"

namespace sgd::worker {
namespace {

constexpr std::size_t kNamesShown = 5;

}  // namespace

std::vector<ParameterGroup> JobGroups::divided(const std::vector<at::Tensor>& parameters, const NamedModels& models) {
  std::vector<ParameterGroup> all(1 + training_.optimizer_groups.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].settings = training_.optimizer;
    if (i == 0) continue;
    const job::OptimizerGroup& group = training_.optimizer_groups[i - 1];
    all[i].settings.lr = group.lr.value_or(training_.optimizer.lr);
    all[i].settings.weight_decay = group.weight_decay.value_or(training_.optimizer.weight_decay);
  }
  const auto names = named_parameters(models);
  for (const at::Tensor& parameter : parameters) {
    std::size_t of = 0;
    for (std::size_t i = 1; i < all.size() && of == 0; ++i) {
      for (const std::string& pattern : training_.optimizer_groups[i - 1].parameters) {
        for (const auto& [name, named] : names) {
          if (!named.is_same(parameter) || ::fnmatch(pattern.c_str(), name.c_str(), 0) != 0) continue;
          used_.insert(pattern);
          of = i;
        }
      }
    }
    all[of].parameters.push_back(parameter);
  }
  std::erase_if(all, [&all](const ParameterGroup& one) { return &one != all.data() && one.parameters.empty(); });
  return all;
}

void JobGroups::check_all_used(const NamedModels& models) const {
  for (std::size_t i = 0; i < training_.optimizer_groups.size(); ++i) {
    for (const std::string& pattern : training_.optimizer_groups[i].parameters) {
      if (used_.contains(pattern)) continue;
      std::string shown;
      const auto names = named_parameters(models);
      for (std::size_t at = 0; at < std::min(names.size(), kNamesShown); ++at)
        shown += (at == 0 ? "" : ", ") + names[at].first;
      if (names.size() > kNamesShown) shown += fmt::format(" and {} more", names.size() - kNamesShown);
      throw ConfigurationError(
          fmt::format("\"training.optimizer.groups[{}].parameters\": {} names no parameter of its own; there are {}", i,
                      json::quote(pattern), shown));
    }
  }
}

}  // namespace sgd::worker
