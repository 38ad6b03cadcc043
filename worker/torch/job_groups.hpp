#pragma once
// The groups of a job's optimizer: which parameters have settings of their own.

#include <set>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "common/job/spec.hpp"
#include "worker/torch/named_models.hpp"

namespace sgd::worker {

struct ParameterGroup {
  job::Optimizer settings;
  std::vector<at::Tensor> parameters;
};

class JobGroups {
 public:
  /// `training` must outlive this object.
  explicit JobGroups(const job::Training& training) : training_(training) {}

  /// The first has the optimizer's settings, and those parameters that no group names; then those of the job's groups
  /// that name some of `parameters`. Names are those of checkpoints; a tied parameter has several.
  [[nodiscard]] std::vector<ParameterGroup> divided(const std::vector<at::Tensor>& parameters,
                                                    const NamedModels& models);
  /// After that for all parameters: throws where a pattern has named none, with some names that there are.
  void check_all_used(const NamedModels& models) const;

 private:
  const job::Training& training_;
  std::set<std::string> used_;  // Patterns.
};

}  // namespace sgd::worker
