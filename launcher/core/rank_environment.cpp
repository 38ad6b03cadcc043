#include "launcher/core/rank_environment.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/replace_all.hpp"
#include "common/json/lenient.hpp"
#include "launcher/core/backend_environment.hpp"

namespace sgd::core {
namespace {

using Variables = std::map<std::string, std::string>;

std::string text(std::int64_t number) {
  return fmt::format("{}", number);
}

const nlohmann::json& process_of(const cluster::DesiredRun& run) {
  return member(*run.job, "process");
}

bool is_command(const cluster::DesiredRun& run) {
  return run.job->contains("command");
}

/// torchrun's own words where nothing else is asked for: it passes no SIGUSR1 on by itself.
std::string signals_to_handle(const nlohmann::json& process) {
  std::vector<std::string> signals = {"SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"};
  const nlohmann::json all = {"SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"};
  const nlohmann::json& given = member(process, "signals");
  if (given.is_array() && given != all) signals = given.get<std::vector<std::string>>();
  return fmt::format("{}", fmt::join(signals, ","));
}

/// Where the node has numbered them, CUDA counts as the node does. What the job says of that holds.
void add_visible_gpus(const RankIdentity& identity, Variables& env) {
  const std::vector<std::string>& gpus = *identity.visible_gpus;
  const auto is_number = [](const std::string& name) {
    return name.find_first_not_of("0123456789") == std::string::npos;
  };
  env["CUDA_VISIBLE_DEVICES"] = fmt::format("{}", fmt::join(gpus, ","));
  if (identity.are_gpus_by_bus && std::any_of(gpus.begin(), gpus.end(), is_number))
    env.try_emplace("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
}

/// LOCAL_RANK and CUDA_VISIBLE_DEVICES fit each other: cuda:LOCAL_RANK is the rank's own where it has one.
void add_local_rank(const cluster::DesiredRun& run, const RankIdentity& identity, Variables& env) {
  const bool is_virtual = read_or(process_of(run), "virtual_local_rank", false);
  if (is_virtual && identity.gpus.empty()) {
    const auto index = static_cast<std::size_t>(identity.local_rank);
    const bool is_named = identity.visible_gpus && index < identity.visible_gpus->size();
    env["CUDA_VISIBLE_DEVICES"] = is_named ? (*identity.visible_gpus)[index] : text(identity.local_rank);
  }
  const bool sees_own = !identity.gpus.empty() && identity.visible_gpus == identity.gpus;
  env["LOCAL_RANK"] = is_virtual || sees_own ? "0" : text(identity.local_rank);
}

/// https://docs.pytorch.org/docs/stable/elastic/run.html, "Environment Variables".
void add_torchrun(const cluster::DesiredRun& run, const RankIdentity& identity, Variables& env) {
  const nlohmann::json& process = process_of(run);
  const auto max_failures = run.job->at("recovery").at("max_failures");
  const std::string master = read_or(process, "master_addr", run.master_address);
  env["RANK"] = env["ROLE_RANK"] = text(identity.rank);
  env["WORLD_SIZE"] = env["ROLE_WORLD_SIZE"] = text(run.world_size);
  env["LOCAL_WORLD_SIZE"] = text(identity.local_world_size);
  env["GROUP_RANK"] = env["NODE_RANK"] = text(run.node_rank);  // The latter is Ray Train's name, not torchrun's.
  env["GROUP_WORLD_SIZE"] = text(run.node_count);
  env["ROLE_NAME"] = read_or(process, "role", "default");
  env["MASTER_ADDR"] = master;
  env["MASTER_PORT"] = text(read_or(process, "master_port", run.master_port));
  env["TORCHELASTIC_RESTART_COUNT"] = text(run.restart_count);
  env["TORCHELASTIC_MAX_RESTARTS"] = max_failures.is_number() ? max_failures.dump() : "-1";
  env["TORCHELASTIC_RUN_ID"] = read_or(process, "rendezvous_id", std::string(run.run));
  env["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  env["TORCHELASTIC_ERROR_FILE"] = identity.error_file;
  env["TORCHELASTIC_SIGNALS_TO_HANDLE"] = signals_to_handle(process);
  add_local_rank(run, identity, env);
}

}  // namespace

keeper::Environment common_environment(const cluster::DesiredRun& run, int local_world_size,
                                       const std::string& python_folder) {
  keeper::Environment environment;
  const nlohmann::json& own = member(*run.job, "env");
  if (own.is_object()) environment.set = own.get<Variables>();
  if (!is_command(run)) return environment;
  environment.defaults = {
      {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"}, {"PYTHONUNBUFFERED", "1"}, {"PYTHONFAULTHANDLER", "1"}};
  const int cpus = run.job->at("per_worker").at("cpus").get<int>();
  // Ranks that share a machine would each start as many threads as it has cores.
  if (local_world_size > 1 || cpus > 1) environment.defaults["OMP_NUM_THREADS"] = text(cpus);
  for (const auto& [name, value] : environment.set) environment.defaults.erase(name);
  if (!python_folder.empty()) environment.appended["PYTHONPATH"] = python_folder;
  return environment;
}

keeper::Environment rank_environment(const cluster::DesiredRun& run, const RankIdentity& identity,
                                     const std::string& python_folder) {
  keeper::Environment environment = common_environment(run, identity.local_world_size, python_folder);
  Variables& env = environment.set;
  env["SGD_LINK"] = identity.link_path;
  env["SGD_TOKEN"] = identity.token;
  env["SGD_RUN_ID"] = run.run;
  env["SGD_RUN_DIR"] = run.run_dir;
  env["SGD_GENERATION"] = text(static_cast<std::int64_t>(run.generation));
  env["SGD_NODE_RANK"] = text(run.node_rank);
  env["SGD_CHECKPOINT_DIR"] = run.run_dir + "/checkpoints";
  env["SGD_RESUME_FROM"] = run.resume_from.empty() ? "" : run.resume_from.front();
  if (identity.agent_wait) env["SGD_AGENT_WAIT"] = fmt::format("{}", to_seconds(*identity.agent_wait));
  if (identity.visible_gpus) add_visible_gpus(identity, env);
  if (!is_command(run)) return environment;
  add_torchrun(run, identity, env);
  add_backend(run, identity, env);
  return environment;
}

std::vector<std::string> command_of_rank(const nlohmann::json& job, int local_rank) {
  auto words = job.at("command").get<std::vector<std::string>>();
  for (std::string& word : words) replace_all(word, "${local_rank}", text(local_rank));
  return words;
}

std::string workdir_of(const cluster::DesiredRun& run, bool has_own_folder) {
  return read_or(*run.job, "workdir", has_own_folder && is_command(run) ? run.run_dir : std::string());
}

}  // namespace sgd::core
