#include "launcher/core/fork_server_request.hpp"

#include <vector>

#include "common/job/python_command.hpp"
#include "common/json/lenient.hpp"
#include "launcher/core/rank_environment.hpp"

namespace sgd::core {

bool preloads(const nlohmann::json& job, const std::string& python_folder) {
  const nlohmann::json& process = member(job, "process");
  // A terminal of its own takes a session, which only exec gives.
  return !python_folder.empty() && member(process, "preload") != "none" && member(process, "terminal") != "all" &&
         job::python_command(job.at("command").get<std::vector<std::string>>());
}

std::string worker_of(const nlohmann::json& job, const AgentFacts& facts) {
  return read_or(job, "worker", facts.worker_program);
}

keeper::StartForkServer fork_server_of(const cluster::DesiredRun& run, const AgentFacts& facts) {
  keeper::StartForkServer start;
  if (run.job->contains("command")) {
    const nlohmann::json& process = member(*run.job, "process");
    const std::vector<std::string> command = command_of_rank(run.job, 0);
    start.argv = job::by_way_of(facts.python_folder + "/sgd_launch_server.py", *job::python_command(command));
    start.job = {
        {"command", command}, {"preload", member(process, "preload")}, {"backend", member(process, "backend")}};
    start.environment = common_environment(run, static_cast<int>(run.ranks.size()), facts.python_folder);
    start.workdir = workdir_of(run, facts.is_shared);
  } else {
    start.argv = {worker_of(run.job, facts), "--fork-server"};
    start.job = run.job;
  }
  start.log_path = run.run_dir + "/logs/fork-server.log";
  return start;
}

}  // namespace sgd::core
