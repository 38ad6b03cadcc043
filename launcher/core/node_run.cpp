#include "launcher/core/node_run.hpp"

#include <algorithm>
#include <csignal>

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "common/job/python_command.hpp"
#include "common/json/lenient.hpp"
#include "launcher/core/fact_text.hpp"
#include "launcher/core/fork_server_request.hpp"
#include "launcher/core/process_rules.hpp"
#include "launcher/core/rank_environment.hpp"

namespace sgd::core {

using agent_command::TellKeeper;
using agent_command::TellWorker;

NodeRun::NodeRun(RunId id, const NodeRunHome& home) : NodeRunHome(home) {
  id_ = std::move(id);
}

void NodeRun::on_desired(TimePoint now, const cluster::DesiredRun& desired, AgentCommands& out) {
  if (desired.generation < desired_.generation) return;  // An agent never obeys an older generation.
  // Told even where the end of the ranks before has been: the end of the keeper, and that there is nothing to stop; and
  // to a wish of the same number that knows nothing of what was answered to the first.
  const bool is_end = desired.want == cluster::Want::kGone || desired.want == cluster::Want::kStop;
  if (desired.uid != desired_.uid || (is_end && desired.want != desired_.want)) cleared_told_ = 0;
  // Whoever asks once more with another grace means it to count from now on.
  const bool is_stop = desired.want == cluster::Want::kStop && desired_.want == cluster::Want::kStop;
  const bool is_other_grace = is_stop && desired.stop_grace_s != desired_.stop_grace_s;
  desired_ = desired;
  if (is_other_grace) {
    stop_deadline_.reset();
    if (can_agree())
      for (auto& [rank, record] : ranks_) record.asked_to_stop = false;  // They are told again.
  }
  allocation_.leave_out(id_, desired_.left_out_gpus);
  settle_port(out);
  reconcile(now, out);
}

/// Who asks again may have forgotten the answer.
void NodeRun::settle_port(AgentCommands& out) {
  const bool is_over = port_generation_ != desired_.generation || desired_.want == cluster::Want::kGone;
  if (port_generation_ != 0 && is_over) {
    port_generation_ = 0;
    port_ = 0;
    worker_ports_.clear();
    out.push_back(agent_command::ReleasePort{id_});
  }
  if (desired_.want != cluster::Want::kPrepare) return;
  if (port_ != 0) return say_of_wanted(cluster::PortReserved{port_, worker_ports_});
  if (port_generation_ != 0) return;
  port_generation_ = desired_.generation;
  out.push_back(wanted_port());
}

agent_command::ReservePort NodeRun::wanted_port() const {
  const bool has_each = has_port_of_each(desired_.job);
  return {id_, port_generation_, has_each ? static_cast<int>(desired_.ranks.size()) : 0};
}

/// The one place that compares wanted with actual and decides the next move.
void NodeRun::reconcile(TimePoint now, AgentCommands& out) {
  const bool wants_group = wants_ranks() || desired_.want == cluster::Want::kStop;
  const bool group_is_wanted = wants_group && is_of_desired();
  if (keeper_ == Keeper::kLost) return;   // Only strays are left; on_strays_cleared() goes on.
  if (keeper_ == Keeper::kEnded) return;  // Only words are left; end_clearing() goes on.
  if (group_ == Group::kAlive && !group_is_wanted && !have_had_their_time(now, out)) return;
  if (group_ == Group::kAlive && !group_is_wanted && desired_.want != cluster::Want::kGone) return clear_group(out);
  if (desired_.want == cluster::Want::kGone) {
    if (keeper_ == Keeper::kUp) close_keeper(out);
    if (keeper_ != Keeper::kNone) return;  // A keeper that is starting is closed as soon as it is up.
    group_cleared(0);
    gone_ = true;
    return;
  }
  if (group_ == Group::kClearing) return;
  if (!wants_group) return group_cleared(0);
  if (group_ == Group::kEmpty) {
    if (desired_.want == cluster::Want::kStop || is_of_desired()) return group_cleared(0);
    if (keeper_ == Keeper::kUp && keeper_generation_ < desired_.keeper_from) close_keeper(out);
    if (keeper_ == Keeper::kClosing) return;  // on_keeper_closed() goes on.
    start_keeper_if_needed(out);
    if (keeper_ != Keeper::kUp || !fork_server_settled(out) || desired_.want == cluster::Want::kPrepare) return;
    spawn_all(out);
  } else if (desired_.want == cluster::Want::kStop) {
    ask_to_stop(now, out);
  } else if (desired_.want == cluster::Want::kLeave) {
    ask_to_leave(out);
  }
}

/// Of a command whose ranks are to end: handlers and buffered files are theirs until then, and of what a wrapper has
/// started, since the keeper tells the end of a rank with that of its group. A wish for their end that allows less time
/// counts from now on.
bool NodeRun::have_had_their_time(TimePoint now, AgentCommands& out) {
  if (is_training() || keeper_ != Keeper::kUp) return true;
  const TimePoint by = now + from_seconds(desired_.clear_grace_s);
  const bool is_first = !ending_deadline_.has_value();
  if (is_first || by < *ending_deadline_) ending_deadline_ = by;
  if (*ending_deadline_ <= now) return true;
  for (auto& [rank, record] : ranks_) {
    if (is_first && !record.exit && record.pid != 0) ask_to_end(rank, record, out);
  }
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const auto& rank) { return rank.second.exit || rank.second.pid == 0; });
}

void NodeRun::ask_to_end(Rank rank, RankRecord& record, AgentCommands& out) {
  record.asked_to_stop = true;
  tell_keeper(keeper::Signal{spawned_, rank, SIGTERM, true}, out);
}

void NodeRun::close_keeper(AgentCommands& out) {
  ending_deadline_.reset();
  was_cleared_by_order_ = true;
  keeper_ = Keeper::kClosing;
  tell_keeper(keeper::Close{}, out);
}

void NodeRun::start_keeper_if_needed(AgentCommands& out) {
  if (keeper_ != Keeper::kNone) return;
  keeper_ = Keeper::kStarting;
  keeper_generation_ = desired_.generation;
  has_closed_ = false;
  agent_command::StartKeeper start{id_, desired_.run_dir};
  if (!is_training() && uses_fork_server()) start.first = fork_server_of(desired_, facts_);
  out.push_back(std::move(start));
}

/// True when ranks can be spawned: the fork server is ready, or is not used.
bool NodeRun::fork_server_settled(AgentCommands& out) {
  if (fork_server_ == ForkServer::kNone) {
    if (uses_fork_server())
      start_fork_server(out);
    else
      fork_server_ = ForkServer::kUnusable;
  }
  return fork_server_ == ForkServer::kReady || fork_server_ == ForkServer::kUnusable;
}

bool NodeRun::uses_fork_server() const {
  return desired_.job->value("fork_server", true) && (is_training() || preloads(desired_.job, facts_.python_folder));
}

void NodeRun::start_fork_server(AgentCommands& out) {
  fork_server_ = ForkServer::kStarting;
  tell_keeper(fork_server_of(desired_, facts_), out);
}

/// Ranks do not need it: while they go on, another one is started for the next generation.
void NodeRun::on_fork_server_failed(TimePoint now, const keeper::ForkServerFailed& failed, AgentCommands& out) {
  if (fork_server_ != ForkServer::kReady && fork_server_ != ForkServer::kStarting) return;
  const bool was_ready = fork_server_ == ForkServer::kReady;
  fork_server_ = ForkServer::kNone;
  if (was_cleared_by_order_ && desired_.want == cluster::Want::kGone) return;
  ++fork_servers_lost_;
  const bool may_exec = failed.signal != 0 && fork_servers_lost_ >= kForkServersMax;
  if (may_exec) fork_server_ = ForkServer::kUnusable;
  if (was_ready && group_ == Group::kAlive) {
    out.push_back(
        agent_command::Warn{failed.message + (may_exec ? "; ranks will be started by exec" : "; started anew")});
    if (!may_exec) start_fork_server(out);
    return;
  }
  if (!is_training()) {  // Nobody needs it: a command can always be started by exec.
    if (fork_server_ == ForkServer::kNone && !was_ready) fork_server_ = ForkServer::kUnusable;
    out.push_back(agent_command::Warn{"ranks are started by exec, not by fork: " + clipped(failed.message)});
    return reconcile(now, out);
  }
  // Said of the ranks that wait for it; where none do, the next that are wanted start another one.
  if (group_ == Group::kEmpty && wants_ranks())
    say_of_wanted(cluster::ForkServerFailed{failed.exit_code, failed.signal, clipped(failed.message)});
}

Duration NodeRun::heartbeat_setting(const char* key, Duration otherwise) const {
  const auto heartbeat = desired_.job->find("heartbeat");
  if (heartbeat == desired_.job->end() || !heartbeat->is_object()) return otherwise;
  return parse_duration(heartbeat->value(key, std::string())).value_or(otherwise);
}

void NodeRun::spawn_all(AgentCommands& out) {
  SGD_ASSERT(keeper_ == Keeper::kUp && group_ == Group::kEmpty);  // Else ranks would start beside those before them.
  spawned_ = desired_.generation;
  spawned_uid_ = desired_.uid;
  group_ = Group::kAlive;
  was_cleared_by_order_ = false;
  stop_deadline_.reset();
  ending_deadline_.reset();
  ranks_.clear();
  connections_.clear();
  arriving_.clear();
  silent_.clear();
  watchdog_.reset(heartbeat_setting("timeout", std::chrono::seconds(5)),
                  heartbeat_setting("stall_timeout", std::chrono::minutes(10)));
  std::vector<RankShare> shares =
      allocation_.allocate(id_, static_cast<int>(desired_.ranks.size()), need_of(desired_.job), facts_.slots);
  bind_cores(read_or(member(*desired_.job, "process"), "cpu_bind", "auto"), facts_.numa_nodes, shares);
  for (std::size_t index = 0; index < shares.size(); ++index) {
    const cluster::RankPlace& place = desired_.ranks[index];
    RankRecord& record = ranks_[place.rank];
    record.local_rank = place.local_rank;
    record.share = std::move(shares[index]);
    record.token = tokens_.next();
    tell_keeper(spawn_of(place.rank, record), out);
  }
}

keeper::Spawn NodeRun::spawn_of(Rank rank, RankRecord& record) const {
  keeper::Spawn spawn;
  spawn.generation = spawned_;
  spawn.rank = rank;
  spawn.fork_server = fork_server_ == ForkServer::kReady;
  spawn.argv =
      is_training() ? std::vector{worker_of(desired_.job, facts_)} : command_of_rank(desired_.job, record.local_rank);
  if (!is_training() && !spawn.fork_server && member(member(*desired_.job, "process"), "backend") == "sgd")
    if (const auto python = job::python_command(spawn.argv); python && !facts_.python_folder.empty())
      spawn.argv = job::by_way_of(facts_.python_folder + "/sgd_launch_rank.py", *python, {"--backend", "sgd", "--"});
  RankIdentity identity;
  identity.rank = rank;
  identity.local_rank = record.local_rank;
  identity.local_world_size = static_cast<int>(desired_.ranks.size());
  identity.node = facts_.node;
  identity.token = record.token;
  identity.link_path = link_path_;
  identity.agent_wait = facts_.returns_within;
  spawn.error_file = fmt::format("{}/errors/gen-{:04d}-rank-{:04d}.json", desired_.run_dir, spawned_, rank);
  apply_process_rules(desired_, record.local_rank, spawn);
  identity.error_file = spawn.error_file;
  identity.visible_gpus = record.share.visible;
  identity.gpus = record.share.gpus;
  identity.are_gpus_by_bus = facts_.are_gpus_by_bus;
  spawn.environment = rank_environment(desired_, identity, facts_.python_folder);
  if (!spawn.out.filters.empty() || !spawn.err.filters.empty())
    spawn.line_prefix = line_prefix(desired_, facts_.node, rank, record.local_rank);
  spawn.workdir = is_training() ? std::string() : workdir_of(desired_, facts_.is_shared);
  spawn.cpus = record.share.cores;
  spawn.threads = desired_.job->at("per_worker").at("cpus").get<int>();
  spawn.log_path = fmt::format("{}/logs/gen-{:04d}/rank-{:04d}.log", desired_.run_dir, spawned_, rank);
  return spawn;
}

void NodeRun::clear_group(AgentCommands& out) {
  group_ = Group::kClearing;
  ending_deadline_.reset();
  was_cleared_by_order_ = true;
  stop_deadline_.reset();
  watchdog_.reset({}, {});
  silent_.clear();
  tell_keeper(keeper::Clear{spawned_}, out);
}

void NodeRun::ask_to_leave(AgentCommands& out) {
  const auto recovery = desired_.job->find("recovery");
  const bool at_checkpoint =
      recovery != desired_.job->end() && recovery->is_object() && recovery->value("scale_up", "epoch") == "checkpoint";
  for (auto& [rank, record] : ranks_) {
    if (record.asked_to_leave || !record.assigned) continue;
    record.asked_to_leave = true;
    out.push_back(TellWorker{*record.connection, id_, link::StopAtEpoch{at_checkpoint}});
  }
}

/// Those of training, and of a command where all have said so: one alone would wait for the others.
bool NodeRun::can_agree() const {
  return is_training() || std::all_of(ranks_.begin(), ranks_.end(), [](const auto& entry) {
           return entry.second.exit || (entry.second.is_stoppable && entry.second.assigned);
         });
}

/// Ranks that can agree on a step are asked over the link. Else their groups get a signal, as from a terminal: under a
/// wrapper it is the wrapper's child that has something to save. The deadline kills all.
void NodeRun::ask_to_stop(TimePoint now, AgentCommands& out) {
  if (!stop_deadline_) stop_deadline_ = now + from_seconds(desired_.stop_grace_s);
  const bool by_link = can_agree();
  for (auto& [rank, record] : ranks_) {
    if (record.asked_to_stop || record.exit) continue;
    if (!by_link) {
      if (record.pid == 0) continue;
      const int signal = desired_.stop_signal == 0 ? SIGTERM : desired_.stop_signal;
      tell_keeper(keeper::Signal{spawned_, rank, signal, true}, out);
    } else {
      if (!record.assigned) continue;
      out.push_back(TellWorker{*record.connection, id_, link::Stop{to_seconds(*stop_deadline_ - now), true}});
    }
    record.asked_to_stop = true;
  }
}

void NodeRun::on_signal(const cluster::PassSignal& signal, AgentCommands& out) const {
  if (is_at_work(signal.generation, signal.uid)) tell_keeper(keeper::SignalAll{signal.signal}, out);
}

void NodeRun::on_errors_ask(const cluster::ErrorsAsk& ask, AgentCommands& out) {
  if (!is_at_work(ask.generation, ask.uid)) return;
  errors_asked_ = true;
  tell_keeper(keeper::AskErrors{ask.generation}, out);
}

void NodeRun::say(cluster::FactBody body) {
  say(spawned_, spawned_uid_, std::move(body));
}

void NodeRun::say_of_wanted(cluster::FactBody body) {
  say(desired_.generation, desired_.uid, std::move(body));
}

void NodeRun::say(Generation generation, GenerationUid uid, cluster::FactBody body) {
  cluster::Fact fact;
  fact.run = id_;
  fact.generation = generation;
  fact.uid = uid;
  fact.body = std::move(body);
  facts_out_.push_back(std::move(fact));
}

cluster::HeldRun NodeRun::held() const {
  cluster::HeldRun held{id_, desired_.generation};
  held.uid = desired_.uid;
  if (group_ != Group::kEmpty) held.workers = static_cast<int>(ranks_.size());
  // Nobody else may have the slots of those that start as soon as their keeper can.
  const bool will_start = wants_ranks() && desired_.want != cluster::Want::kPrepare && !is_of_desired();
  if (will_start) held.workers = std::max(held.workers, static_cast<int>(desired_.ranks.size()));
  if (group_ != Group::kEmpty && is_of_desired()) held.world_size = desired_.world_size;
  return held;
}

void NodeRun::tell_keeper(keeper::ToKeeper message, AgentCommands& out) const {
  out.push_back(TellKeeper{id_, std::move(message)});
}

NodeRun::RankRecord* NodeRun::find(Rank rank) {
  const auto place = ranks_.find(rank);
  return place == ranks_.end() ? nullptr : &place->second;
}

std::vector<cluster::Fact> NodeRun::take_facts() {
  return std::exchange(facts_out_, {});
}

}  // namespace sgd::core
