// AgentShell's beginning where an earlier life has left a journal: with the state in it, its events are taken anew,
// then keepers and ranks are connected to again, and what was on its way is set on its way once more.
//
//   state --> replay --> Resumed --> keepers: attached, or closed, or started --> their ranks' sockets --> on as ever
//
// The socket of a run's ranks waits for its keeper; the coordinator's link waits for nobody.

#include <unistd.h>

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include "launcher/agent/agent_shell.hpp"

namespace sgd::agent {

Status AgentShell::replay() {
  if (!persistence_->past) {
    (void)begin_journal();  // Ignoring: it is said, and tried again.
    return {};
  }
  PastJournal past = std::move(*persistence_->past);
  persistence_->past.reset();
  restore(past.start().shell_state);
  for (;;) {
    auto record = past.next();
    if (!record) return record.error();
    if (!record.value()) break;
    const core::TimedEvent& timed = record.value()->event;
    const std::optional<core::AgentEvent> here = localized(timed.event);
    core::AgentCommands commands;
    core_.on(timed.at, here ? *here : timed.event, commands);
    replay_event(timed.event);
    for (core::AgentCommand& command : commands) replay_command(std::move(command));
  }
  return journal_->go_on(past.read_bytes());
}

/// As they were when the state was saved with which the machine has begun.
void AgentShell::restore(const AgentShellState& shell_state) {
  keepers_made_ = shell_state.keepers_made;
  link_paths_ = shell_state.link_paths;
  std::vector<RunId> runs;
  for (const auto& [run, its] : core_.runs()) {
    runs.push_back(run);
    accounts_.note(its.state().desired_);
    for (const auto& [rank, record] : its.state().ranks_)
      if (record.fetching) fetches_.emplace(run, *record.fetching);
  }
  if (spool_) spool_->restore(shell_state.remotes, runs);
  for (const auto& [run, kept] : shell_state.keepers) {
    keepers_[run] = make_keeper(run, kept.number);
    keepers_[run]->restore(kept);
  }
  workers_.restore(shell_state.links, shell_state.next_link);
}

void AgentShell::replay_event(const core::AgentEvent& event) {
  using namespace core::agent_event;
  if (const auto* started = std::get_if<KeeperStarted>(&event)) {
    if (const auto keeper = keepers_.find(started->run); keeper != keepers_.end()) keeper->second->note_started();
    link_paths_[started->run] = started->link_path;
  } else if (const auto* from_keeper = std::get_if<FromKeeper>(&event)) {
    const auto keeper = keepers_.find(from_keeper->run);
    if (keeper != keepers_.end()) keeper->second->note_message(from_keeper->message);
  } else if (const auto* closed = std::get_if<KeeperClosed>(&event)) {
    if (const auto keeper = keepers_.find(closed->run); keeper != keepers_.end())
      record_dead_keeper(closed->run, *keeper->second);
    keepers_.erase(closed->run);
  } else if (const auto* cleared = std::get_if<StraysCleared>(&event)) {
    dead_keepers_.erase(cleared->run);
    strays_.erase(cleared->run);
  } else if (const auto* from_worker = std::get_if<FromWorker>(&event)) {
    workers_.replay(*from_worker);
  } else if (const auto* link_closed = std::get_if<LinkClosed>(&event)) {
    workers_.replay(*link_closed);
  } else if (const auto* fetched = std::get_if<CheckpointFetched>(&event)) {
    fetches_.erase({fetched->run, fetched->path});
  }
}

/// What was said is noted as said; what was done is done.
void AgentShell::replay_command(core::AgentCommand command) {
  using namespace core::agent_command;
  if (const auto* start = std::get_if<StartKeeper>(&command)) {
    keepers_[start->run] = make_keeper(start->run);
  } else if (auto* to_keeper = std::get_if<TellKeeper>(&command)) {
    const auto keeper = keepers_.find(to_keeper->run);
    if (spool_) spool_->name_logs(to_keeper->run, to_keeper->message);
    if (keeper != keepers_.end()) keeper->second->send(to_keeper->message);
  } else if (const auto* to_worker = std::get_if<TellWorker>(&command)) {
    workers_.send(to_worker->connection, to_worker->message, {});
  } else if (const auto* drop = std::get_if<DropLink>(&command)) {
    workers_.drop(drop->connection, drop->reason);
  } else if (const auto* pause = std::get_if<PauseWorker>(&command)) {
    workers_.pause(pause->connection);
  } else if (const auto* resume = std::get_if<ResumeWorker>(&command)) {
    workers_.resume(resume->connection);
  } else if (const auto* fetch = std::get_if<FetchCheckpoint>(&command)) {
    fetches_.emplace(fetch->run, fetch->path);
  } else if (const auto* strays = std::get_if<ClearStrays>(&command)) {
    strays_.insert(strays->run);
  } else if (const auto* forget = std::get_if<ForgetRun>(&command)) {
    keepers_.erase(forget->run);
    dead_keepers_.erase(forget->run);
    std::erase_if(fetches_, [&](const auto& one) { return one.first == forget->run; });
    accounts_.forget(forget->run);
    link_paths_.erase(forget->run);
    if (spool_) spool_->end(forget->run);
  }
}

void AgentShell::take_over() {
  for (auto& [run, keeper] : keepers_) {
    const auto owner = owner_of(run);
    if (owner && keeper->resume(owner.value())) continue;
    boost::asio::post(io_, [this, run = run] {
      const auto gone = keepers_.find(run);
      if (gone == keepers_.end()) return;
      if (!gone->second->was_started())
        return start_keeper(core::agent_command::StartKeeper{run, {}, {}});  // There was no time for it.
      record_dead_keeper(run, *gone->second);
      keepers_.erase(gone);
      on_event(core::agent_event::KeeperClosed{run, 0, "it has ended while no agent was there", true});
    });
  }
  for (const auto& [run, path] : std::exchange(fetches_, {})) fetch_checkpoint({run, path});
  for (const RunId& run : std::exchange(strays_, {})) clear_strays(run);
  for (const auto& [run, keeper] : keepers_)
    observer_.on_warning(
        fmt::format("run {}: its agent had ended without a word; this one takes over, what runs goes on", run));
  workers_.await_return(persistence_->wait);
}

/// As its folder says, which nobody can exchange: who is asked about accounts may not answer now.
Result<std::optional<storage::FileOwner>> AgentShell::owner_of(const RunId& run) const {
  return spool_ ? spool_->owner_of(run) : std::optional<storage::FileOwner>();
}

/// Not before its keeper is there, since an assignment needs its descriptors.
void AgentShell::listen_again(const RunId& run) {
  if (workers_.listens(run)) return;
  const auto owner = owner_of(run);
  if (const Status listening = owner ? listen(run, owner.value()) : Status(owner.error()); !listening)
    observer_.on_warning(fmt::format("run {}: {}", run, listening.error().message));
}

}  // namespace sgd::agent
