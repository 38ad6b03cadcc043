#include "test/sim/keeper.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "test/sim/cluster.hpp"
#include "test/sim/node.hpp"
#include "test/sim/run_state.hpp"
#include "test/sim/worker.hpp"

namespace sgd::sim {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

Keeper::Keeper(World& world, Node& node, RunState& run)
    : world_(world),
      node_(node),
      run_(run),
      incarnation_(node.incarnation()),
      to_agent_(world.queue, [this](core::AgentEvent&& event) { tell_agent(std::move(event)); }),
      from_agent_(world.queue, [this](keeper::ToKeeper&& message) {
        if (alive_) std::visit([this](const auto& body) { handle(body); }, message);
      }) {}

Duration Keeper::moment() {
  return world_.chance.between(microseconds(10), milliseconds(3));
}

void Keeper::begin() {
  if (world_.plan.refuses > 0 && !world_.calm && world_.chance.with(world_.plan.refuses)) {
    alive_ = false;
    run_.check.on_keeper_lost(node_.id());
    to_agent_.send(core::agent_event::KeeperClosed{run_.plan.definition.id, 0, "no space left", false, true}, moment());
    return;
  }
  world_.queue.after(world_.chance.between(milliseconds(1), milliseconds(50)), [this] {
    if (alive_) to_agent_.send(core::agent_event::KeeperStarted{run_.plan.definition.id}, moment());
  });
}

void Keeper::order(keeper::ToKeeper message) {
  const bool may_be_orphaned = std::holds_alternative<keeper::Close>(message) && !node_.wire().is_open();
  if (may_be_orphaned) run_.check.on_keeper_lost(node_.id());
  from_agent_.send(std::move(message), moment());
}

void Keeper::tell_agent(core::AgentEvent event) {
  if (node_.incarnation() == incarnation_) node_.tell(std::move(event));
}

void Keeper::say(keeper::FromKeeper message) {
  to_agent_.send(core::agent_event::FromKeeper{run_.plan.definition.id, std::move(message)}, moment());
}

// ---- fork server ----

void Keeper::handle(const keeper::StartForkServer&) {
  if (fork_server_ != ForkServer::kNone || clearing_) {
    say(keeper::ForkServerFailed{-1, 0, clearing_ ? "the run is being cleared" : "a fork server runs already"});
    return;
  }
  fork_server_ = ForkServer::kPreparing;
  fork_server_signal_ = 0;
  world_.queue.after(world_.chance.between(milliseconds(50), milliseconds(1500)), [this, number = ++fork_servers_] {
    if (!alive_ || fork_server_ != ForkServer::kPreparing || number != fork_servers_) return;
    fork_server_ = ForkServer::kReady;
    keeper::ForkServerReady ready;
    ready.can_fork = world_.chance.with(0.95);
    say(ready);
  });
}

bool Keeper::kill_fork_server() {
  if (!alive_ || fork_server_ == ForkServer::kNone) return false;
  fork_server_ = ForkServer::kNone;
  fork_server_signal_ = SIGKILL;
  if (!clearing_ || !clearing_->close) say(keeper::ForkServerFailed{-1, SIGKILL, "fork server ended with signal 9"});
  return true;
}

// ---- ranks ----

void Keeper::handle(const keeper::Spawn& message) {
  if (clearing_) return fail_spawn(message, EBUSY, "the run is being cleared");
  if (find(message.generation, message.rank) != nullptr) return fail_spawn(message, EEXIST, "this rank runs already");
  if (!message.fork_server) return start_worker(message);
  if (fork_server_ != ForkServer::kReady)
    return fail_spawn(message, ECHILD, "the fork server is not ready", fork_server_signal_);
  ++forks_pending_;
  world_.queue.after(world_.chance.between(milliseconds(1), milliseconds(20)), [this, message, number = fork_servers_] {
    if (!alive_) return;
    --forks_pending_;
    if (fork_server_ == ForkServer::kReady && number == fork_servers_) {
      start_worker(message);
    } else {
      fail_spawn(message, ECHILD, "the fork server has ended", fork_server_signal_);
    }
    if (clearing_) advance_clearing();
  });
}

void Keeper::fail_spawn(const keeper::Spawn& message, int error, const char* reason, int signal) {
  run_.check.on_spawn_failed(message.generation, message.rank);
  say(keeper::SpawnFailed{message.generation, message.rank, error, reason, signal});
}

void Keeper::start_worker(const keeper::Spawn& message) {
  const auto token = message.environment.set.find("SGD_TOKEN");
  Worker::Identity identity{world_.next_pid++,
                            message.generation,
                            message.rank,
                            token == message.environment.set.end() ? "" : token->second,
                            message.fork_server,
                            message.cpus,
                            {}};
  if (const auto port = message.environment.set.find("MASTER_PORT"); port != message.environment.set.end())
    identity.master = message.environment.set.at("MASTER_ADDR") + ":" + port->second;
  const auto gpus = message.environment.set.find("CUDA_VISIBLE_DEVICES");
  const bool wants_gpu = run_.plan.definition.job.per_worker.gpus > 0;
  if (wants_gpu && gpus != message.environment.set.end()) identity.gpu = gpus->second;
  if (const auto config = message.environment.set.find("TF_CONFIG"); config != message.environment.set.end())
    identity.tf_config = config->second;
  Worker& worker = node_.cluster().add_worker(run_, *this, std::move(identity));
  workers_.push_back(&worker);
  world_.say("{}: {} rank {} of generation {} starts, pid {}", node_.id(), run_.plan.definition.id, message.rank,
             message.generation, worker.identity().pid);
  say(keeper::Spawned{message.generation, message.rank, worker.identity().pid});
  worker.begin();
  if (clearing_) kill_later(worker);
}

void Keeper::on_end(Worker& worker, int exit_code, int signal) {
  std::erase(workers_, &worker);
  world_.say("{}: {} rank {} of generation {} ends, {} {}", node_.id(), run_.plan.definition.id, worker.rank(),
             worker.generation(), signal != 0 ? "signal" : "exit code", signal != 0 ? signal : exit_code);
  if (!alive_) return;
  keeper::Exited exited;
  exited.generation = worker.generation();
  exited.rank = worker.rank();
  exited.pid = worker.identity().pid;
  exited.exit_code = exit_code;
  exited.signal = signal;
  exited.tail = worker.last_lines();
  exited.sequence = ++exits_;
  to_agent_.send(core::agent_event::FromKeeper{run_.plan.definition.id, exited},
                 world_.chance.between(microseconds(20), milliseconds(20)));
  if (clearing_) advance_clearing();
}

void Keeper::handle(const keeper::Signal& message) {
  Worker* worker = find(message.generation, message.rank);
  if (worker != nullptr && message.signal == SIGTERM) worker->terminate();
}

Worker* Keeper::find(Generation generation, Rank rank) const {
  const auto found = std::find_if(workers_.begin(), workers_.end(), [&](const Worker* worker) {
    return worker->generation() == generation && worker->rank() == rank;
  });
  return found == workers_.end() ? nullptr : *found;
}

// ---- clearing ----

void Keeper::handle(const keeper::Clear& message) {
  begin_clearing();
  clearing_->generations.push_back(message.generation);
  advance_clearing();
}

void Keeper::handle(const keeper::Close&) {
  begin_clearing();
  clearing_->close = true;
  fork_server_ = ForkServer::kNone;
  advance_clearing();
}

void Keeper::begin_clearing() {
  if (clearing_) return;
  clearing_.emplace();
  for (Worker* worker : workers_) kill_later(*worker);
}

void Keeper::kill_later(Worker& worker) {
  ++clearing_->killed;
  const Duration delay = world_.chance.with(0.02) ? world_.chance.between(milliseconds(100), seconds(3))
                                                  : world_.chance.between(microseconds(50), milliseconds(30));
  world_.queue.after(delay, [&worker] { worker.end(-1, SIGKILL, true); });
}

void Keeper::advance_clearing() {
  if (!workers_.empty() || forks_pending_ != 0 || clearing_->is_told) return;
  clearing_->is_told = true;
  world_.queue.after(world_.chance.between(microseconds(50), milliseconds(10)), [this] {
    if (alive_) finish_clearing();
  });
}

void Keeper::finish_clearing() {
  const Clearing done = *clearing_;
  clearing_.reset();
  for (const Generation generation : done.generations) say(keeper::Cleared{generation, done.killed});
  if (!done.close) return;
  say(keeper::Cleared{0, done.killed});
  alive_ = false;
  to_agent_.send(core::agent_event::KeeperClosed{run_.plan.definition.id, 0, "exit code 0"}, moment());
}

// ---- its own end ----

void Keeper::die(Duration delay) {
  if (!alive_) return;
  alive_ = false;
  run_.check.on_keeper_lost(node_.id());
  for (Worker* worker : workers_) {
    // What it has started may have left its session, and lives on until strays are looked for.
    if (world_.chance.with(world_.plan.stray)) {
      worker->freeze();
      continue;
    }
    world_.queue.after(world_.chance.between(Duration{0}, delay), [worker] { worker->end(-1, SIGKILL, true); });
  }
  to_agent_.send(core::agent_event::KeeperClosed{run_.plan.definition.id, SIGKILL, ""}, milliseconds(1) + moment());
}

void Keeper::kill_strays() {
  while (!workers_.empty()) workers_.back()->end(-1, SIGKILL, true);
}

void Keeper::lose_agent() {
  if (std::exchange(alive_, false)) {
    run_.check.on_keeper_lost(node_.id());
    to_agent_.cut();
    from_agent_.cut();
  }
  for (Worker* worker : workers_)
    world_.queue.after(world_.chance.between(milliseconds(1), milliseconds(300)),
                       [worker] { worker->end(-1, SIGKILL, true); });
}

}  // namespace sgd::sim
