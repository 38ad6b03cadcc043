#include "launcher/agent/agent_shell.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include "launcher/agent/stacks.hpp"
#include "launcher/process/accept_loop.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/process/random_seed.hpp"
#include "launcher/process/strays.hpp"

namespace sgd::agent {
namespace {

constexpr Duration kStraysLimit = std::chrono::seconds(2);
constexpr Duration kRoomLimit = std::chrono::seconds(30);
constexpr Duration kRoomAgain = std::chrono::milliseconds(200);
constexpr Duration kRefusedRest = std::chrono::seconds(6);  // Longer than between two attempts to be taken.

bool lacks_room(int code) {
  return code == EAGAIN || process::is_shortage(code);
}

AgentShell::Persistence without_persistence(core::AgentFacts facts, std::string sockets) {
  AgentShell::Persistence none;
  none.facts = std::move(facts);
  none.token_key = process::random_seed();
  none.sockets = std::move(sockets);
  return none;
}

core::Agent begin_machine(const AgentShell::Persistence& persistence) {
  return persistence.past ? core::Agent(persistence.past->start().machine)
                          : core::Agent(persistence.facts, core::Secrets(persistence.token_key));
}

}  // namespace

AgentShell::AgentShell(boost::asio::io_context& io, core::AgentFacts facts, std::string sockets, std::string program,
                       std::unique_ptr<net::AgentLink> link, AgentObserver observer)
    : AgentShell(io, without_persistence(std::move(facts), std::move(sockets)), std::move(program), std::move(link),
                 std::move(observer), nullptr) {
  persistence_.reset();
  journal_.reset();
}

AgentShell::AgentShell(boost::asio::io_context& io, Persistence persistence, std::string program,
                       std::unique_ptr<net::AgentLink> link, AgentObserver observer, std::unique_ptr<Spool> spool)
    : io_(io),
      program_(std::move(program)),
      sockets_(persistence.sockets),
      core_(begin_machine(persistence)),
      link_(std::move(link)),
      spool_(std::move(spool)),
      accounts_(io, persistence.accounts),
      observer_(std::move(observer)),
      workers_(io, {[this](const core::AgentEvent& event) { on_event(event); },
                    [this](std::string reason) { observer_.on_warning(std::move(reason)); },
                    [this](const RunId& run) {
                      const auto keeper = keepers_.find(run);
                      return keeper == keepers_.end() ? std::vector<process::SharedFd>()
                                                      : keeper->second->descriptors();
                    },
                    [this](const RunId& run, int pid) {
                      const auto keeper = keepers_.find(run);
                      return keeper != keepers_.end() && process::is_below(pid, keeper->second->pid());
                    }}),
      timer_(io, [this] { on_event(core::agent_event::Tick{}); }),
      persistence_(std::move(persistence)),
      journal_(std::in_place, persistence_->journal_path, persistence_->rewrite_bytes) {}

AgentShell::~AgentShell() = default;

Status AgentShell::start() {
  if (spool_) {
    const Status started = spool_->start([this](std::string message) { observer_.on_warning(std::move(message)); });
    if (!started) return started;
  }
  if (persistence_) {
    const bool has_past = persistence_->past.has_value();
    if (const Status replayed = replay(); !replayed) return replayed;
    if (has_past) on_event(persistence_->now);
    take_over();
  }
  link_to_coordinator();
  return {};
}

void AgentShell::link_to_coordinator() {
  net::AgentLink::Handlers handlers;
  handlers.on_connected = [this] { on_event(core::agent_event::Connected{address_by_link()}); };
  handlers.on_message = [this](cluster::ToAgent message) {
    if (const auto* ask = std::get_if<cluster::AccountAsk>(&message)) return answer(*ask);
    if (const auto* refused = std::get_if<cluster::AgentRefused>(&message)) {
      link_->on_refused(refused->reason);
      // Two of one name would end each other's link for files without end.
      if (spool_) spool_->rest(kRefusedRest);
      if (observer_.on_refused) observer_.on_refused(refused->reason);
      return;
    }
    on_event(core::agent_event::FromCoordinator{std::move(message)});
  };
  handlers.on_lost = [this](std::string reason) {
    on_event(core::agent_event::Disconnected{});
    observer_.on_warning("coordinator: " + std::move(reason));
  };
  link_->start(std::move(handlers));
}

/// Empty: it stays what it was.
std::string AgentShell::address_by_link() const {
  if (!persistence_ || !persistence_->takes_address) return {};
  std::string address = link_->local_address();
  if (!address.empty() && observer_.on_address) observer_.on_address(address);
  return address;
}

void AgentShell::answer(const cluster::AccountAsk& ask) {
  accounts_.find_for({ask.owner, ask.may_be_root},
                     [this, number = ask.number](const Result<std::optional<process::Account>>& account) {
                       link_->send(cluster::AccountAnswer{number, account ? "" : account.error().message});
                     });
}

void AgentShell::leave() {
  on_event(core::agent_event::LeavingSoon{});
}

void AgentShell::set_slots(int slots) {
  on_event(core::agent_event::SlotsChanged{slots});
}

void AgentShell::stop() {
  no_room_.clear();
  workers_.stop();
  if (spool_) spool_->stop();
  clearings_.clear();
  timer_.cancel();
}

/// Without continuity a keeper's link closes with us, and that is enough.
void AgentShell::end_everything() {
  for (auto& [run, keeper] : keepers_)
    if (persistence_ && keeper->is_attached()) keeper->send(keeper::AgentEnds{});
  const TimePoint until = process::monotonic_now() + KeeperProcess::kLeaveLimit;
  for (auto& [run, keeper] : keepers_)
    if (persistence_ && !(keeper->is_attached() && keeper->ends_by(until)))
      (void)process::kill_strays({keeper->reattach_options().mark},
                                 kStraysLimit);  // Ignoring: there is nobody to tell.
  for (const auto& [run, clearing] : clearings_)
    if (const std::string& mark = clearing->dead().reattach.mark; !mark.empty())
      (void)process::kill_strays({mark}, kStraysLimit);  // Ignoring: there is nobody to tell.
  if (journal_) journal_->remove();
  stop();
}

/// The journal has what the coordinator said; the machine, where it is on this node. Nothing: it is the same.
std::optional<core::AgentEvent> AgentShell::localized(const core::AgentEvent& event) {
  const auto* from = std::get_if<core::agent_event::FromCoordinator>(&event);
  const auto* desired = from == nullptr ? nullptr : std::get_if<cluster::DesiredRun>(&from->message);
  if (!spool_ || desired == nullptr) return std::nullopt;
  accounts_.note(*desired);
  return core::agent_event::FromCoordinator{spool_->localize(*desired)};
}

void AgentShell::on_event(const core::AgentEvent& event) {
  core::AgentCommands commands;
  const TimePoint now = process::monotonic_now();
  const std::optional<core::AgentEvent> here = localized(event);
  core_.on(now, here ? *here : event, commands);
  if (journal_) write_down(now, event);
  for (core::AgentCommand& command : commands) carry_out(std::move(command));
  give_up_start(event);
  timer_.arm(core_.next_wakeup());
}

void AgentShell::carry_out(core::AgentCommand command) {
  using namespace core::agent_command;
  if (auto* tell = std::get_if<TellCoordinator>(&command)) {
    link_->send(spool_ ? spool_->for_coordinator(std::move(tell->message)) : std::move(tell->message));
  } else if (auto* to_keeper = std::get_if<TellKeeper>(&command)) {
    const auto keeper = keepers_.find(to_keeper->run);
    if (spool_) spool_->name_logs(to_keeper->run, to_keeper->message);
    if (keeper != keepers_.end()) keeper->second->send(to_keeper->message);
  } else if (auto* to_worker = std::get_if<TellWorker>(&command)) {
    std::vector<process::SharedFd> descriptors;
    const auto keeper = keepers_.find(to_worker->run);
    if (std::holds_alternative<link::Assignment>(to_worker->message) && keeper != keepers_.end())
      descriptors = keeper->second->descriptors();
    workers_.send(to_worker->connection, to_worker->message, std::move(descriptors));
  } else if (auto* drop = std::get_if<DropLink>(&command)) {
    workers_.drop(drop->connection, drop->reason);
  } else if (const auto* pause = std::get_if<PauseWorker>(&command)) {
    workers_.pause(pause->connection);
  } else if (const auto* resume = std::get_if<ResumeWorker>(&command)) {
    workers_.resume(resume->connection);
  } else if (auto* start = std::get_if<StartKeeper>(&command)) {
    start_keeper(*start);
  } else if (auto* fetch = std::get_if<FetchCheckpoint>(&command)) {
    fetch_checkpoint(*fetch);
  } else if (auto* stacks = std::get_if<KeepStacks>(&command)) {
    keep_stacks(stacks->run_dir, stacks->generation, stacks->pids);
  } else if (auto* warning = std::get_if<Warn>(&command)) {
    observer_.on_warning(std::move(warning->message));
  } else if (auto* strays = std::get_if<ClearStrays>(&command)) {
    clear_strays(strays->run);
  } else if (const auto* wanted = std::get_if<ReservePort>(&command)) {
    reserve_port(*wanted);
  } else if (const auto* known = std::get_if<HoldPort>(&command)) {
    std::vector<int> ports = known->worker_ports;
    ports.insert(ports.begin(), known->port);
    (void)ports_.hold(known->run, ports);  // Ignoring: then its rank has it, for which it was kept.
  } else if (const auto* released = std::get_if<ReleasePort>(&command)) {
    ports_.release(released->run);
  } else if (auto* forget = std::get_if<ForgetRun>(&command)) {
    forget_run(forget->run);
  }
}

/// At once: the run may be begun again before the loop turns. What speaks just now is there until this event is over.
void AgentShell::forget_run(const RunId& run) {
  auto keeper = keepers_.extract(run);
  dead_keepers_.erase(run);
  accounts_.forget(run);
  bringing_.erase(run);
  no_room_.erase(run);
  workers_.forget(run);
  link_paths_.erase(run);
  const bool is_known = !unknown_strays_.contains(run);
  if (spool_) spool_->end(run);
  boost::asio::post(io_, [this, run, is_known, keeper = std::move(keeper)] { observer_.on_run_gone(run, is_known); });
}

/// Where this node sees the coordinator's folders, a checkpoint that is not there is nowhere.
void AgentShell::fetch_checkpoint(const core::agent_command::FetchCheckpoint& fetch) {
  const auto& [run, path] = fetch;
  const auto answer = [this, run = run, path = path](const FileFetcher::Fetched& fetched) {
    on_event(core::agent_event::CheckpointFetched{run, path, fetched.error, fetched.is_missing});
  };
  if (!spool_) return boost::asio::post(io_, [answer] { answer({"no such checkpoint", true}); });
  const auto progress = [this, run = run, path = path](std::int64_t bytes) {
    on_event(core::agent_event::FetchAdvanced{run, path, bytes});
  };
  spool_->fetch(run, path, {progress, answer});
}

std::unique_ptr<KeeperProcess> AgentShell::make_keeper(const RunId& run) {
  const std::uint64_t number = ++keepers_made_;
  link_paths_.try_emplace(run, fmt::format("{}link-{}.sock", sockets_, number));
  return make_keeper(run, number);
}

std::unique_ptr<KeeperProcess> AgentShell::make_keeper(const RunId& run, std::uint64_t number) {
  KeeperProcess::Handlers handlers;
  handlers.on_message = [this, run](keeper::FromKeeper message) { on_keeper_message(run, std::move(message)); };
  handlers.on_output = [this, run](Output output) {
    output.run = run;
    if (spool_) spool_->look(run);
    observer_.on_output(std::move(output));
  };
  handlers.on_closed = [this, run](int signal, const std::string& reason) {
    boost::asio::post(io_, [this, run, signal, reason] {
      if (const auto keeper = keepers_.find(run); keeper != keepers_.end()) record_dead_keeper(run, *keeper->second);
      keepers_.erase(run);
      on_event(core::agent_event::KeeperClosed{run, signal, reason});
    });
  };
  handlers.on_stopped = [this, run](const std::string& what) {
    observer_.on_warning(fmt::format("run {}: {}", run, what));
  };
  if (!persistence_) return std::make_unique<KeeperProcess>(io_, std::move(handlers));
  handlers.on_attached = [this, run] { listen_again(run); };
  handlers.on_words = [this, run](const std::string& text) {
    std::string line = text.substr(0, text.find_last_not_of('\n') + 1);
    std::replace(line.begin(), line.end(), '\n', ' ');
    observer_.on_warning(fmt::format("run {}: its keeper said: {}", run, line));
  };
  KeeperProcess::ReattachOptions reattach;
  reattach.number = number;
  reattach.socket = fmt::format("{}keeper-{}.sock", sockets_, number);
  reattach.mark = fmt::format("{}{}", persistence_->mark, number);
  reattach.wait = persistence_->wait;
  reattach.inherits_environment = persistence_->passes_environment;
  reattach.cgroup = fmt::format("sgd-{}", reattach.mark.substr(reattach.mark.find('=') + 1));
  return std::make_unique<KeeperProcess>(io_, std::move(handlers), std::move(reattach));
}

/// After a replay, one that was to be started and was not is made already.
void AgentShell::start_keeper(const core::agent_command::StartKeeper& start) {
  auto& keeper = keepers_[start.run];
  if (!keeper) keeper = make_keeper(start.run);
  accounts_.find(start.run,
                 [this, start, asked = keeper.get()](const Result<std::optional<process::Account>>& account) {
                   const auto waiting = keepers_.find(start.run);
                   if (waiting != keepers_.end() && waiting->second.get() == asked) bring_files(start, account);
                 });
}

/// What the job brings is here before anything of it is started.
void AgentShell::bring_files(const core::agent_command::StartKeeper& start,
                             const Result<std::optional<process::Account>>& account) {
  const auto run = core_.runs().find(start.run);
  const bool has_files = run != core_.runs().end() && run->second.state().desired_.job->contains("files");
  if (!spool_ || !has_files || !account) return begin_keeper(start, account);
  bringing_.insert(start.run);
  std::optional<storage::FileOwner> owner;
  if (account.value()) owner = storage::FileOwner{account.value()->uid, account.value()->gid};
  spool_->bring_files(start.run, owner, [this, start, account](const Status& brought) {
    if (bringing_.erase(start.run) == 0) return;
    if (!brought) return fail_keeper(start.run, brought.error());
    begin_keeper(start, account);
  });
}

/// A run that is to be gone waits neither for its files nor for room.
void AgentShell::give_up_start(const core::AgentEvent& event) {
  const auto* from = std::get_if<core::agent_event::FromCoordinator>(&event);
  const auto* desired = from == nullptr ? nullptr : std::get_if<cluster::DesiredRun>(&from->message);
  if (desired == nullptr || desired->want != cluster::Want::kGone) return;
  if (bringing_.erase(desired->run) + no_room_.erase(desired->run) == 0) return;
  fail_keeper(desired->run, Error{"the run has ended before it could begin here"});
}

void AgentShell::begin_keeper(const core::agent_command::StartKeeper& start,
                              const Result<std::optional<process::Account>>& account) {
  if (!account && lacks_room(account.error().code) &&
      wait_for_room(start.run, account.error(), [this, start] { start_keeper(start); }))
    return;
  const Status prepared = account ? prepare_for(start.run, account.value()) : Status(account.error());
  if (!prepared) return fail_keeper(start.run, prepared.error());
  if (!spares_.empty() && start.first && !persistence_ && !account.value()) return ask_for_spare(start);
  start_own_keeper(start.run, account.value());
}

/// Of a run that would start a Python and import for seconds: one that has done so before is somewhere, perhaps.
void AgentShell::ask_for_spare(const core::agent_command::StartKeeper& start) {
  const auto on_answer = [this, run = start.run, asked = keepers_.at(start.run).get()](std::optional<SpareKeeper> spare,
                                                                                       const std::string& refusal) {
    const auto waiting = keepers_.find(run);
    if (waiting == keepers_.end() || waiting->second.get() != asked) return;
    if (!refusal.empty()) observer_.on_warning("the interpreter that is held ready is not used: " + refusal);
    if (spare && waiting->second->adopt(std::move(*spare))) return;
    start_own_keeper(run, std::nullopt);
  };
  std::make_shared<SpareRequest>(io_)->ask(spares_, *start.first, input_.get(), on_answer);
}

void AgentShell::start_own_keeper(const RunId& run, const std::optional<process::Account>& account) {
  const Status started = keepers_.at(run)->start(program_, account, input_.get());
  const bool may_pass = !started && lacks_room(started.error().code) && keepers_.at(run)->pid() == 0;
  const auto again = [this, run, account] { start_own_keeper(run, account); };
  if (may_pass && wait_for_room(run, started.error(), again)) return;
  no_room_.erase(run);
  if (!started) fail_keeper(run, started.error());
}

/// Whoever has all processes for a moment does not end the runs that begin in it. False: the time for that is over.
bool AgentShell::wait_for_room(const RunId& run, const Error& lacking, std::function<void()> again) {
  const TimePoint now = process::monotonic_now();
  auto& waiting = no_room_[run];
  if (!waiting.timer) {
    waiting.timer = std::make_unique<net::Timer>(io_);
    waiting.until = now + kRoomLimit;
    observer_.on_warning(fmt::format("run {}: its keeper waits to be started, at most {}: {}", run,
                                     format_duration(kRoomLimit), lacking.message));
  }
  if (now >= waiting.until) return false;
  waiting.timer->after(kRoomAgain, std::move(again));
  return true;
}

void AgentShell::fail_keeper(const RunId& run, const Error& error) {
  // One that never was has left nothing that cannot be seen.
  if (persistence_ && keepers_.at(run)->pid() != 0) record_dead_keeper(run, *keepers_.at(run));
  keepers_.erase(run);
  const std::string reason = "keeper could not be started: " + error.message;
  const bool may_go_elsewhere = persistence_.has_value();  // Else this node is the launcher's own.
  boost::asio::post(io_, [this, run, reason, may_go_elsewhere] {
    on_event(core::agent_event::KeeperClosed{run, 0, reason, false, may_go_elsewhere});
  });
}

/// What belongs to the run's account: its folder, and the socket for its ranks.
Status AgentShell::prepare_for(const RunId& run, const std::optional<process::Account>& account) {
  std::optional<storage::FileOwner> owner;
  if (account) owner = storage::FileOwner{account->uid, account->gid};
  if (spool_)
    if (const Status opened = spool_->open(run, owner); !opened) return opened;
  return listen(run, owner);
}

Status AgentShell::listen(const RunId& run, const std::optional<storage::FileOwner>& owner) {
  if (workers_.listens(run)) return {};
  std::optional<process::SocketOwner> user;
  if (owner) user = process::SocketOwner{owner->uid, owner->gid};
  return workers_.listen(run, link_paths_.at(run), user);
}

void AgentShell::on_keeper_message(const RunId& run, keeper::FromKeeper message) {
  if (std::holds_alternative<keeper::Started>(message))
    return on_event(core::agent_event::KeeperStarted{run, link_paths_.at(run)});
  if (const auto* dropped = std::get_if<keeper::OutputDropped>(&message)) {
    const std::string line = fmt::format("rank {}: {} lines ({} bytes) of output dropped: {}", dropped->rank,
                                         dropped->lines, dropped->bytes, dropped->reason);
    if (dropped->is_on_console) return observer_.on_warning(line);
    if (observer_.on_told) observer_.on_told(fmt::format("run {}: {}", run, line));
  }
  if (const auto* ready = std::get_if<keeper::ForkServerReady>(&message)) {
    if (!ready->can_fork)
      observer_.on_warning(fmt::format(
          "ranks are started by exec, not by fork: {}",
          ready->reason.empty() ? fmt::format("{} threads run after loading", ready->threads) : ready->reason));
  }
  if (auto* exited = std::get_if<keeper::Exited>(&message)) explain_port(run, *exited);
  on_event(core::agent_event::FromKeeper{run, std::move(message)});
}

void AgentShell::record_dead_keeper(const RunId& run, const KeeperProcess& keeper) {
  if (!persistence_) {
    KeeperProcess::ReattachOptions reattach;
    reattach.mark = keeper.mark();
    if (!reattach.mark.empty()) dead_keepers_[run] = {reattach, false, keeper.pid(), {}};
    return;
  }
  auto leaf = process::CgroupLeaf::find(keeper.reattach_options().cgroup);
  if (leaf) leaf->remove();  // Unless somebody is in it still.
  dead_keepers_[run] = {keeper.reattach_options(), keeper.is_our_child(), keeper.pid(), std::move(leaf)};
}

/// A keeper died, without having said that nothing is left below it.
void AgentShell::clear_strays(const RunId& run) {
  auto dead = dead_keepers_.extract(run);
  StrayClearing::Handlers handlers;
  handlers.spared = [this, run] {
    std::set<pid_t> spared;
    for (const auto& [id, keeper] : keepers_)
      if (id != run && keeper->pid() > 0) spared.insert(keeper->pid());
    return spared;
  };
  handlers.on_done = [this, run](const Status& cleared, int killed) { on_strays_cleared(run, cleared, killed); };
  auto& clearing = clearings_[run];
  clearing = std::make_unique<StrayClearing>(io_, dead.empty() ? DeadKeeper{{}, true, 0, {}} : std::move(dead.mapped()),
                                             std::move(handlers));
  clearing->start();
}

/// Where it had a control group, the kernel knew who was below it. Where it was this process's child, its descendants
/// have become ours, except those that died with it. One that was taken over has left them to init: then those that
/// bear its mark or are of its session are known, and nobody else.
void AgentShell::on_strays_cleared(const RunId& run, const Status& cleared, int killed) {
  const DeadKeeper& dead = clearings_.at(run)->dead();
  if (!cleared) observer_.on_warning("processes are left: " + cleared.error().message);
  if (!dead.reattach.mark.empty() && !dead.leaf && !dead.was_our_child) {
    unknown_strays_.insert(run);
    observer_.on_warning(fmt::format(
        "run {}: its keeper has ended without a word; {} processes that bore its mark are killed, and one that has "
        "emptied "
        "its environment and left its session cannot be seen: an agent that may make control groups (Delegate=yes) "
        "sees all",
        run, killed));
  }
  boost::asio::post(io_, [this, run] {
    clearings_.erase(run);
    on_event(core::agent_event::StraysCleared{run});
  });
}

void AgentShell::pass_signal(const RunId& run, int signal) {
  const auto keeper = keepers_.find(run);
  if (keeper != keepers_.end()) keeper->second->send(keeper::SignalAll{signal});
}

void AgentShell::acknowledge_output(const RunId& run, std::size_t bytes) {
  const auto keeper = keepers_.find(run);
  if (keeper != keepers_.end()) keeper->second->send(keeper::OutputAck{static_cast<std::int64_t>(bytes)});
}

}  // namespace sgd::agent
