#pragma once
// One process of a rank: from its start, over hello, assignment and exchange, to its end. What ranks do
// together is in group.hpp. A rank of a command says nothing and ends by itself.
//
//   begin --start-up--> hello --assignment--> exchange --all values--> joins its group --...--> end
//
// Frozen, it neither hears nor says nor ends until it is killed. Stalled, it says heartbeats and does no step.

#include <memory>
#include <string>
#include <vector>

#include "common/messages/link.hpp"
#include "launcher/core/agent_io.hpp"
#include "test/sim/channel.hpp"
#include "test/sim/last_words.hpp"
#include "test/sim/world.hpp"

namespace sgd::sim {

class Group;
class Keeper;
class Node;
struct RunState;

class Worker {
 public:
  struct Identity {
    int pid = 0;
    Generation generation = 0;
    Rank rank = 0;
    std::string token;
    bool by_fork_server = false;
    std::vector<int> cores = {};  ///< That it is bound to; empty: to none.
    std::string master = {};      ///< Of a command: address and port of its rank 0.
    std::string gpu = {};         ///< Its own.
    std::string tf_config = {};   ///< Of a command with the backend tensorflow: all ranks' addresses and ports.
  };
  Worker(World& world, RunState& run, Keeper& keeper, Identity identity);

  void begin();
  /// From the agent, in order.
  void tell(link::ToWorker message);
  /// The agent has closed its link.
  void lose_link();
  /// Its link is not read from here on: what it says waits.
  void pause() { to_agent_.hold(); }
  void resume() { to_agent_.release(); }
  void terminate();  ///< SIGTERM.
  /// It ends; `is_order`: because its keeper was told so.
  void end(int exit_code, int signal, bool is_order);
  void exit_soon(int exit_code, Duration delay);
  void freeze() { frozen_ = true; }
  void stall();
  /// What it has printed last.
  [[nodiscard]] const std::vector<std::string>& last_lines() const { return last_lines_; }

  void say(link::FromWorker message);

  [[nodiscard]] Keeper& keeper() { return keeper_; }
  [[nodiscard]] Node& node();
  [[nodiscard]] RunState& run() { return run_; }
  [[nodiscard]] const Identity& identity() const { return identity_; }
  [[nodiscard]] Generation generation() const { return identity_.generation; }
  [[nodiscard]] Rank rank() const { return identity_.rank; }
  [[nodiscard]] LastWords::Speaker speaker() const;
  [[nodiscard]] const link::Assignment& assignment() const { return assignment_; }
  [[nodiscard]] bool alive() const { return alive_; }
  [[nodiscard]] bool frozen() const { return frozen_; }
  [[nodiscard]] bool stalled() const { return stalled_; }
  [[nodiscard]] bool wants_stop() const { return wants_stop_; }
  [[nodiscard]] bool wants_leave() const { return wants_leave_; }
  [[nodiscard]] bool leaves_at_checkpoint() const { return leaves_at_checkpoint_; }
  [[nodiscard]] bool leads_node() const { return assignment_.local_rank == 0; }
  /// In a group, and no step of it is possible without this one.
  [[nodiscard]] bool holds_up() const { return frozen_ || stalled_; }
  [[nodiscard]] link::Heartbeat& progress() { return progress_; }
  [[nodiscard]] bool has_said_first_step() const { return first_step_said_; }
  void say_first_step(std::int64_t step);

 private:
  void say_hello();
  void fail_by_gpu();
  void hear(link::ToWorker message);
  void take(link::Assignment message);
  void take(const link::ExchangeValue& message);
  void beat();
  [[nodiscard]] Duration start_up();
  [[nodiscard]] std::string exchange_value(Rank rank) const;

  World& world_;
  RunState& run_;
  Keeper& keeper_;
  Identity identity_;
  Channel<core::AgentEvent> to_agent_;
  Channel<link::ToWorker> from_agent_;
  core::ConnectionId connection_ = 0;  ///< 0: no link.
  link::Assignment assignment_;
  Group* group_ = nullptr;
  link::Heartbeat progress_;
  int values_ = 0;  ///< Of the exchange.
  bool assigned_ = false;
  bool alive_ = true;
  bool frozen_ = false;
  bool stalled_ = false;
  bool wants_stop_ = false;
  bool wants_leave_ = false;
  bool leaves_at_checkpoint_ = false;
  bool first_step_said_ = false;
  std::vector<std::string> last_lines_;
};

}  // namespace sgd::sim
