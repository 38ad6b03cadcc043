#pragma once
// Where each value of a job comes from: for people who wonder why a run does what it does.

#include <string>
#include <vector>

#include "common/job/load.hpp"
#include "common/json/nlohmann.hpp"

namespace sgd::job {

struct Setting {
  std::string path;      ///< "training.optimizer.lr"
  nlohmann::json value;  ///< As the resolved job has it: no object but an empty one.
  std::string origin;    ///< "job.json:12", "--set training.optimizer.lr", "--num-workers", or "default".
};

/// All settings of a job that was loaded without an error, in the order of their paths.
[[nodiscard]] std::vector<Setting> settings(const LoadResult& loaded);

}  // namespace sgd::job
