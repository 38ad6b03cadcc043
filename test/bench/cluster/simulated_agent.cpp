#include "test/bench/cluster/simulated_agent.hpp"

#include <csignal>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include "launcher/process/clock.hpp"
#include "launcher/process/random_seed.hpp"

namespace sgd::bench {

SimulatedAgent::SimulatedAgent(boost::asio::io_context& io, net::ReadBuffer& buffer, const net::Address& coordinator,
                               core::AgentFacts facts, std::shared_ptr<const net::TlsContext> tls, Counts& counts,
                               std::size_t value_bytes)
    : io_(io),
      counts_(counts),
      core_(std::move(facts), core::Secrets(process::random_seed())),
      link_(net::make_tcp_agent_link(io, buffer, coordinator, core::Random(process::random_seed()), std::move(tls))),
      timer_(io, [this] { on_event(core::agent_event::Tick{}); }),
      value_bytes_(value_bytes) {}

void SimulatedAgent::start() {
  net::AgentLink::Handlers handlers;
  handlers.on_connected = [this] {
    is_connected_ = true;
    ++counts_.connected;
    ++counts_.connections;
    on_event(core::agent_event::Connected{});
  };
  handlers.on_message = [this](cluster::ToAgent message) {
    on_event(core::agent_event::FromCoordinator{std::move(message)});
  };
  handlers.on_lost = [this](const std::string& reason) {
    ++counts_.reasons[reason];
    if (!std::exchange(is_connected_, false)) {
      ++counts_.failures;
      return;
    }
    --counts_.connected;
    ++counts_.lost;
  };
  link_->start(std::move(handlers));
}

void SimulatedAgent::on_event(const core::AgentEvent& event) {
  core::AgentCommands commands;
  core_.on(process::monotonic_now(), event, commands);
  for (core::AgentCommand& command : commands) carry_out(std::move(command));
  timer_.arm(core_.next_wakeup());
}

void SimulatedAgent::carry_out(core::AgentCommand command) {
  using namespace core::agent_command;
  if (auto* tell = std::get_if<TellCoordinator>(&command)) {
    if (is_connected_ && std::holds_alternative<cluster::Beat>(tell->message)) ++counts_.beats;
    link_->send(std::move(tell->message));
  } else if (const auto* start = std::get_if<StartKeeper>(&command)) {
    runs_[start->run] = {};
    later(core::agent_event::KeeperStarted{start->run});
  } else if (const auto* order = std::get_if<TellKeeper>(&command)) {
    play(order->run, order->message);
  } else if (const auto* worker = std::get_if<TellWorker>(&command)) {
    if (std::holds_alternative<link::ExchangeValue>(worker->message)) ++counts_.values;
  } else if (const auto* strays = std::get_if<ClearStrays>(&command)) {
    later(core::agent_event::StraysCleared{strays->run});
  } else if (const auto* port = std::get_if<ReservePort>(&command)) {
    later(core::agent_event::PortReserved{port->run, port->generation, 29500});
  }
  // The rest is for links of workers, for files, or for people.
}

void SimulatedAgent::play(const RunId& run, const keeper::ToKeeper& order) {
  const auto place = runs_.find(run);
  if (place == runs_.end()) return;
  Played& played = place->second;
  if (const auto* spawn = std::get_if<keeper::Spawn>(&order)) {
    played.generation = spawn->generation;
    played.pids[spawn->rank] = ++last_pid_;
    ++counts_.ranks_started;
    say(run, keeper::Spawned{spawn->generation, spawn->rank, last_pid_});
    if (value_bytes_ > 0) exchange(run, *spawn);
  } else if (std::holds_alternative<keeper::Signal>(order)) {
    end_ranks(run, played, std::get<keeper::Signal>(order).signal);
  } else if (const auto* clear = std::get_if<keeper::Clear>(&order)) {
    const int killed = static_cast<int>(played.pids.size());
    end_ranks(run, played, SIGKILL);
    say(run, keeper::Cleared{clear->generation, killed});
  } else if (std::holds_alternative<keeper::Close>(order)) {
    const int killed = static_cast<int>(played.pids.size());
    end_ranks(run, played, SIGKILL);
    say(run, keeper::Cleared{0, killed});
    later(core::agent_event::KeeperClosed{run, 0, ""});
    runs_.erase(place);
  }
}

bool SimulatedAgent::kill_ranks() {
  const long before = counts_.ranks_ended;
  for (auto& [run, played] : runs_) end_ranks(run, played, SIGKILL);
  return counts_.ranks_ended > before;
}

/// As a rank does it over its link.
void SimulatedAgent::exchange(const RunId& run, const keeper::Spawn& spawn) {
  const auto connection = static_cast<core::ConnectionId>(last_pid_);
  link::Hello hello;
  hello.token = spawn.environment.set.at("SGD_TOKEN");
  hello.pid = last_pid_;
  later(core::agent_event::FromWorker{connection, last_pid_, std::move(hello), run});
  link::ExchangePut put{"addresses", fmt::format("{:0>{}}", spawn.rank, value_bytes_)};
  later(core::agent_event::FromWorker{connection, last_pid_, std::move(put), {}});
}

void SimulatedAgent::end_ranks(const RunId& run, Played& played, int signal) {
  for (const auto& [rank, pid] : std::exchange(played.pids, {})) {
    keeper::Exited exited;
    exited.generation = played.generation;
    exited.rank = rank;
    exited.pid = pid;
    exited.signal = signal;
    ++counts_.ranks_ended;
    say(run, std::move(exited));
  }
}

void SimulatedAgent::say(const RunId& run, keeper::FromKeeper message) {
  later(core::agent_event::FromKeeper{run, std::move(message)});
}

/// As from a socket: never within the event that it answers.
void SimulatedAgent::later(core::AgentEvent event) {
  boost::asio::post(io_, [this, event = std::move(event)] { on_event(event); });
}

}  // namespace sgd::bench
