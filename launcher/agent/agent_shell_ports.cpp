// What AgentShell does for the ports at which ranks of a command meet.

#include <boost/asio/post.hpp>

#include "launcher/agent/agent_shell.hpp"

namespace sgd::agent {

void AgentShell::reserve_port(const core::agent_command::ReservePort& wanted) {
  const Result<std::vector<int>> ports = ports_.reserve(wanted.run, 1 + wanted.workers);
  core::agent_event::PortReserved answer{wanted.run, wanted.generation};
  if (ports) {
    answer.port = ports.value().front();
    answer.worker_ports.assign(ports.value().begin() + 1, ports.value().end());
  } else {
    answer.error = ports.error().message;
  }
  boost::asio::post(io_, [this, answer] { on_event(answer); });
}

/// A port is anybody's until a rank listens there. The rank that fails for it says no more than that it is in use, or
/// what a stranger has answered.
void AgentShell::explain_port(const RunId& run, keeper::Exited& exited) {
  if (exited.exit_code <= 0 || !exited.reason.empty()) return;
  const auto keeper = keepers_.find(run);
  if (keeper == keepers_.end()) return;
  const auto user = process::user_of_process(keeper->second->pid());
  if (user) exited.reason = ports_.taken_by(run, user.value());
}

}  // namespace sgd::agent
