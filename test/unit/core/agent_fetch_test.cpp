// What ranks may ask their agent to get for them: all runs of a node share its line for files, and the coordinator
// counts what it refuses there against the node.

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "launcher/core/agent.hpp"
#include "launcher/core/node_run.hpp"
#include "test/unit/core/agent_story.hpp"

using namespace sgd;
using namespace sgd::core;
using namespace std::chrono_literals;

namespace {

/// An agent with one training run, whose ranks have their links.
class FetchingNode {
 public:
  explicit FetchingNode(int ranks) {
    agent_.emplace(agent_story::facts(), Secrets({1, 2, 3, 4}));
    cluster::DesiredRun desired;
    desired.run = "run";
    desired.generation = 2;
    desired.want = cluster::Want::kRun;
    for (Rank rank = 0; rank < ranks; ++rank) desired.ranks.push_back({rank, rank});
    desired.world_size = ranks;
    desired.run_dir = "/runs/run";
    desired.resume_from = {place(20), place(10)};
    desired.job = nlohmann::json{{"per_worker", {{"cpus", 1}}},
                                 {"heartbeat", {{"timeout", "5s"}, {"stall_timeout", "10s"}}},
                                 {"recovery", {{"max_failures", 0}}},
                                 {"training", {{"seed", 1}}}};
    on(agent_event::FromCoordinator{desired});
    on(agent_event::KeeperStarted{"run", "link"});
    on(agent_event::FromKeeper{"run", keeper::ForkServerReady{9, 0.1, 1, true}});
    for (Rank rank = 0; rank < ranks; ++rank) {
      on(agent_event::FromKeeper{"run", keeper::Spawned{2, rank, 100 + rank}});
      on(agent_event::FromWorker{
          link_of(rank), 100 + rank,
          link::Hello{tokens_.at(static_cast<std::size_t>(rank)), 100 + rank, link::kProtocol, "", false, 0}, "run"});
    }
  }

  static std::string place(int step) { return fmt::format("/runs/run/checkpoints/step-{:012}-gen-0001", step); }
  static ConnectionId link_of(Rank rank) { return static_cast<ConnectionId>(rank) + 1; }

  /// How many checkpoints are to be got because of it.
  int ask(Rank rank, const std::string& path) {
    const AgentCommands out = on(agent_event::FromWorker{link_of(rank), 100 + rank, link::Fetch{path}});
    return static_cast<int>(std::count_if(out.begin(), out.end(), [](const AgentCommand& command) {
      return std::holds_alternative<agent_command::FetchCheckpoint>(command);
    }));
  }
  /// Ranks that are told so.
  int come(const std::string& path, const std::string& error) {
    int told = 0;
    for (const AgentCommand& command : on(agent_event::CheckpointFetched{"run", path, error, !error.empty()})) {
      const auto* line = std::get_if<agent_command::TellWorker>(&command);
      told += line != nullptr && std::holds_alternative<link::Fetched>(line->message) ? 1 : 0;
    }
    return told;
  }
  /// Of the last event.
  [[nodiscard]] std::string refusal() const { return refusal_; }
  [[nodiscard]] bool is_missing() const { return is_missing_; }

 private:
  AgentCommands on(const AgentEvent& event) {
    AgentCommands out;
    agent_->on(now_ += 1ms, event, out);
    refusal_.clear();
    for (const AgentCommand& command : out) {
      const auto* told = std::get_if<agent_command::TellKeeper>(&command);
      const auto* spawn = told == nullptr ? nullptr : std::get_if<keeper::Spawn>(&told->message);
      if (spawn != nullptr) tokens_.push_back(spawn->environment.set.at("SGD_TOKEN"));
      const auto* line = std::get_if<agent_command::TellWorker>(&command);
      const auto* fetched = line == nullptr ? nullptr : std::get_if<link::Fetched>(&line->message);
      if (fetched == nullptr) continue;
      refusal_ = fetched->error;
      is_missing_ = fetched->missing;
    }
    return out;
  }

  std::optional<Agent> agent_;
  TimePoint now_{1h};
  std::vector<std::string> tokens_;
  std::string refusal_;
  bool is_missing_ = false;
};

}  // namespace

TEST_CASE("fetch: a rank gets what it may go on from, and nothing else is asked for") {
  FetchingNode node(1);
  for (const std::string& other : {FetchingNode::place(30), std::string("/runs/other/checkpoints/x"), std::string()}) {
    INFO(other);
    CHECK(node.ask(0, other) == 0);
    CHECK(node.refusal() == "it is none of those that its run may go on from");
    CHECK(node.is_missing());  // So that it tries the next one.
  }
  CHECK(node.ask(0, FetchingNode::place(20)) == 1);
}

TEST_CASE("fetch: one at a time, and ranks that want the same one share it") {
  FetchingNode node(3);
  CHECK(node.ask(0, FetchingNode::place(20)) == 1);
  CHECK(node.ask(0, FetchingNode::place(20)) == 0);
  CHECK(node.refusal().empty());  // It is on its way.
  CHECK(node.ask(0, FetchingNode::place(10)) == 0);
  CHECK(node.refusal() == "this rank waits for another checkpoint already");
  CHECK_FALSE(node.is_missing());
  CHECK(node.ask(1, FetchingNode::place(20)) == 0);
  CHECK(node.ask(2, FetchingNode::place(10)) == 1);
  CHECK(node.come(FetchingNode::place(20), "") == 2);
  CHECK(node.come(FetchingNode::place(10), "lost") == 1);
  CHECK(node.ask(1, FetchingNode::place(10)) == 1);
}

TEST_CASE("fetch: who asks again and again is answered here; limit kFetchesMax") {
  FetchingNode node(1);
  for (int time = 0; time < NodeRun::kFetchesMax; ++time) {
    CHECK(node.ask(0, FetchingNode::place(20)) == 1);
    CHECK(node.come(FetchingNode::place(20), "lost") == 1);
  }
  CHECK(node.ask(0, FetchingNode::place(20)) == 0);
  CHECK(node.refusal() == "this rank has asked 32 times");
}
