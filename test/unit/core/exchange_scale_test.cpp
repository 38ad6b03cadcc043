// An exchange of as many ranks as a large run has, among as many nodes as a large cluster has: everybody gets all
// values, in order, and no message is too long for a frame. The machines of the coordinator and of the agents, without
// a network.

#include <deque>
#include <map>
#include <memory>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "common/job/load.hpp"
#include "common/messages/frame.hpp"
#include "launcher/core/agent.hpp"
#include "launcher/core/coordinator.hpp"

using namespace sgd;
using namespace sgd::core;
using namespace std::chrono_literals;

namespace {

constexpr int kNodes = 10'000;
constexpr int kHosts = 512;
constexpr std::size_t kValueBytes = 1 << 10;
/// Of so many hosts one is looked at as its link would: encoded, and decoded again.
constexpr int kEncoded = 64;

std::string name_of(int node) {
  return fmt::format("node-{:05}", node);
}

/// A node's agent with one rank, which gives a value as soon as it is linked.
struct Host {
  Host(int node, std::uint64_t seed) : number(node), agent(facts_of(node), Secrets({seed, 2, 3, 4})) {}
  static AgentFacts facts_of(int node) {
    AgentFacts facts;
    facts.node = name_of(node);
    facts.incarnation = static_cast<Incarnation>(node + 1);
    facts.slots = 1;
    facts.allowed_cores = {0};
    facts.is_shared = true;
    return facts;
  }
  int number;
  Agent agent;
  Rank rank = -1;
  std::vector<nlohmann::json> got;
};

class Cluster {
 public:
  Cluster() {
    for (int node = 0; node < kHosts; ++node) {
      hosts_.push_back(std::make_unique<Host>(node, static_cast<std::uint64_t>(node)));
      on(*hosts_.back(), agent_event::Connected{});
    }
    for (int node = kHosts; node < kNodes; ++node) {
      cluster::NodeState state;
      state.node = name_of(node);
      state.incarnation = static_cast<Incarnation>(node + 1);
      state.slots = 1;
      state.is_new_link = true;
      from_node(state.node, state);
    }
    deliver();
  }

  void start() {
    RunDefinition run;
    run.id = "run";
    run.run_dir = "/run";
    run.job = *job::load_resolved({{"name", "run"},
                                   {"num_workers", kHosts},
                                   {"min_workers", kHosts},
                                   {"recovery", {{"max_failures", 0}}},
                                   {"command", {"true"}}})
                   .job;
    on_coordinator(coordinator_event::Submitted{std::move(run)});
    deliver();
  }

  std::vector<std::unique_ptr<Host>> hosts_;
  std::size_t longest = 0;
  bool are_in_order = true;

 private:
  void on(Host& host, const AgentEvent& event) {
    AgentCommands out;
    host.agent.on(now_ += 1us, event, out);
    for (AgentCommand& command : out) {
      if (auto* up = std::get_if<agent_command::TellCoordinator>(&command)) {
        up_.emplace_back(host.number, std::move(up->message));
      } else if (std::holds_alternative<agent_command::StartKeeper>(command)) {
        later_.emplace_back(host.number, agent_event::KeeperStarted{"run"});
      } else if (const auto* port = std::get_if<agent_command::ReservePort>(&command)) {
        later_.emplace_back(host.number, agent_event::PortReserved{port->run, port->generation, 4000});
      } else if (auto* told = std::get_if<agent_command::TellKeeper>(&command)) {
        if (const auto* spawn = std::get_if<keeper::Spawn>(&told->message)) spawned(host, *spawn);
      } else if (auto* worker = std::get_if<agent_command::TellWorker>(&command)) {
        const auto* value = std::get_if<link::ExchangeValue>(&worker->message);
        if (value == nullptr) continue;
        are_in_order = are_in_order && value->rank == static_cast<Rank>(host.got.size());
        host.got.push_back(value->value);
      }
    }
  }
  void spawned(Host& host, const keeper::Spawn& spawn) {
    host.rank = spawn.rank;
    const std::string& token = spawn.environment.set.at("SGD_TOKEN");
    later_.emplace_back(host.number,
                        agent_event::FromKeeper{"run", keeper::Spawned{spawn.generation, spawn.rank, 100}});
    later_.emplace_back(host.number,
                        agent_event::FromWorker{1, 100, link::Hello{token, 100, link::kProtocol, "", false, 0}, "run"});
    link::ExchangePut put{"addresses", value_of(spawn.rank)};
    later_.emplace_back(host.number, agent_event::FromWorker{1, 100, std::move(put)});
  }
  void from_node(const NodeId& node, cluster::FromAgent message) {
    on_coordinator(coordinator_event::FromAgent{node, std::move(message)});
  }
  void on_coordinator(const CoordinatorEvent& event) {
    CoordinatorCommands out;
    coordinator_.on(now_ += 1us, event, out);
    for (CoordinatorCommand& command : out) {
      if (auto* send = std::get_if<coordinator_command::SendToAgent>(&command))
        down_.emplace_back(std::move(send->node), std::move(send->message));
      if (auto* shared = std::get_if<coordinator_command::SendToAgents>(&command))
        for (const NodeId& node : shared->nodes) down_.emplace_back(node, shared->message);
    }
  }
  /// Until nobody has anything to say.
  void deliver() {
    while (!up_.empty() || !down_.empty() || !later_.empty()) {
      for (auto& [host, event] : std::exchange(later_, {})) on(*hosts_[static_cast<std::size_t>(host)], event);
      for (auto& [host, message] : std::exchange(up_, {})) from_node(name_of(host), over_the_wire(host, message));
      for (auto& [node, message] : std::exchange(down_, {})) {
        const int number = std::stoi(node.substr(5));
        if (number >= kHosts) continue;
        on(*hosts_[static_cast<std::size_t>(number)],
           agent_event::FromCoordinator{over_the_wire(number, std::move(message))});
      }
    }
  }
  template <class Message>
  Message over_the_wire(int host, Message message) {
    if (host % kEncoded != 0) return message;
    const std::string text = cluster::encode(message);
    longest = std::max(longest, text.size());
    if constexpr (std::is_same_v<Message, cluster::ToAgent>) {
      return cluster::decode_to_agent(text).value();
    } else {
      return cluster::decode_from_agent(text).value();
    }
  }

 public:
  static std::string value_of(Rank rank) { return fmt::format("{:0>{}}", rank, kValueBytes); }

 private:
  TimePoint now_{1h};
  Coordinator coordinator_{CoordinatorSettings{.node_timeout = 1h}};
  std::deque<std::pair<int, cluster::FromAgent>> up_;
  std::deque<std::pair<NodeId, cluster::ToAgent>> down_;
  std::deque<std::pair<int, AgentEvent>> later_;
};

}  // namespace

TEST_CASE("exchange: 512 hosts of ten thousand nodes give a kilobyte each, and all get all of it") {
  Cluster cluster;
  cluster.start();
  for (const auto& host : cluster.hosts_) {
    REQUIRE(host->rank >= 0);
    REQUIRE(host->got.size() == kHosts);
    CHECK(host->got.front() == Cluster::value_of(0));
    CHECK(host->got.back() == Cluster::value_of(kHosts - 1));
  }
  CHECK(cluster.are_in_order);
  CHECK(cluster.longest > kValueBytes);
  CHECK(cluster.longest < kJsonFrameBytesMax);
}
