// What NodeRun does with what keeper, links and clock say.

#include <algorithm>
#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "launcher/core/claims.hpp"
#include "launcher/core/fact_text.hpp"
#include "launcher/core/gpu_failure.hpp"
#include "launcher/core/node_run.hpp"

namespace sgd::core {

using agent_command::TellCoordinator;
using agent_command::TellWorker;

void NodeRun::on_keeper_started(TimePoint now, const agent_event::KeeperStarted& started, AgentCommands& out) {
  if (keeper_ != Keeper::kStarting) return;
  link_path_ = started.link_path;
  keeper_ = Keeper::kUp;
  reconcile(now, out);
}

/// To the coordinator it is as if the keeper had died: what ended its ranks is one thing, not a signal for each of
/// them.
bool NodeRun::on_orphaned(const std::string& reason, AgentCommands& out) {
  if (keeper_ != Keeper::kStarting && keeper_ != Keeper::kUp) return false;
  tell_keeper(keeper::Close{}, out);
  tell_keeper_lost({SIGKILL, reason, false, false});
  keeper_ = Keeper::kLost;
  is_orphan_ = true;
  return true;
}

/// The coordinator starts another generation for it: ranks that were to be started are not started any more. Where none
/// were wanted nobody has lost anything.
void NodeRun::tell_keeper_lost(cluster::KeeperLost lost) {
  if (group_ == Group::kEmpty) {
    if (!wants_ranks()) return;
    spawned_ = desired_.generation;
    spawned_uid_ = desired_.uid;
  }
  say(std::move(lost));
}

void NodeRun::on_keeper(TimePoint now, const keeper::FromKeeper& message, AgentCommands& out) {
  if (keeper_ == Keeper::kLost) return;
  if (std::get_if<keeper::ForkServerReady>(&message) != nullptr) {
    if (fork_server_ != ForkServer::kStarting) return;  // Nobody has asked.
    fork_server_ = std::get<keeper::ForkServerReady>(message).can_fork ? ForkServer::kReady : ForkServer::kUnusable;
    return reconcile(now, out);
  }
  if (const auto* failed = std::get_if<keeper::ForkServerFailed>(&message)) {
    return on_fork_server_failed(now, *failed, out);
  }
  if (const auto* spawned = std::get_if<keeper::Spawned>(&message)) return on_spawned(now, *spawned, out);
  if (const auto* failed = std::get_if<keeper::SpawnFailed>(&message)) {
    RankRecord* record = failed->generation == spawned_ ? find(failed->rank) : nullptr;
    if (record == nullptr || std::exchange(record->start_told, true)) return;
    // Who killed its fork server has said nothing about what it was to start.
    if (failed->signal != 0)
      say(cluster::ForkServerFailed{-1, failed->signal, clipped(failed->message)});
    else
      say(cluster::SpawnFailed{failed->rank, failed->error, clipped(failed->message)});
    return;
  }
  if (const auto* exited = std::get_if<keeper::Exited>(&message)) {
    RankRecord* record = exited->generation == spawned_ ? find(exited->rank) : nullptr;
    if (record == nullptr || record->exit) return;
    record->exit = *exited;
    record->exit_deadline = now + kLinkDrain;
    record->last_words_until = now + kLastWordsMax;
    watchdog_.forget(exited->rank);
    if (!record->connection) tell_exit(now, exited->rank, *record);
    if (ending_deadline_) reconcile(now, out);
    return;
  }
  if (const auto* dropped = std::get_if<keeper::OutputDropped>(&message)) return on_dropped(*dropped);
  if (const auto* said = std::get_if<keeper::ErrorsSaid>(&message)) {
    if (said->generation != spawned_ || !std::exchange(errors_asked_, false)) return;  // Nobody has asked.
    std::vector<OtherError> others = own(said->others);
    if (!others.empty()) say(cluster::RanksRaised{std::move(others)});
    return;
  }
  if (const auto* cleared = std::get_if<keeper::Cleared>(&message)) {
    if (group_ != Group::kClearing && keeper_ != Keeper::kClosing) return;  // Nobody has asked.
    // A clearing that crossed the order to close: the keeper and its fork server are still there.
    if (keeper_ == Keeper::kClosing && cleared->generation != 0) return;
    has_closed_ = cleared->generation == 0;
    cleared_ = *cleared;
    links_deadline_ = now + kLinkDrain;
    links_until_ = now + kLastWordsMax;
    if (connections_.empty()) end_clearing(now, out);
  }
}

/// A disk may be full again and again: of a rank the first loss is told at once, and all others before its exit.
void NodeRun::on_dropped(const keeper::OutputDropped& dropped) {
  RankRecord* record = dropped.is_on_console || dropped.bytes <= 0 ? nullptr : find(dropped.rank);
  if (record == nullptr) return;
  record->lost_lines += dropped.lines;
  record->lost_bytes += dropped.bytes;
  record->lost_why = clipped(dropped.reason);
  if (record->lost_told == 0) tell_lost(dropped.rank, *record);
}

void NodeRun::tell_lost(Rank rank, RankRecord& record) {
  if (record.lost_bytes == 0) return;
  record.lost_told += record.lost_bytes;
  say(cluster::OutputDropped{rank, std::exchange(record.lost_lines, 0), std::exchange(record.lost_bytes, 0),
                             record.lost_why});
}

/// A rank may have said hello before its keeper has said which process it is: then that is looked at now.
void NodeRun::on_spawned(TimePoint now, const keeper::Spawned& spawned, AgentCommands& out) {
  RankRecord* record = spawned.generation == spawned_ ? find(spawned.rank) : nullptr;
  if (record == nullptr || std::exchange(record->start_told, true)) return;
  record->pid = spawned.pid;
  const Status is_its_own = record->connection ? check_process(*record) : Status();
  if (!is_its_own) {
    out.push_back(agent_command::DropLink{*record->connection, is_its_own.error().message});
    connections_.erase(*record->connection);
    record->connection.reset();
    record->assigned = false;
  }
  if (is_training() && !record->connection) watchdog_.on_spawned(now, spawned.rank);
  say(cluster::WorkerStarted{spawned.rank, spawned.pid, record->share.gpus});
  if (desired_.want == cluster::Want::kStop) ask_to_stop(now, out);
  if (ending_deadline_) ask_to_end(spawned.rank, *record, out);
}

/// A worker of ours speaks for itself; of a command, any process of the run's may.
Status NodeRun::check_process(const RankRecord& record) const {
  if (!is_training() || record.pid == 0 || record.link_pid == record.pid) return {};
  return Error{fmt::format("pid {} has the token of pid {}", record.link_pid, record.pid)};
}

/// Processes are gone and links are closed: nothing more of this group can come.
void NodeRun::end_clearing(TimePoint now, AgentCommands& out) {
  SGD_ASSERT(cleared_.has_value());  // Else ranks that live would be told of as dead.
  const int killed = cleared_->killed;
  cleared_.reset();
  for (auto& [rank, record] : ranks_)
    if (record.exit && !record.exit_told) tell_exit(now, rank, record);
  connections_.clear();
  group_ = Group::kEmpty;
  allocation_.release(id_);
  group_cleared(killed);
  if (keeper_ == Keeper::kUp) reconcile(now, out);
  if (keeper_ == Keeper::kEnded) forget_keeper(now, out);
}

void NodeRun::forget_keeper(TimePoint now, AgentCommands& out) {
  keeper_ = Keeper::kNone;
  fork_server_ = ForkServer::kNone;
  reconcile(now, out);
}

void NodeRun::on_keeper_closed(TimePoint now, const agent_event::KeeperClosed& closed, AgentCommands& out) {
  if (keeper_ == Keeper::kClosing && has_closed_) {
    keeper_ = Keeper::kEnded;
    if (!cleared_) forget_keeper(now, out);
    return;
  }
  cleared_.reset();
  if (keeper_ != Keeper::kClosing && !is_orphan_)
    tell_keeper_lost({closed.signal, clipped(closed.message), closed.with_agent, closed.never_started});
  keeper_ = Keeper::kLost;
  out.push_back(agent_command::ClearStrays{id_});
}

void NodeRun::on_strays_cleared(TimePoint now, AgentCommands& out) {
  if (keeper_ != Keeper::kLost) return;
  is_orphan_ = false;
  keeper_ = Keeper::kNone;
  fork_server_ = ForkServer::kNone;
  group_ = Group::kEmpty;
  allocation_.release(id_);
  ranks_.clear();
  connections_.clear();
  stop_deadline_.reset();
  ending_deadline_.reset();
  group_cleared(0);
  watchdog_.reset({}, {});
  silent_.clear();
  // A group that was wanted is not started again here: a new start is a new generation.
  const bool is_newer = !is_of_desired();
  if (desired_.want == cluster::Want::kGone || is_newer) reconcile(now, out);
}

void NodeRun::on_port(const agent_event::PortReserved& reserved) {
  if (reserved.generation != port_generation_ || port_ != 0) return;
  port_ = reserved.port;
  worker_ports_ = reserved.worker_ports;
  if (port_ != 0) return say_of_wanted(cluster::PortReserved{port_, worker_ports_});
  port_generation_ = 0;
  say_of_wanted(cluster::PortRefused{clipped(reserved.error)});
}

Status NodeRun::on_hello(TimePoint now, ConnectionId connection, int peer_pid, const link::Hello& hello,
                         AgentCommands& out) {
  if (keeper_ != Keeper::kUp || group_ != Group::kAlive) return Error{"its ranks are being ended"};
  for (auto& [rank, record] : ranks_) {
    if (record.token != hello.token || record.connection || record.exit) continue;
    record.link_pid = peer_pid;
    if (const Status is_its_own = check_process(record); !is_its_own) return is_its_own;
    record.connection = connection;
    connections_[connection] = rank;
    if (is_training()) watchdog_.on_hello(now, rank);
    assign(rank, record, out);
    if (desired_.want == cluster::Want::kStop) ask_to_stop(now, out);
    if (desired_.want == cluster::Want::kLeave) ask_to_leave(out);
    return {};
  }
  return Error{"unknown or used token"};
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
  assignment.cpus = desired_.job->at("per_worker").at("cpus").get<int>();
  assignment.config = desired_.job;
  if (assignment.config.contains("command")) {  // Its arguments and variables it has, and they may be long.
    assignment.config.erase("command");
    assignment.config.erase("env");
  }
  record.assigned = true;
  out.push_back(TellWorker{*record.connection, id_, std::move(assignment)});
}

bool NodeRun::on_link(TimePoint now, ConnectionId connection, const link::FromWorker& message, AgentCommands& out) {
  const auto place = connections_.find(connection);
  if (place == connections_.end()) return false;
  bool matters = true;
  const Rank rank = place->second;
  RankRecord& record = ranks_.at(rank);
  struct Visitor {
    NodeRun& self;
    TimePoint now;
    Rank rank;
    RankRecord& record;
    AgentCommands& out;
    bool& matters;
    void operator()(const link::Hello&) const {}
    void operator()(const link::Ready& ready) const {
      record.is_ready = true;
      self.say(cluster::WorkerReady{rank, ready});
    }
    void operator()(const link::FirstStep& step) const { self.say(cluster::WorkerFirstStep{rank, step.step}); }
    void operator()(const link::Heartbeat& heartbeat) const {
      // A command is under watch from its first heartbeat on that may be watched, since it need not send any.
      const bool begins = !self.is_training() && heartbeat.watched && self.group_ == Group::kAlive && !record.exit;
      const bool is_first = begins && !self.watchdog_.watches(rank);
      if (is_first) self.watchdog_.on_hello(now, rank);
      matters = is_first || self.watchdog_.suspects(rank);
      self.watchdog_.on_heartbeat(now, rank, heartbeat);
      record.step = std::max(record.step, heartbeat.step);
      out.push_back(TellCoordinator{cluster::Progress{self.id_, self.spawned_, rank, heartbeat}});
    }
    void operator()(const link::Report& report) const { self.say(cluster::Report{rank, report}); }
    void operator()(const link::CheckpointSaved& checkpoint) const {
      claim(cluster::CheckpointSaved{checkpoint}, why_not(checkpoint, self.spawned_));
    }
    void operator()(const link::CheckpointFailed& failed) const { self.say(cluster::CheckpointFailed{failed}); }
    void operator()(const link::CheckpointRejected& rejected) const {
      claim(cluster::CheckpointRejected{rejected}, why_not(rejected));
    }
    void claim(cluster::FactBody body, const std::string& refusal) const {
      if (refusal.empty()) return self.say(std::move(body));
      out.push_back(agent_command::DropLink{*record.connection, refusal});
    }
    void operator()(const link::Fetch& fetch) const { self.on_fetch_asked(record, fetch.path, out); }
    void operator()(const link::ExchangePut& put) const {
      const std::string refusal = self.give(rank, record, put);
      if (refusal.empty()) return;
      record.failure_message = refusal;
      out.push_back(agent_command::DropLink{*record.connection, refusal});
    }
    void operator()(const link::Stoppable&) const { record.is_stoppable = true; }
    void operator()(const link::Failed& failed) const { record.failure_message = failed.message; }
    void operator()(const link::ResultMade& result) const { self.say(cluster::ResultMade{rank, result.value}); }
    void operator()(const link::Received&) const { matters = false; }
    void operator()(const link::Unknown&) const {}
  };
  std::visit(Visitor{*this, now, rank, record, out, matters}, message);
  if (matters) wait_for_more(now, record);
  return matters;
}

/// A rank may have ended long before all is read that it has said.
void NodeRun::wait_for_more(TimePoint now, RankRecord& record) {
  const auto move = [now](TimePoint& deadline, TimePoint until) {
    deadline = std::max(deadline, std::min(now + kLinkDrain, until));
  };
  if (record.exit) move(record.exit_deadline, record.last_words_until);
  if (cleared_) move(links_deadline_, links_until_);
}

/// All runs here have one line for files: what a rank asks for there is what it may go on from, one at a time, and not
/// again and again.
void NodeRun::on_fetch_asked(RankRecord& record, const std::string& path, AgentCommands& out) {
  const auto refuse = [&](std::string why, bool is_missing) {
    out.push_back(TellWorker{*record.connection, id_, link::Fetched{path, std::move(why), is_missing}});
  };
  if (record.fetching == path) return;
  const std::vector<std::string>& may_have = desired_.resume_from;
  if (std::find(may_have.begin(), may_have.end(), path) == may_have.end())
    return refuse("it is none of those that its run may go on from", true);
  if (record.fetching) return refuse("this rank waits for another checkpoint already", false);
  if (++record.fetches > kFetchesMax) return refuse(fmt::format("this rank has asked {} times", kFetchesMax), false);
  const bool is_on_its_way = std::any_of(ranks_.begin(), ranks_.end(), [&](const auto& other) {
    return other.second.connection && other.second.fetching == path;
  });
  record.fetching = path;
  if (!is_on_its_way) out.push_back(agent_command::FetchCheckpoint{id_, path});
}

void NodeRun::on_fetch(const link::Fetching& fetching, AgentCommands& out) {
  for (const auto& [rank, record] : ranks_)
    if (record.connection && record.fetching == fetching.path)
      out.push_back(TellWorker{*record.connection, id_, fetching});
}

void NodeRun::on_fetch(const link::Fetched& fetched, AgentCommands& out) {
  for (auto& [rank, record] : ranks_) {
    if (!record.connection || record.fetching != fetched.path) continue;
    record.fetching.reset();
    out.push_back(TellWorker{*record.connection, id_, fetched});
  }
}

void NodeRun::on_link_closed(TimePoint now, ConnectionId connection, AgentCommands& out) {
  const auto place = connections_.find(connection);
  if (place == connections_.end()) return;
  const Rank rank = place->second;
  connections_.erase(place);
  RankRecord& record = ranks_.at(rank);
  record.connection.reset();
  record.assigned = record.is_paused = false;
  if (record.exit && !record.exit_told) tell_exit(now, rank, record);
  if (cleared_ && connections_.empty()) end_clearing(now, out);
}

bool NodeRun::on_tick(TimePoint now, AgentCommands& out) {
  bool was_due = false;
  for (auto& [rank, record] : ranks_) {
    if (!record.exit || record.exit_told || record.is_unheard() || now < record.exit_deadline) continue;
    tell_exit(now, rank, record);
    was_due = true;
  }
  if (cleared_ && !is_unheard() && now >= links_deadline_) {
    end_clearing(now, out);
    was_due = true;
  }
  was_due |= check_silence(now, out);
  if (stop_deadline_ && now >= *stop_deadline_ && group_ == Group::kAlive) {
    clear_group(out);
    was_due = true;
  }
  if (ending_deadline_ && group_ == Group::kAlive && keeper_ == Keeper::kUp && now >= *ending_deadline_) {
    reconcile(now, out);
    was_due = true;
  }
  return was_due;
}

void NodeRun::on_paused(ConnectionId connection) {
  const auto place = connections_.find(connection);
  if (place == connections_.end()) return;
  ranks_.at(place->second).is_paused = true;
  watchdog_.pause(place->second);
}

void NodeRun::on_unpaused(TimePoint now, ConnectionId connection) {
  const auto place = connections_.find(connection);
  if (place == connections_.end()) return;
  RankRecord& record = ranks_.at(place->second);
  record.is_paused = false;
  watchdog_.resume(now, place->second);
  if (!record.exit && !cleared_) return;
  record.had_time = true;
  record.exit_deadline = now + kLinkDrain;
  links_deadline_ = now + kLinkDrain;
}

/// Some rank has said what is not heard yet.
bool NodeRun::is_unheard() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank.second.is_unheard(); });
}

void NodeRun::on_resumed(TimePoint now, AgentCommands& out) {
  watchdog_.renew(now);
  silent_.clear();
  if (port_ != 0) out.push_back(agent_command::HoldPort{id_, port_, worker_ports_});
  if (port_ == 0 && port_generation_ != 0) out.push_back(wanted_port());
}

std::optional<TimePoint> NodeRun::next_wakeup() const {
  std::optional<TimePoint> next;
  const auto consider = [&next](TimePoint at) { next = next ? std::min(*next, at) : at; };
  for (const auto& [rank, record] : ranks_)
    if (record.exit && !record.exit_told && !record.is_unheard()) consider(record.exit_deadline);
  if (stop_deadline_ && group_ == Group::kAlive) consider(*stop_deadline_);
  if (ending_deadline_ && group_ == Group::kAlive && keeper_ == Keeper::kUp) consider(*ending_deadline_);
  if (cleared_ && !is_unheard()) consider(links_deadline_);
  if (!silent_.empty()) consider(silence_deadline_);
  if (const auto look = watchdog_.next_look()) consider(*look);
  return next;
}

/// Who is silent is told a moment after everybody was asked where it stands: stacks need the processes alive.
bool NodeRun::check_silence(TimePoint now, AgentCommands& out) {
  const std::optional<TimePoint> look = watchdog_.next_look();
  const bool is_due = look && now >= *look;
  std::vector<Silence> found = watchdog_.look(now);
  if (!found.empty() && silent_.empty()) {
    silence_deadline_ = now + kStackTime;
    keep_stacks(out);
  }
  silent_.insert(silent_.end(), found.begin(), found.end());
  if (silent_.empty() || now < silence_deadline_) return is_due;
  for (const Silence& silence : std::exchange(silent_, {})) {
    const RankRecord& record = ranks_.at(silence.rank);
    if (record.exit) continue;
    say(cluster::WorkerSilent{silence.rank, record.pid, silence.is_waiting, silence.is_stalled, silence.silent_s,
                              silence.words});
  }
  return true;
}

void NodeRun::keep_stacks(AgentCommands& out) {
  agent_command::KeepStacks keep{id_, spawned_, desired_.run_dir, {}};
  for (const auto& [rank, record] : ranks_) {
    if (record.pid == 0 || record.exit) continue;
    keep.pids[rank] = record.pid;
    // Our worker answers with its own stack; before it is ready the signal would end it.
    if (is_training() && record.is_ready) tell_keeper(keeper::Signal{spawned_, rank, SIGUSR2}, out);
  }
  out.push_back(std::move(keep));
}

void NodeRun::tell_exit(TimePoint now, Rank rank, RankRecord& record) {
  tell_lost(rank, record);
  const keeper::Exited& exit = *record.exit;
  cluster::WorkerExited told;
  told.rank = rank;
  told.pid = exit.pid;
  told.exit_code = exit.exit_code;
  told.signal = exit.signal;
  told.core_dumped = exit.core_dumped;
  const bool is_our_kill = was_cleared_by_order_ && exit.signal == SIGKILL;
  told.caused_by_agent = is_our_kill || record.asked_to_stop;
  told.message = clipped(exit.reason.empty() ? record.failure_message : exit.reason);
  told.tail = clipped(exit.tail);
  told.last_object = clipped(exit.last_object, keeper::kCutObjectBytesMax);
  told.error = clipped(exit.error);
  told.others = own(exit.others);
  told.step = record.step;
  const bool is_own_end = exit.signal == 0 || exit.signal == SIGABRT;
  told.gpu = failed_gpu(record.share.gpus, is_training(), {is_own_end, told.message, &told.error, &told.tail});
  const double now_s = to_seconds(now.time_since_epoch());
  if (exit.detected_s > 0) told.notice_s = std::max(0.0, now_s - exit.detected_s);
  record.exit_told = true;
  say(std::move(told));
}

std::vector<OtherError> NodeRun::own(const std::vector<OtherError>& others) {
  std::vector<OtherError> taken;
  for (const OtherError& other : others) {
    const RankRecord* record = find(other.rank);
    if (taken.size() == keeper::kOthersMax || record == nullptr) continue;
    taken.push_back({other.rank, clipped(other.error)});
    taken.back().gpu = failed_gpu(record->share.gpus, is_training(), {true, "", &taken.back().error, nullptr});
  }
  return taken;
}

/// What was cleared so that ranks can be started concerns nobody: said then, it would be taken for the answer to a
/// later wish for this generation's end.
void NodeRun::group_cleared(int killed) {
  if (wants_ranks()) return;
  if (cleared_told_ >= desired_.generation && killed == 0) return;
  cleared_told_ = desired_.generation;
  say_of_wanted(cluster::Cleared{killed});
}

}  // namespace sgd::core
