// Orders of a coordinator whose store has lost its end: the same numbers are given a second time, by one that knows
// nothing of what was answered to the first.

#include <algorithm>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "test/unit/core/agent_story.hpp"

using namespace sgd;
using namespace sgd::core;
using namespace std::chrono_literals;

namespace {

cluster::DesiredRun wish(cluster::Want want, Generation generation, GenerationUid uid) {
  cluster::DesiredRun desired;
  desired.run = "run";
  desired.generation = generation;
  desired.uid = uid;
  desired.want = want;
  if (want == cluster::Want::kRun) desired.ranks = {{0, 0}};
  desired.world_size = 1;
  desired.job =
      nlohmann::json{{"per_worker", {{"cpus", 1}}}, {"recovery", {{"max_failures", 0}}}, {"command", {"true"}}};
  return desired;
}

class OrderedNode {
 public:
  OrderedNode() { on(agent_event::Connected{}); }
  AgentCommands on(const AgentEvent& event) {
    AgentCommands out;
    agent_.on(now_ += 1ms, event, out);
    for (const AgentCommand& command : out) {
      const auto* up = std::get_if<agent_command::TellCoordinator>(&command);
      const auto* fact = up == nullptr ? nullptr : std::get_if<cluster::Fact>(&up->message);
      if (fact != nullptr) said_.push_back(*fact);
    }
    return out;
  }
  AgentCommands after(Duration passed) {
    now_ += passed;
    return on(agent_event::Tick{});
  }
  /// What is said about it: generations and uids of ends.
  std::vector<std::pair<Generation, GenerationUid>> ends_after(const cluster::DesiredRun& desired) {
    said_.clear();
    on(agent_event::FromCoordinator{desired});
    std::vector<std::pair<Generation, GenerationUid>> ends;
    for (const cluster::Fact& fact : said_)
      if (std::holds_alternative<cluster::Cleared>(fact.body)) ends.emplace_back(fact.generation, fact.uid);
    return ends;
  }
  [[nodiscard]] bool starts(const cluster::DesiredRun& desired) {
    const AgentCommands out = on(agent_event::FromCoordinator{desired});
    return std::any_of(out.begin(), out.end(), [](const AgentCommand& command) {
      return std::holds_alternative<agent_command::StartKeeper>(command);
    });
  }
  [[nodiscard]] std::int64_t last_sequence() const { return agent_.last_sequence(); }

 private:
  TimePoint now_{1h};
  Agent agent_{agent_story::facts(), Secrets({1, 2, 3, 4})};
  std::vector<cluster::Fact> said_;
};

}  // namespace

TEST_CASE("agent: a second wish of the same number is answered anew, one that is told twice is not") {
  using Ends = std::vector<std::pair<Generation, GenerationUid>>;
  OrderedNode node;
  CHECK(node.ends_after(wish(cluster::Want::kClear, 2, 50)) == Ends{{2, 50}});
  CHECK(node.ends_after(wish(cluster::Want::kClear, 2, 50)).empty());
  CHECK(node.ends_after(wish(cluster::Want::kClear, 2, 60)) == Ends{{2, 60}});
  CHECK(node.ends_after(wish(cluster::Want::kGone, 2, 60)) == Ends{{2, 60}});
}

TEST_CASE("agent: what is gone does not start a second time while its coordinator has not heard of its end") {
  OrderedNode node;
  CHECK(node.starts(wish(cluster::Want::kRun, 1, 50)));
  node.on(agent_event::KeeperStarted{"run"});
  node.on(agent_event::FromKeeper{"run", keeper::Spawned{1, 0, 100}});
  node.on(agent_event::FromCoordinator{wish(cluster::Want::kGone, 1, 50)});
  keeper::Exited exited;
  exited.generation = 1;
  exited.pid = 100;
  exited.signal = 9;
  node.on(agent_event::FromKeeper{"run", exited});
  node.on(agent_event::FromKeeper{"run", keeper::Cleared{1, 1}});
  node.on(agent_event::KeeperClosed{"run", 0, ""});
  node.on(agent_event::StraysCleared{"run"});
  CHECK_FALSE(node.starts(wish(cluster::Want::kRun, 1, 50)));
  CHECK(node.starts(wish(cluster::Want::kRun, 1, 60)));  // Another one that has the same number.
}

TEST_CASE("agent: what is gone may start again when its end was heard") {
  OrderedNode node;
  CHECK(node.starts(wish(cluster::Want::kRun, 1, 50)));
  node.on(agent_event::KeeperStarted{"run"});
  node.on(agent_event::FromCoordinator{wish(cluster::Want::kGone, 1, 50)});
  node.on(agent_event::FromKeeper{"run", keeper::Cleared{1, 0}});
  node.on(agent_event::KeeperClosed{"run", 0, ""});
  node.on(agent_event::StraysCleared{"run"});
  node.on(agent_event::FromCoordinator{cluster::FactAck{7, node.last_sequence()}});
  CHECK(node.starts(wish(cluster::Want::kRun, 1, 50)));
}

TEST_CASE("agent: who is asked once more to stop, with another grace, has that from then on") {
  OrderedNode node;
  CHECK(node.starts(wish(cluster::Want::kRun, 1, 50)));
  node.on(agent_event::KeeperStarted{"run"});
  node.on(agent_event::FromKeeper{"run", keeper::Spawned{1, 0, 100}});
  cluster::DesiredRun stop = wish(cluster::Want::kStop, 1, 50);
  const auto kills_after = [&node](Duration passed) {
    const AgentCommands out = node.after(passed);
    return std::any_of(out.begin(), out.end(), [](const AgentCommand& command) {
      const auto* keeper = std::get_if<agent_command::TellKeeper>(&command);
      return keeper != nullptr && std::holds_alternative<keeper::Clear>(keeper->message);
    });
  };
  const auto ask = [&](double grace_s) {
    stop.stop_grace_s = grace_s;
    node.on(agent_event::FromCoordinator{stop});
  };
  SECTION("less than before") {
    for (const double grace_s : {600, 5}) ask(grace_s);
    CHECK_FALSE(kills_after(4s));
    CHECK(kills_after(2s));
  }
  SECTION("more than before") {
    for (const double grace_s : {5, 600}) ask(grace_s);
    CHECK_FALSE(kills_after(6s));
  }
  SECTION("the same, told again") {
    ask(5);
    CHECK_FALSE(kills_after(4s));
    ask(5);
    CHECK(kills_after(2s));
  }
}

TEST_CASE("agent: where others reach it is what its last connection has shown") {
  OrderedNode node;
  const auto told = [&node](const AgentEvent& event) {
    std::string address = "nothing was told";
    for (const AgentCommand& command : node.on(event)) {
      const auto* up = std::get_if<agent_command::TellCoordinator>(&command);
      const auto* state = up == nullptr ? nullptr : std::get_if<cluster::NodeState>(&up->message);
      if (state != nullptr) address = state->address;
    }
    return address;
  };
  CHECK(told(agent_event::Connected{"10.0.0.1"}) == "10.0.0.1");
  CHECK(told(agent_event::Connected{"10.0.0.2"}) == "10.0.0.2");
  node.on(agent_event::Disconnected{});
  CHECK(told(agent_event::Connected{}) == "10.0.0.2");
  // One that takes over knows it until it is connected.
  node.on(agent_event::Resumed{1, "", 0, {}});
  CHECK(told(agent_event::Connected{}) == "10.0.0.2");
  node.on(agent_event::Resumed{1, "10.0.0.3", 0, {}});
  CHECK(told(agent_event::Connected{}) == "10.0.0.3");
}

TEST_CASE("agent: ranks that start as soon as their keeper can are said to be there") {
  OrderedNode node;
  const auto workers = [&node] {
    node.on(agent_event::Disconnected{});
    for (const AgentCommand& command : node.on(agent_event::Connected{})) {
      const auto* up = std::get_if<agent_command::TellCoordinator>(&command);
      const auto* state = up == nullptr ? nullptr : std::get_if<cluster::NodeState>(&up->message);
      if (state != nullptr) return state->runs.empty() ? 0 : state->runs.front().workers;
    }
    return -1;
  };
  CHECK(workers() == 0);
  node.on(agent_event::FromCoordinator{wish(cluster::Want::kPrepare, 1, 50)});
  CHECK(workers() == 0);
  node.on(agent_event::FromCoordinator{wish(cluster::Want::kRun, 1, 50)});
  CHECK(workers() == 1);
  node.on(agent_event::FromCoordinator{wish(cluster::Want::kClear, 2, 60)});
  CHECK(workers() == 0);
}
