#pragma once
// What a rank of a command is told for another framework than torch, where the job's `process.backend` names one:
// TF_CONFIG (MultiWorkerMirroredStrategy) and Horovod's variables, as RaySGD's backends set them. A Horovod job that
// uses its Gloo controller meets at an HTTP server; where that would be is told, and the program starts it on rank 0.

#include <map>
#include <string>

#include "launcher/core/rank_environment.hpp"

namespace sgd::core {

/// Into `env`, which has torchrun's variables already.
void add_backend(const cluster::DesiredRun& run, const RankIdentity& identity, std::map<std::string, std::string>& env);

}  // namespace sgd::core
