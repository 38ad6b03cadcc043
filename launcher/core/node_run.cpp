#include "launcher/core/node_run.hpp"

#include <algorithm>
#include <csignal>

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "launcher/core/cpu_share.hpp"
#include "launcher/core/rank_environment.hpp"

namespace sgd::core {

using agent_command::TellCoordinator;
using agent_command::TellKeeper;
using agent_command::TellWorker;

NodeRun::NodeRun(RunId id, const AgentFacts& facts, Random& random)
    : id_(std::move(id)), facts_(facts), random_(random) {}

void NodeRun::on_desired(TimePoint now, const cluster::DesiredRun& desired, AgentCommands& out) {
  if (desired.generation < desired_.generation) return;  // An agent never obeys an older generation.
  desired_ = desired;
  reconcile(now, out);
}

void NodeRun::on_connected(AgentCommands& out) {
  for (const auto& [rank, record] : ranks_)
    for (const auto& [key, value] : record.unanswered)
      out.push_back(TellCoordinator{cluster::ExchangePut{id_, spawned_, rank, key, value}});
}

/// The one place that compares wanted with actual and decides the next move.
void NodeRun::reconcile(TimePoint now, AgentCommands& out) {
  const bool wants_group = desired_.want == cluster::Want::kRun || desired_.want == cluster::Want::kStop;
  const bool group_is_wanted = wants_group && spawned_ == desired_.generation;
  if (keeper_ == Keeper::kLost) return;  // Only strays are left; on_strays_cleared() goes on.
  if (group_ == Group::kAlive && !group_is_wanted && desired_.want != cluster::Want::kGone) return clear_group(out);
  if (desired_.want == cluster::Want::kGone) {
    if (keeper_ == Keeper::kNone) {
      group_cleared(0);
      gone_ = true;
    } else if (keeper_ == Keeper::kUp) {
      was_cleared_by_order_ = true;
      keeper_ = Keeper::kClosing;
      tell_keeper(keeper::Close{}, out);
    }
    return;  // A keeper that is starting is closed as soon as it is up.
  }
  if (group_ == Group::kClearing) return;
  if (!wants_group) return group_cleared(0);
  if (group_ == Group::kEmpty) {
    if (desired_.want == cluster::Want::kStop || spawned_ == desired_.generation) return group_cleared(0);
    start_keeper_if_needed(out);
    if (keeper_ == Keeper::kUp && fork_server_settled(out)) spawn_all(out);
  } else if (desired_.want == cluster::Want::kStop) {
    ask_to_stop(now, out);
  }
}

void NodeRun::start_keeper_if_needed(AgentCommands& out) {
  if (keeper_ != Keeper::kNone) return;
  keeper_ = Keeper::kStarting;
  out.push_back(agent_command::StartKeeper{id_, desired_.run_dir});
}

/// True when ranks can be spawned: the fork server is ready, or is not used.
bool NodeRun::fork_server_settled(AgentCommands& out) {
  if (!is_training()) return true;
  if (fork_server_ == ForkServer::kNone) {
    if (!desired_.job.value("fork_server", true)) {
      fork_server_ = ForkServer::kUnusable;
    } else {
      fork_server_ = ForkServer::kStarting;
      keeper::StartForkServer start;
      start.argv = {facts_.worker_program, "--fork-server"};
      start.job = desired_.job;
      start.log_path = desired_.run_dir + "/logs/fork-server.log";
      tell_keeper(std::move(start), out);
    }
  }
  return fork_server_ == ForkServer::kReady || fork_server_ == ForkServer::kUnusable;
}

void NodeRun::spawn_all(AgentCommands& out) {
  spawned_ = desired_.generation;
  group_ = Group::kAlive;
  was_cleared_by_order_ = false;
  stop_deadline_.reset();
  ranks_.clear();
  connections_.clear();
  for (const cluster::RankPlace& place : desired_.ranks) {
    RankRecord& record = ranks_[place.rank];
    record.local_rank = place.local_rank;
    record.token = random_.token();
    tell_keeper(spawn_of(place.rank, record), out);
  }
}

keeper::Spawn NodeRun::spawn_of(Rank rank, RankRecord& record) const {
  keeper::Spawn spawn;
  spawn.generation = spawned_;
  spawn.rank = rank;
  spawn.fork_server = is_training() && fork_server_ == ForkServer::kReady;
  if (is_training()) {
    spawn.argv = {facts_.worker_program};
  } else {
    spawn.argv = desired_.job.at("command").get<std::vector<std::string>>();
  }
  RankIdentity identity;
  identity.rank = rank;
  identity.local_rank = record.local_rank;
  identity.local_world_size = static_cast<int>(desired_.ranks.size());
  identity.token = record.token;
  identity.link_path = facts_.link_path;
  identity.error_file = fmt::format("{}/errors/gen-{:04d}-rank-{:04d}.json", desired_.run_dir, spawned_, rank);
  spawn.env = rank_environment(desired_, identity);
  const int cpus = desired_.job.at("per_worker").at("cpus").get<int>();
  if (!is_training() && !facts_.omp_threads_set) spawn.env["OMP_NUM_THREADS"] = fmt::format("{}", cpus);
  spawn.cpus = cpu_share(facts_.allowed_cores, record.local_rank, identity.local_world_size, cpus).cores;
  spawn.threads = cpus;
  spawn.log_path = fmt::format("{}/logs/gen-{:04d}/rank-{:04d}.log", desired_.run_dir, spawned_, rank);
  return spawn;
}

void NodeRun::clear_group(AgentCommands& out) {
  group_ = Group::kClearing;
  was_cleared_by_order_ = true;
  stop_deadline_.reset();
  tell_keeper(keeper::Clear{spawned_}, out);
}

/// Training ranks are asked over the link and agree on the step; commands get SIGTERM. The deadline kills both.
void NodeRun::ask_to_stop(TimePoint now, AgentCommands& out) {
  if (!stop_deadline_) stop_deadline_ = now + from_seconds(desired_.stop_grace_s);
  for (auto& [rank, record] : ranks_) {
    if (record.asked_to_stop || record.exit) continue;
    if (!is_training()) {
      if (record.pid == 0) continue;
      tell_keeper(keeper::Signal{spawned_, rank, SIGTERM}, out);
    } else {
      if (!record.assigned) continue;
      out.push_back(TellWorker{*record.connection, id_, link::Stop{to_seconds(*stop_deadline_ - now), true}});
    }
    record.asked_to_stop = true;
  }
}

void NodeRun::on_keeper_started(TimePoint now, AgentCommands& out) {
  if (keeper_ != Keeper::kStarting) return;
  keeper_ = Keeper::kUp;
  reconcile(now, out);
}

void NodeRun::on_keeper(TimePoint now, const keeper::FromKeeper& message, AgentCommands& out) {
  if (std::get_if<keeper::ForkServerReady>(&message) != nullptr) {
    fork_server_ = std::get<keeper::ForkServerReady>(message).can_fork ? ForkServer::kReady : ForkServer::kUnusable;
    return reconcile(now, out);
  }
  if (const auto* failed = std::get_if<keeper::ForkServerFailed>(&message)) {
    fork_server_ = ForkServer::kFailed;
    if (!was_cleared_by_order_)
      say(cluster::ForkServerFailed{failed->exit_code, failed->signal, failed->message});
    return;
  }
  if (const auto* spawned = std::get_if<keeper::Spawned>(&message)) {
    RankRecord* record = spawned->generation == spawned_ ? find(spawned->rank) : nullptr;
    if (record == nullptr) return;
    record->pid = spawned->pid;
    say(cluster::WorkerStarted{spawned->rank, spawned->pid});
    if (desired_.want == cluster::Want::kStop) ask_to_stop(now, out);
    return;
  }
  if (const auto* failed = std::get_if<keeper::SpawnFailed>(&message)) {
    if (failed->generation == spawned_ && find(failed->rank) != nullptr)
      say(cluster::SpawnFailed{failed->rank, failed->error, failed->message});
    return;
  }
  if (const auto* exited = std::get_if<keeper::Exited>(&message)) {
    RankRecord* record = exited->generation == spawned_ ? find(exited->rank) : nullptr;
    if (record == nullptr || record->exit) return;
    record->exit = *exited;
    record->exit_deadline = now + kLinkDrain;
    if (!record->connection) tell_exit(exited->rank, *record);
    return;
  }
  if (const auto* cleared = std::get_if<keeper::Cleared>(&message)) {
    for (auto& [rank, record] : ranks_)
      if (record.exit && !record.exit_told) tell_exit(rank, record);
    group_ = Group::kEmpty;
    group_cleared(cleared->killed);
    if (keeper_ == Keeper::kUp) reconcile(now, out);
  }
}

void NodeRun::on_keeper_closed(TimePoint now, const agent_event::KeeperClosed& closed, AgentCommands& out) {
  if (keeper_ == Keeper::kClosing) {
    keeper_ = Keeper::kNone;
    fork_server_ = ForkServer::kNone;
    group_ = Group::kEmpty;
    return reconcile(now, out);
  }
  say(cluster::KeeperLost{closed.signal, closed.message});
  keeper_ = Keeper::kLost;
  out.push_back(agent_command::ClearStrays{id_});
}

void NodeRun::on_strays_cleared(TimePoint now, AgentCommands& out) {
  if (keeper_ != Keeper::kLost) return;
  keeper_ = Keeper::kNone;
  fork_server_ = ForkServer::kNone;
  group_ = Group::kEmpty;
  ranks_.clear();
  connections_.clear();
  stop_deadline_.reset();
  group_cleared(0);
  // A group that was wanted is not started again here: a new start is a new generation.
  if (desired_.want == cluster::Want::kGone) reconcile(now, out);
}

void NodeRun::on_exchange_done(const cluster::ExchangeDone& done, AgentCommands& out) {
  if (done.generation != spawned_) return;
  const int count = static_cast<int>(done.values.size());
  for (auto& [rank, record] : ranks_) {
    if (record.unanswered.erase(done.key) == 0 || !record.connection) continue;
    for (int from = 0; from < count; ++from)
      out.push_back(TellWorker{*record.connection, id_,
                               link::ExchangeValue{done.key, from, count, done.values[static_cast<std::size_t>(from)]}});
  }
}

bool NodeRun::on_hello(TimePoint now, ConnectionId connection, const link::Hello& hello, AgentCommands& out) {
  for (auto& [rank, record] : ranks_) {
    if (record.token != hello.token || record.connection || record.exit) continue;
    record.connection = connection;
    connections_[connection] = rank;
    assign(rank, record, out);
    if (desired_.want == cluster::Want::kStop) ask_to_stop(now, out);
    return true;
  }
  return false;
}

void NodeRun::assign(Rank rank, RankRecord& record, AgentCommands& out) {
  link::Assignment assignment;
  assignment.run = id_;
  assignment.generation = spawned_;
  assignment.rank = rank;
  assignment.local_rank = record.local_rank;
  assignment.world_size = desired_.world_size;
  assignment.local_world_size = static_cast<int>(desired_.ranks.size());
  assignment.node_rank = desired_.node_rank;
  assignment.node_count = desired_.node_count;
  assignment.bind_address = facts_.address;
  assignment.run_dir = desired_.run_dir;
  assignment.resume_from = desired_.resume_from;
  assignment.cpus = desired_.job.at("per_worker").at("cpus").get<int>();
  assignment.config = desired_.job;
  record.assigned = true;
  out.push_back(TellWorker{*record.connection, id_, std::move(assignment)});
}

void NodeRun::on_link(TimePoint now, ConnectionId connection, const link::FromWorker& message, AgentCommands& out) {
  const auto place = connections_.find(connection);
  if (place == connections_.end()) return;
  const Rank rank = place->second;
  RankRecord& record = ranks_.at(rank);
  (void)now;
  struct Visitor {
    NodeRun& self;
    Rank rank;
    RankRecord& record;
    AgentCommands& out;
    void operator()(const link::Hello&) const {}
    void operator()(const link::Ready& ready) const { self.say(cluster::WorkerReady{rank, ready}); }
    void operator()(const link::FirstStep& step) const { self.say(cluster::WorkerFirstStep{rank, step.step}); }
    void operator()(const link::Heartbeat& heartbeat) const {
      out.push_back(TellCoordinator{cluster::Progress{self.id_, self.spawned_, rank, heartbeat}});
    }
    void operator()(const link::Report& report) const { self.say(cluster::Report{rank, report}); }
    void operator()(const link::CheckpointSaved& checkpoint) const { self.say(cluster::CheckpointSaved{checkpoint}); }
    void operator()(const link::CheckpointRejected& rejected) const {
      self.say(cluster::CheckpointRejected{rejected});
    }
    void operator()(const link::ExchangePut& put) const {
      record.unanswered[put.key] = put.value;
      out.push_back(TellCoordinator{cluster::ExchangePut{self.id_, self.spawned_, rank, put.key, put.value}});
    }
    void operator()(const link::Failed& failed) const { record.failure_message = failed.message; }
    void operator()(const link::ResultMade& result) const { self.say(cluster::ResultMade{rank, result.value}); }
    void operator()(const link::Unknown&) const {}
  };
  std::visit(Visitor{*this, rank, record, out}, message);
}

void NodeRun::on_link_closed(TimePoint, ConnectionId connection, AgentCommands&) {
  const auto place = connections_.find(connection);
  if (place == connections_.end()) return;
  const Rank rank = place->second;
  connections_.erase(place);
  RankRecord& record = ranks_.at(rank);
  record.connection.reset();
  record.assigned = false;
  if (record.exit && !record.exit_told) tell_exit(rank, record);
}

void NodeRun::on_tick(TimePoint now, AgentCommands& out) {
  for (auto& [rank, record] : ranks_)
    if (record.exit && !record.exit_told && now >= record.exit_deadline) tell_exit(rank, record);
  if (stop_deadline_ && now >= *stop_deadline_ && group_ == Group::kAlive) clear_group(out);
}

std::optional<TimePoint> NodeRun::next_wakeup() const {
  std::optional<TimePoint> next;
  const auto consider = [&next](TimePoint at) { next = next ? std::min(*next, at) : at; };
  for (const auto& [rank, record] : ranks_)
    if (record.exit && !record.exit_told) consider(record.exit_deadline);
  if (stop_deadline_ && group_ == Group::kAlive) consider(*stop_deadline_);
  return next;
}

void NodeRun::tell_exit(Rank rank, RankRecord& record) {
  const keeper::Exited& exit = *record.exit;
  cluster::WorkerExited told;
  told.rank = rank;
  told.pid = exit.pid;
  told.exit_code = exit.exit_code;
  told.signal = exit.signal;
  told.core_dumped = exit.core_dumped;
  const bool is_our_kill = was_cleared_by_order_ && exit.signal == SIGKILL;
  told.caused_by_agent = is_our_kill || record.asked_to_stop;
  told.message = record.failure_message;
  told.tail = exit.tail;
  record.exit_told = true;
  say(std::move(told));
}

void NodeRun::group_cleared(int killed) {
  if (cleared_told_ >= desired_.generation && killed == 0) return;
  cleared_told_ = desired_.generation;
  say(cluster::Cleared{killed});
}

void NodeRun::say(cluster::FactBody body) {
  const bool is_clearing = std::holds_alternative<cluster::Cleared>(body);
  cluster::Fact fact;
  fact.run = id_;
  fact.generation = is_clearing ? desired_.generation : std::max(spawned_, desired_.generation);
  fact.body = std::move(body);
  if (spawned_ != 0 && !is_clearing && group_ != Group::kEmpty) fact.generation = spawned_;
  facts_out_.push_back(std::move(fact));
}

void NodeRun::tell_keeper(keeper::ToKeeper message, AgentCommands& out) {
  out.push_back(TellKeeper{id_, std::move(message)});
}

NodeRun::RankRecord* NodeRun::find(Rank rank) {
  const auto place = ranks_.find(rank);
  return place == ranks_.end() ? nullptr : &place->second;
}

std::vector<cluster::Fact> NodeRun::take_facts() { return std::exchange(facts_out_, {}); }

}  // namespace sgd::core
