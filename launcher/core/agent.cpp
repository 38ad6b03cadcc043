#include "launcher/core/agent.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace sgd::core {

Agent::Agent(AgentFacts facts, Secrets tokens, std::int64_t told) {
  facts_ = std::move(facts);
  tokens_ = tokens;
  allocation_ = CoreAllocation(facts_.allowed_cores, facts_.gpus, facts_.is_shared);
  outbox_ = Outbox(facts_.incarnation, told);
}

Agent::Agent(SavedAgent saved) : AgentState(std::move(saved.state)) {
  for (auto& [id, run] : saved.runs) runs_.try_emplace(id, std::move(run), home());
}

void Agent::on(TimePoint now, const AgentEvent& event, AgentCommands& out) {
  was_soft_ = false;
  handle(now, event, out);
  take_facts(event, out);
  resume_links(now, out);
  outbox_.send(now, out);
  forget_gone(out);
}

void Agent::handle(TimePoint now, const AgentEvent& event, AgentCommands& out) {
  using namespace agent_event;
  if (const auto* connected = std::get_if<Connected>(&event)) {
    if (!connected->address.empty()) facts_.address = connected->address;
    tell_state(true, out);
    orphaned_at_.reset();
    if (facts_.beat_interval) beat_at_ = now + *facts_.beat_interval;
    outbox_.on_connected();
    outbox_.send(now, out);
    ask_all(out);
  } else if (std::holds_alternative<Disconnected>(event)) {
    on_unlinked();
    if (facts_.orphan_timeout && !orphaned_at_) orphaned_at_ = now + *facts_.orphan_timeout;
  } else if (const auto* told = std::get_if<FromCoordinator>(&event)) {
    on_coordinator(now, told->message, out);
  } else if (const auto* started = std::get_if<KeeperStarted>(&event)) {
    if (NodeRun* run = find(started->run)) run->on_keeper_started(now, *started, out);
  } else if (const auto* from_keeper = std::get_if<FromKeeper>(&event)) {
    if (NodeRun* run = find(from_keeper->run)) run->on_keeper(now, from_keeper->message, out);
  } else if (const auto* closed = std::get_if<KeeperClosed>(&event)) {
    if (NodeRun* run = find(closed->run)) run->on_keeper_closed(now, *closed, out);
  } else if (const auto* cleared = std::get_if<StraysCleared>(&event)) {
    if (NodeRun* run = find(cleared->run)) run->on_strays_cleared(now, out);
  } else if (const auto* port = std::get_if<PortReserved>(&event)) {
    if (NodeRun* run = find(port->run)) run->on_port(*port);
  } else if (const auto* from_worker = std::get_if<FromWorker>(&event)) {
    on_worker(now, *from_worker, out);
  } else if (const auto* link_closed = std::get_if<LinkClosed>(&event)) {
    paused_.erase(link_closed->connection);
    const auto owner = owners_.find(link_closed->connection);
    was_soft_ = owner == owners_.end();
    if (was_soft_) return;
    if (NodeRun* run = find(owner->second)) run->on_link_closed(now, link_closed->connection, out);
    owners_.erase(owner);
  } else if (const auto* advanced = std::get_if<FetchAdvanced>(&event)) {
    was_soft_ = true;
    if (NodeRun* run = find(advanced->run)) run->on_fetch(link::Fetching{advanced->path, advanced->bytes}, out);
  } else if (const auto* fetched = std::get_if<CheckpointFetched>(&event)) {
    if (NodeRun* run = find(fetched->run))
      run->on_fetch(link::Fetched{fetched->path, fetched->error, fetched->missing}, out);
  } else if (const auto* changed = std::get_if<SlotsChanged>(&event)) {
    facts_.slots = changed->slots;
    tell_state(false, out);
  } else if (std::holds_alternative<LeavingSoon>(event)) {
    is_leaving_ = true;
    tell_state(false, out);
  } else if (const auto* resumed = std::get_if<Resumed>(&event)) {
    on_resumed(now, *resumed, out);
  } else {
    on_tick(now, out);
  }
}

void Agent::on_tick(TimePoint now, AgentCommands& out) {
  was_soft_ = !orphaned_at_ || now < *orphaned_at_;
  if (!was_soft_) end_orphans(out);
  for (auto& [id, run] : runs_)
    if (run.on_tick(now, out)) was_soft_ = false;
  // Which facts have a number depends on it.
  if (outbox_.on_tick(now)) was_soft_ = false;
  if (beat_at_ && now >= *beat_at_) {
    beat_at_ = now + *facts_.beat_interval;
    out.push_back(agent_command::TellCoordinator{cluster::Beat{}});
  }
}

/// The coordinator's link is to be made again, whatever was last known of it.
void Agent::on_resumed(TimePoint now, const agent_event::Resumed& resumed, AgentCommands& out) {
  facts_.slots = resumed.slots;
  if (!resumed.address.empty()) facts_.address = resumed.address;
  facts_.memory_bytes = resumed.memory_bytes;
  facts_.labels = resumed.labels;
  is_leaving_ = false;  // That was about the process before.
  on_unlinked();
  if (facts_.orphan_timeout && !orphaned_at_) orphaned_at_ = now + *facts_.orphan_timeout;
  for (auto& [id, run] : runs_) run.on_resumed(now, out);
}

void Agent::end_orphans(AgentCommands& out) {
  orphaned_at_.reset();
  const std::string reason =
      fmt::format("it has ended its ranks: no coordinator for {}", format_duration(*facts_.orphan_timeout));
  bool has_ended = false;
  for (auto& [id, run] : runs_) has_ended |= run.on_orphaned(reason, out);
  if (has_ended)
    out.push_back(agent_command::Warn{
        fmt::format("no coordinator for {}: all ranks here are ended", format_duration(*facts_.orphan_timeout))});
}

void Agent::tell_state(bool is_new_link, AgentCommands& out) const {
  cluster::NodeState state;
  state.is_new_link = is_new_link;
  state.node = facts_.node;
  state.incarnation = facts_.incarnation;
  state.address = facts_.address;
  state.slots = facts_.slots;
  state.cpus = static_cast<int>(facts_.allowed_cores.size());
  for (const auto& [id, run] : runs_) state.runs.push_back(run.held());
  state.counts_cpus = facts_.counts_cpus;
  state.gpus = static_cast<int>(facts_.gpus.size());
  state.memory_bytes = facts_.memory_bytes;
  state.labels = facts_.labels;
  state.version = facts_.version;
  state.is_leaving = is_leaving_;
  state.acknowledged = outbox_.acknowledged();
  out.push_back(agent_command::TellCoordinator{std::move(state)});
}

void Agent::on_coordinator(TimePoint now, const cluster::ToAgent& message, AgentCommands& out) {
  if (const auto* desired = std::get_if<cluster::DesiredRun>(&message)) {
    // What was here and is gone does not start a second time: a store that has lost its end hears of that soon.
    const bool starts = desired->want == cluster::Want::kRun || desired->want == cluster::Want::kLeave;
    if (starts && !runs_.contains(desired->run) && outbox_.has(desired->run, desired->generation, desired->uid)) return;
    const auto [place, is_new] = runs_.try_emplace(desired->run, desired->run, home());
    place->second.on_desired(now, *desired, out);
  } else if (const auto* done = std::get_if<cluster::ExchangeDone>(&message)) {
    on_exchange_done(*done, out);
  } else if (const auto* ack = std::get_if<cluster::FactAck>(&message)) {
    if (ack->incarnation == facts_.incarnation) outbox_.acknowledge(now, ack->sequence);
  } else if (const auto* signal = std::get_if<cluster::PassSignal>(&message)) {
    if (const NodeRun* run = find(signal->run)) run->on_signal(*signal, out);
  } else if (const auto* asked = std::get_if<cluster::ErrorsAsk>(&message)) {
    if (NodeRun* run = find(asked->run)) run->on_errors_ask(*asked, out);
  }
}

void Agent::on_worker(TimePoint now, const agent_event::FromWorker& event, AgentCommands& out) {
  if (const auto* hello = std::get_if<link::Hello>(&event.message)) {
    if (hello->protocol != link::kProtocol) {
      out.push_back(
          agent_command::DropLink{event.connection, "link protocol " + std::to_string(hello->protocol) +
                                                        " of the worker, " + std::to_string(link::kProtocol) +
                                                        " here: use one version of sgd-launch and sgd-worker"});
      return;
    }
    NodeRun* run = find(event.run);
    const Status admitted = run == nullptr ? Error{"nothing of its run is here"}
                                           : run->on_hello(now, event.connection, event.peer_pid, *hello, out);
    if (admitted)
      owners_[event.connection] = event.run;
    else
      out.push_back(agent_command::DropLink{event.connection, admitted.error().message});
    return;
  }
  const auto owner = owners_.find(event.connection);
  if (owner == owners_.end()) {
    out.push_back(agent_command::DropLink{event.connection, "first line is not hello"});
    return;
  }
  NodeRun* run = find(owner->second);
  was_soft_ = run == nullptr || !run->on_link(now, event.connection, event.message, out);
}

/// Whoever says something that does not fit is not read any more: with what its link has taken it waits itself, and
/// holds up nobody.
void Agent::take_facts(const AgentEvent& event, AgentCommands& out) {
  const auto* said = std::get_if<agent_event::FromWorker>(&event);
  const auto speaker = said == nullptr ? owners_.end() : owners_.find(said->connection);
  for (auto& [id, run] : runs_) {
    for (std::string& key : run.take_asks()) ask({id, run.spawned(), std::move(key), run.spawned_uid()}, out);
    std::vector<cluster::Fact> facts = run.take_facts();
    if (facts.empty()) continue;
    for (cluster::Fact& fact : facts) outbox_.push(std::move(fact));
    if (speaker != owners_.end() && speaker->second == id && outbox_.is_full(id)) pause(id, speaker->first, out);
  }
}

// ---- exchanges that may be finished: asked for one after the other, since each answer may be large ----

void Agent::ask_all(AgentCommands& out) {
  is_linked_ = true;
  asks_.clear();
  for (auto& [id, run] : runs_) {
    run.on_connected();
    for (const std::string& key : run.awaited()) ask({id, run.spawned(), key, run.spawned_uid()}, out);
  }
}

/// Without a link nothing is asked: a new one asks for everything.
void Agent::ask(cluster::ExchangeAsk ask, AgentCommands& out) {
  const auto is_same = [&](const cluster::ExchangeAsk& one) {
    return one.run == ask.run && one.generation == ask.generation && one.key == ask.key;
  };
  if (!is_linked_ || std::any_of(asks_.begin(), asks_.end(), is_same)) return;
  if (asks_.empty()) out.push_back(agent_command::TellCoordinator{ask});
  asks_.push_back(std::move(ask));
}

void Agent::on_exchange_done(const cluster::ExchangeDone& part, AgentCommands& out) {
  if (NodeRun* run = find(part.run)) run->on_exchange_done(part, out);
  const bool is_last = part.first + static_cast<int>(part.values.size()) >= part.count;
  const bool is_answer = !asks_.empty() && asks_.front().run == part.run &&
                         asks_.front().generation == part.generation && asks_.front().key == part.key;
  if (!is_last || !is_answer) return;
  asks_.pop_front();
  if (!asks_.empty()) out.push_back(agent_command::TellCoordinator{asks_.front()});
}

void Agent::on_unlinked() {
  outbox_.on_disconnected();
  is_linked_ = false;
  asks_.clear();
}

void Agent::pause(const RunId& run, ConnectionId connection, AgentCommands& out) {
  if (!paused_.emplace(connection, run).second) return;
  runs_.at(run).on_paused(connection);
  out.push_back(agent_command::PauseWorker{connection});
  if (orphaned_at_ && warned_.insert(run).second)
    out.push_back(agent_command::Warn{fmt::format(
        "run {}: {} MiB of what its ranks say wait for the coordinator; they wait, too, until it takes some", run,
        Outbox::kRunBytesMax >> 20)});
}

void Agent::resume_links(TimePoint now, AgentCommands& out) {
  for (auto link = paused_.begin(); link != paused_.end();) {
    const auto& [connection, run] = *link;
    if (!outbox_.has_room(run)) {
      ++link;
      continue;
    }
    warned_.erase(run);
    if (NodeRun* its = find(run)) its->on_unpaused(now, connection);
    out.push_back(agent_command::ResumeWorker{connection});
    link = paused_.erase(link);
  }
}

void Agent::forget_gone(AgentCommands& out) {
  for (auto run = runs_.begin(); run != runs_.end();) {
    if (!run->second.gone()) {
      ++run;
      continue;
    }
    out.push_back(agent_command::ForgetRun{run->first});
    allocation_.release(run->first);
    allocation_.leave_out(run->first, {});
    std::erase_if(owners_, [&](const auto& owner) { return owner.second == run->first; });
    warned_.erase(run->first);
    // Their ends are seen by those who read.
    for (const auto& [connection, id] : paused_)
      if (id == run->first) out.push_back(agent_command::ResumeWorker{connection});
    std::erase_if(paused_, [&](const auto& link) { return link.second == run->first; });
    run = runs_.erase(run);
  }
}

std::optional<TimePoint> Agent::next_wakeup() const {
  std::optional<TimePoint> next;
  for (const auto& [id, run] : runs_) {
    const std::optional<TimePoint> at = run.next_wakeup();
    if (at) next = next ? std::min(*next, *at) : at;
  }
  for (const auto& at : {outbox_.next_wakeup(), beat_at_, orphaned_at_})
    if (at) next = next ? std::min(*next, *at) : at;
  return next;
}

NodeRun* Agent::find(const RunId& run) {
  const auto place = runs_.find(run);
  return place == runs_.end() ? nullptr : &place->second;
}

}  // namespace sgd::core
