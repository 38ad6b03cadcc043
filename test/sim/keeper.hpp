#pragma once
// A keeper as its protocol has it: starts ranks, by exec or by a fork server, reports their ends in
// order, clears, closes. Holds its node's memory checkpoint of the run. Its death takes everything below
// it along, and so does the end of its agent.

#include <memory>
#include <optional>
#include <vector>

#include "common/messages/keeper.hpp"
#include "launcher/core/agent_io.hpp"
#include "test/sim/channel.hpp"
#include "test/sim/memory.hpp"
#include "test/sim/world.hpp"

namespace sgd::sim {

class Node;
class Worker;
struct RunState;

class Keeper {
 public:
  Keeper(World& world, Node& node, RunState& run);

  void begin();
  void order(keeper::ToKeeper message);
  /// A process of its has ended.
  void on_end(Worker& worker, int exit_code, int signal);
  /// Its agent is gone: everything ends, and nobody is told.
  void lose_agent();
  /// SIGKILL: its ranks follow within `delay`.
  void die(Duration delay);
  /// What a dead keeper left behind is killed.
  void kill_strays();
  /// False: it has none.
  bool kill_fork_server();

  void tell_agent(core::AgentEvent event);
  [[nodiscard]] Node& node() { return node_; }
  [[nodiscard]] RunState& run() { return run_; }
  [[nodiscard]] Incarnation incarnation() const { return incarnation_; }
  [[nodiscard]] bool alive() const { return alive_; }
  [[nodiscard]] bool empty() const { return workers_.empty(); }
  [[nodiscard]] Memory& memory() { return memory_; }

 private:
  enum class ForkServer { kNone, kPreparing, kReady };
  struct Clearing {
    std::vector<Generation> generations;
    bool close = false;
    int killed = 0;
    bool is_told = false;
  };

  void handle(const keeper::StartForkServer& message);
  void handle(const keeper::Spawn& message);
  void handle(const keeper::Signal& message);
  void handle(const keeper::SignalAll&) {}
  void handle(const keeper::Clear& message);
  void handle(const keeper::Close& message);
  void handle(const keeper::OutputAck&) {}
  void handle(const keeper::Attach&) {}
  void handle(const keeper::Received&) {}
  void handle(const keeper::AgentEnds&) {}
  void handle(const keeper::AskErrors&) {}
  void begin_clearing();
  void kill_later(Worker& worker);
  void advance_clearing();
  void finish_clearing();
  void start_worker(const keeper::Spawn& message);
  void say(keeper::FromKeeper message);
  void fail_spawn(const keeper::Spawn& message, int error, const char* reason, int signal = 0);
  [[nodiscard]] Worker* find(Generation generation, Rank rank) const;
  [[nodiscard]] Duration moment();

  World& world_;
  Node& node_;
  RunState& run_;
  Incarnation incarnation_;  ///< Of the agent that started it.
  Channel<core::AgentEvent> to_agent_;
  Channel<keeper::ToKeeper> from_agent_;
  Memory memory_;
  std::vector<Worker*> workers_;  ///< Alive.
  std::optional<Clearing> clearing_;
  ForkServer fork_server_ = ForkServer::kNone;
  int fork_servers_ = 0;
  int fork_server_signal_ = 0;  ///< That has ended the last one.
  int forks_pending_ = 0;
  std::int64_t exits_ = 0;
  bool alive_ = true;
};

}  // namespace sgd::sim
