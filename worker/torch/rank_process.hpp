#pragma once
// One rank: from the environment's SGD_LINK and SGD_TOKEN to an exit code. The same code runs in
// a process of its own and in a child of the fork server.

#include <cstdint>
#include <memory>

#include "common/json/nlohmann.hpp"

namespace sgd {
class Model;
}

namespace sgd::worker {

class Dataset;

/// What the fork server has loaded before the fork; used if the assignment's job names the same model and data.
struct Preloaded {
  nlohmann::json model_settings;
  nlohmann::json dataset_settings;  ///< As data_settings() has them.
  std::shared_ptr<const Dataset> dataset;
  std::uint64_t seed = 0;
  std::shared_ptr<Model> model;  ///< As that seed initializes it. A fork gets it for nothing; good for one training.
};

/// Takes an assignment, trains, and returns one of worker_exit. Reports its own errors.
[[nodiscard]] int run_rank(const Preloaded& preloaded);

/// A closed link, a closed pipe, a file over its limit: each is an error code of the write, not a death. A request
/// for a stack is nothing before training.
void ignore_signals();

/// Settings of the process that must come before the first tensor: see the definition.
void prepare_process();

}  // namespace sgd::worker
