#pragma once
// The shell of core::Agent: one thread, one event loop. Facts become events, commands become
// calls, one timer is armed at the machine's next wake-up.
//
// Shutdown: when the machine has forgotten its last run, nothing that this node started is left
// and stop() closes the sockets; the event loop then runs out of work.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>

#include "common/base/result.hpp"
#include "launcher/agent/keeper_process.hpp"
#include "launcher/agent/spool.hpp"
#include "launcher/agent/worker_server.hpp"
#include "launcher/core/agent.hpp"
#include "launcher/net/agent_link.hpp"
#include "launcher/net/wakeup_timer.hpp"

namespace sgd::agent {

struct AgentObserver {
  std::function<void(Output)> on_output;                 ///< Answer with acknowledge_output().
  std::function<void(std::string)> on_warning;           ///< One line, for people.
  std::function<void(const RunId&)> on_run_gone;         ///< Nothing of it is left on this node.
};

class AgentShell {
 public:
  /// `program` is this program's own file, for keepers. Without a `spool` this node sees the coordinator's folders.
  AgentShell(boost::asio::io_context& io, core::AgentFacts facts, std::string program,
             std::unique_ptr<net::AgentLink> link, AgentObserver observer,
             std::unique_ptr<Spool> spool = nullptr);
  ~AgentShell();

  /// Opens the workers' socket and tells the coordinator what this node has.
  [[nodiscard]] Status start();
  /// Room for workers from now on.
  void set_slots(int slots);
  /// The process is to end: ranks save and go, nothing new comes. is_idle() says when.
  void leave();
  void acknowledge_output(const RunId& run, std::size_t bytes);
  void stop();
  /// No keeper of any run is here.
  [[nodiscard]] bool is_idle() const { return keepers_.empty(); }

 private:
  void on_event(const core::AgentEvent& event);
  void carry_out(core::AgentCommand command);
  void start_keeper(const RunId& run);
  void clear_strays(const RunId& run);
  void fetch_checkpoint(const core::agent_command::FetchCheckpoint& fetch);
  void forget_run(const RunId& run);
  void on_keeper_message(const RunId& run, keeper::FromKeeper message);

  boost::asio::io_context& io_;
  std::string program_;
  std::string link_path_;
  core::Agent core_;
  std::unique_ptr<net::AgentLink> link_;
  std::unique_ptr<Spool> spool_;
  AgentObserver observer_;
  WorkerServer workers_;
  std::map<RunId, std::unique_ptr<KeeperProcess>> keepers_;
  net::WakeupTimer timer_;
};

}  // namespace sgd::agent
