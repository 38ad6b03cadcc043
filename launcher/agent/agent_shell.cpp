#include "launcher/agent/agent_shell.hpp"

#include <unistd.h>

#include <set>

#include <boost/asio/post.hpp>
#include <fmt/format.h>

#include "launcher/agent/stacks.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/process/process_tree.hpp"
#include "launcher/process/random_seed.hpp"

namespace sgd::agent {
namespace {

constexpr Duration kStraysLimit = std::chrono::seconds(2);

}  // namespace

AgentShell::AgentShell(boost::asio::io_context& io, core::AgentFacts facts, std::string program,
                       std::unique_ptr<net::AgentLink> link, AgentObserver observer,
                       std::unique_ptr<Spool> spool)
    : io_(io),
      program_(std::move(program)),
      link_path_(facts.link_path),
      core_(std::move(facts), core::Random(process::random_seed())),
      link_(std::move(link)),
      spool_(std::move(spool)),
      observer_(std::move(observer)),
      workers_(io, [this](core::AgentEvent event) { on_event(event); },
               [this](std::string reason) { observer_.on_warning(std::move(reason)); }),
      timer_(io, [this] { on_event(core::agent_event::Tick{}); }) {}

AgentShell::~AgentShell() = default;

Status AgentShell::start() {
  const Status listening = workers_.listen(link_path_);
  if (!listening) return listening;
  if (spool_) {
    const Status started = spool_->start([this](std::string message) { observer_.on_warning(std::move(message)); });
    if (!started) return started;
  }
  net::AgentLink::Handlers handlers;
  handlers.on_connected = [this] { on_event(core::agent_event::Connected{}); };
  handlers.on_message = [this](cluster::ToAgent message) {
    auto* desired = std::get_if<cluster::DesiredRun>(&message);
    if (spool_ && desired != nullptr) message = spool_->localize(std::move(*desired));
    on_event(core::agent_event::FromCoordinator{std::move(message)});
  };
  handlers.on_lost = [this](std::string reason) {
    on_event(core::agent_event::Disconnected{});
    observer_.on_warning("coordinator: " + std::move(reason));
  };
  link_->start(std::move(handlers));
  return {};
}

void AgentShell::leave() { on_event(core::agent_event::LeavingSoon{}); }

void AgentShell::set_slots(int slots) { on_event(core::agent_event::SlotsChanged{slots}); }

void AgentShell::stop() {
  workers_.stop();
  if (spool_) spool_->stop();
  timer_.cancel();
  (void)::unlink(link_path_.c_str());
}

void AgentShell::on_event(const core::AgentEvent& event) {
  core::AgentCommands commands;
  core_.on(process::monotonic_now(), event, commands);
  for (core::AgentCommand& command : commands) carry_out(std::move(command));
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
    std::vector<int> descriptors;
    const auto keeper = keepers_.find(to_worker->run);
    if (std::holds_alternative<link::Assignment>(to_worker->message) && keeper != keepers_.end())
      descriptors = keeper->second->descriptors();
    workers_.send(to_worker->connection, to_worker->message, descriptors);
  } else if (auto* drop = std::get_if<DropLink>(&command)) {
    workers_.drop(drop->connection, drop->reason);
  } else if (auto* start = std::get_if<StartKeeper>(&command)) {
    start_keeper(start->run);
  } else if (auto* fetch = std::get_if<FetchCheckpoint>(&command)) {
    fetch_checkpoint(*fetch);
  } else if (auto* stacks = std::get_if<KeepStacks>(&command)) {
    keep_stacks(stacks->run_dir, stacks->generation, stacks->pids);
  } else if (auto* warning = std::get_if<Warn>(&command)) {
    observer_.on_warning(std::move(warning->message));
  } else if (auto* strays = std::get_if<ClearStrays>(&command)) {
    clear_strays(strays->run);
  } else if (auto* forget = std::get_if<ForgetRun>(&command)) {
    forget_run(forget->run);
  }
}

void AgentShell::forget_run(const RunId& run) {
  boost::asio::post(io_, [this, run] {
    keepers_.erase(run);
    if (spool_) spool_->end(run);
    observer_.on_run_gone(run);
  });
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

void AgentShell::start_keeper(const RunId& run) {
  KeeperProcess::Handlers handlers;
  handlers.on_message = [this, run](keeper::FromKeeper message) { on_keeper_message(run, std::move(message)); };
  handlers.on_output = [this, run](Output output) {
    output.run = run;
    if (spool_) spool_->look(run);
    observer_.on_output(std::move(output));
  };
  handlers.on_closed = [this, run](int signal, const std::string& reason) {
    boost::asio::post(io_, [this, run, signal, reason] {
      keepers_.erase(run);
      on_event(core::agent_event::KeeperClosed{run, signal, reason});
    });
  };
  auto keeper = std::make_unique<KeeperProcess>(io_, std::move(handlers));
  const Status started = keeper->start(program_);
  if (started) {
    keepers_[run] = std::move(keeper);
    return;
  }
  const std::string reason = "keeper could not be started: " + started.error().message;
  boost::asio::post(io_, [this, run, reason] { on_event(core::agent_event::KeeperClosed{run, 0, reason}); });
}

void AgentShell::on_keeper_message(const RunId& run, keeper::FromKeeper message) {
  if (std::holds_alternative<keeper::Started>(message)) return on_event(core::agent_event::KeeperStarted{run});
  if (const auto* dropped = std::get_if<keeper::OutputDropped>(&message)) {
    observer_.on_warning(fmt::format("rank {}: {} lines ({} bytes) of output dropped: {}", dropped->rank, dropped->lines,
                                     dropped->bytes, dropped->reason));
    return;
  }
  if (const auto* ready = std::get_if<keeper::ForkServerReady>(&message)) {
    if (!ready->can_fork)
      observer_.on_warning(fmt::format("fork server has {} threads after loading: ranks are started by exec instead",
                                       ready->threads));
  }
  on_event(core::agent_event::FromKeeper{run, std::move(message)});
}

/// A keeper died: its descendants have become ours, except those that died with it.
void AgentShell::clear_strays(const RunId& run) {
  std::set<pid_t> spared;
  for (const auto& [id, keeper] : keepers_)
    if (id != run) spared.insert(keeper->pid());
  const auto killed = process::kill_descendants(spared, kStraysLimit);
  if (!killed) observer_.on_warning("processes are left: " + killed.error().message);
  boost::asio::post(io_, [this, run] { on_event(core::agent_event::StraysCleared{run}); });
}

void AgentShell::acknowledge_output(const RunId& run, std::size_t bytes) {
  const auto keeper = keepers_.find(run);
  if (keeper != keepers_.end()) keeper->second->send(keeper::OutputAck{static_cast<std::int64_t>(bytes)});
}

}  // namespace sgd::agent
