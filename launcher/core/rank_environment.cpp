#include "launcher/core/rank_environment.hpp"

#include <fmt/format.h>

namespace sgd::core {

std::map<std::string, std::string> rank_environment(const cluster::DesiredRun& run, const RankIdentity& identity) {
  const auto number = [](auto value) { return fmt::format("{}", value); };
  std::map<std::string, std::string> env = {
      {"SGD_LINK", identity.link_path},
      {"SGD_TOKEN", identity.token},
      {"SGD_RUN_ID", run.run},
      {"SGD_RUN_DIR", run.run_dir},
      {"SGD_GENERATION", number(run.generation)},
      {"SGD_NODE_RANK", number(run.node_rank)},
      {"SGD_CHECKPOINT_DIR", run.run_dir + "/checkpoints"},
      {"SGD_RESUME_FROM", run.resume_from.empty() ? "" : run.resume_from.front()},
  };
  if (identity.agent_wait) env["SGD_AGENT_WAIT"] = number(to_seconds(*identity.agent_wait));
  if (!run.job.contains("command")) return env;
  const auto max_failures = run.job.at("recovery").at("max_failures");
  env.insert({
      {"RANK", number(identity.rank)},
      {"LOCAL_RANK", number(identity.local_rank)},
      {"WORLD_SIZE", number(run.world_size)},
      {"LOCAL_WORLD_SIZE", number(identity.local_world_size)},
      {"GROUP_RANK", number(run.node_rank)},
      {"GROUP_WORLD_SIZE", number(run.node_count)},
      {"ROLE_RANK", number(identity.rank)},
      {"ROLE_NAME", "default"},
      {"ROLE_WORLD_SIZE", number(run.world_size)},
      {"MASTER_ADDR", run.master_address},
      {"MASTER_PORT", number(run.master_port)},
      {"TORCHELASTIC_RESTART_COUNT", number(run.restart_count)},
      {"TORCHELASTIC_MAX_RESTARTS", max_failures.is_number() ? max_failures.dump() : "-1"},
      {"TORCHELASTIC_RUN_ID", run.run},
      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
      {"TORCHELASTIC_ERROR_FILE", identity.error_file},
      {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT"},
      {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
      {"PYTHONUNBUFFERED", "1"},
  });
  return env;
}

}  // namespace sgd::core
