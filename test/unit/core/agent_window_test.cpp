// What a rank, a keeper or an outage can do to an agent by the amount of what it says: nothing to other runs, and
// nothing to the link.
#include <algorithm>
#include <csignal>
#include <set>

#include <catch2/catch.hpp>

#include "common/messages/frame.hpp"
#include "launcher/core/agent.hpp"

using namespace sgd;
using namespace sgd::core;
using namespace std::chrono_literals;

namespace {

AgentFacts window_facts() {
  AgentFacts facts;
  facts.node = "n";
  facts.incarnation = 7;
  facts.slots = 8;
  facts.allowed_cores = {0, 1, 2, 3, 4, 5, 6, 7};
  facts.is_shared = true;
  facts.orphan_timeout = 10min;
  return facts;
}

/// An agent, and a coordinator that acknowledges when it is told to.
class Node {
 public:
  AgentCommands on(const AgentEvent& event, Duration later = 1ms) {
    now += later;
    AgentCommands out;
    agent.on(now, event, out);
    for (const AgentCommand& command : out) {
      if (const auto* pause = std::get_if<agent_command::PauseWorker>(&command)) paused.insert(pause->connection);
      if (const auto* resume = std::get_if<agent_command::ResumeWorker>(&command)) paused.erase(resume->connection);
      const auto* up = std::get_if<agent_command::TellCoordinator>(&command);
      const auto* fact = up == nullptr ? nullptr : std::get_if<cluster::Fact>(&up->message);
      if (fact != nullptr) sent.push_back(*fact);
      const auto* told = std::get_if<agent_command::TellKeeper>(&command);
      const auto* spawn = told == nullptr ? nullptr : std::get_if<keeper::Spawn>(&told->message);
      if (spawn != nullptr) token = spawn->environment.set.at("SGD_TOKEN");
    }
    return out;
  }
  /// One rank of a command, with its link.
  void start(const RunId& run, ConnectionId connection) {
    cluster::DesiredRun desired;
    desired.run = run;
    desired.generation = 1;
    desired.want = cluster::Want::kRun;
    desired.ranks = {{0, 0}};
    desired.world_size = 1;
    desired.job =
        nlohmann::json{{"per_worker", {{"cpus", 1}}}, {"recovery", {{"max_failures", 0}}}, {"command", {"true"}}};
    on(agent_event::FromCoordinator{desired});
    on(agent_event::KeeperStarted{run});
    on(agent_event::FromKeeper{run, keeper::Spawned{1, 0, 100}});
    on(agent_event::FromWorker{connection, 100, link::Hello{token, 100, link::kProtocol, "", false, 0}, run});
  }
  void report(ConnectionId connection, std::size_t bytes) {
    link::Report report{{1, "train", ++reports, 0}, 1, {{"text", std::string(bytes, 'x')}}};
    on(agent_event::FromWorker{connection, 100, report});
  }
  void acknowledge(std::int64_t sequence) { on(agent_event::FromCoordinator{cluster::FactAck{7, sequence}}); }
  std::vector<cluster::Fact> take() { return std::exchange(sent, {}); }

  TimePoint now{1h};
  Agent agent{window_facts(), Secrets({1, 2, 3, 4})};
  std::set<ConnectionId> paused;
  std::vector<cluster::Fact> sent;
  std::string token;
  std::int64_t reports = 0;
};

keeper::Exited exited(int exit_code) {
  keeper::Exited exited;
  exited.generation = 1;
  exited.pid = 100;
  exited.exit_code = exit_code;
  return exited;
}

std::size_t bytes_of(const std::vector<cluster::Fact>& facts) {
  std::size_t bytes = 0;
  for (const cluster::Fact& fact : facts) bytes += cluster::encode(cluster::FromAgent(fact)).size();
  return bytes;
}

/// Its run is over, the rank and all below the keeper are gone; the rank's link is open.
void end_of_run(Node& node) {
  cluster::DesiredRun gone;
  gone.run = "run";
  gone.generation = 1;
  gone.want = cluster::Want::kGone;
  node.on(agent_event::FromCoordinator{gone});
  node.on(agent_event::FromKeeper{"run", exited(0)});
  node.on(agent_event::FromKeeper{"run", keeper::Cleared{0, 1}});
}

}  // namespace

TEST_CASE("facts window: a rank that says too much during an outage is not read, and all of it arrives in order") {
  Node node;
  node.on(agent_event::Connected{});
  node.start("loud", 1);
  node.acknowledge(node.agent.last_sequence());
  node.on(agent_event::Disconnected{});
  node.take();
  int said = 0;
  for (; said < 800 && node.paused.empty(); ++said) node.report(1, 32 << 10);
  CHECK(node.paused == std::set<ConnectionId>{1});
  CHECK(said < 800);
  CHECK(node.take().empty());  // Nobody is there.

  // Back: never more than the window under way, whatever waits, and the rank goes on when half is acknowledged.
  node.on(agent_event::Connected{});
  std::int64_t last = node.agent.last_sequence() - static_cast<std::int64_t>(node.sent.size());
  std::int64_t batch = 0;
  for (int round = 0; round < 10000 && batch < 800; ++round) {
    const std::vector<cluster::Fact> sent = node.take();
    REQUIRE_FALSE(sent.empty());
    REQUIRE(bytes_of(sent) <= Outbox::kRunWindowBytes + (64 << 10));
    for (const cluster::Fact& fact : sent) {
      REQUIRE(fact.sequence == ++last);
      REQUIRE(std::get<cluster::Report>(fact.body).report.key.batch == ++batch);
    }
    node.acknowledge(last);
    for (; said < 800 && node.paused.empty(); ++said) node.report(1, 32 << 10);
  }
  CHECK(batch == 800);
}

TEST_CASE("facts window: small facts are counted too, and nothing aborts") {
  Node node;
  node.start("loud", 1);
  // A rank whose link is read all the same, as a shell that lags would: 65,536 facts once ended the agent.
  for (int i = 0; i < 70000; ++i) node.report(1, 1);
  CHECK(node.paused == std::set<ConnectionId>{1});
  node.on(agent_event::Connected{});
  std::int64_t last = 0;
  while (!node.sent.empty()) {
    last += static_cast<std::int64_t>(node.take().size());
    node.acknowledge(last);
  }
  CHECK(last == 70001);  // With its start.
  CHECK(node.paused.empty());
}

TEST_CASE("facts window: a full run holds up no other run's facts") {
  Node node;
  node.start("loud", 1);
  node.start("quiet", 2);
  while (node.paused.empty()) node.report(1, 32 << 10);
  node.on(agent_event::FromKeeper{"quiet", exited(3)});
  node.on(agent_event::Tick{}, 1s);
  node.on(agent_event::Connected{});
  // In the first window, although more than a window of the other's was told before.
  const std::vector<cluster::Fact> sent = node.take();
  CHECK(std::any_of(sent.begin(), sent.end(), [](const cluster::Fact& fact) {
    return fact.run == "quiet" && std::holds_alternative<cluster::WorkerExited>(fact.body);
  }));
  // And while nothing is acknowledged.
  node.report(2, 100);
  CHECK(node.take().size() == 1);
  CHECK(node.paused == std::set<ConnectionId>{1});
}

TEST_CASE("facts window: what is not acknowledged in time is sent again a little at a time") {
  Node node;
  node.on(agent_event::Connected{});
  node.start("run", 1);
  for (int i = 0; i < 20; ++i) node.report(1, 32 << 10);
  const std::int64_t told = node.agent.last_sequence();
  CHECK(node.take().size() == static_cast<std::size_t>(told));
  node.on(agent_event::Tick{}, Outbox::kResendAfter);
  std::vector<cluster::Fact> again = node.take();
  REQUIRE_FALSE(again.empty());
  CHECK(again.front().sequence == 1);
  CHECK(bytes_of(again) <= Outbox::kProbeBytes + (64 << 10));
  // Without an answer less and less often.
  node.on(agent_event::Tick{}, Outbox::kResendAfter);
  CHECK(node.take().empty());
  node.on(agent_event::Tick{}, Outbox::kResendAfter);
  CHECK(node.take().size() == again.size());
  std::int64_t last = again.back().sequence;
  while (last < told) {
    node.acknowledge(last);
    again = node.take();
    REQUIRE_FALSE(again.empty());
    CHECK(again.front().sequence == last + 1);
    last = again.back().sequence;
  }
}

TEST_CASE("facts window: a rank that is not read is not called silent, and its end waits for its last words") {
  Node node;
  node.start("loud", 1);
  node.on(agent_event::FromWorker{1, 100, link::Heartbeat{}});
  while (node.paused.empty()) node.report(1, 32 << 10);
  for (int i = 0; i < 100; ++i) node.on(agent_event::Tick{}, 1s);
  node.on(agent_event::FromKeeper{"loud", exited(0)});
  for (int i = 0; i < 10; ++i) node.on(agent_event::Tick{}, 1s);
  node.on(agent_event::Connected{});
  std::vector<cluster::Fact> all;
  const auto drain = [&] {
    while (!node.sent.empty()) {
      const std::vector<cluster::Fact> sent = node.take();
      all.insert(all.end(), sent.begin(), sent.end());
      node.acknowledge(sent.back().sequence);
    }
  };
  drain();
  CHECK(node.paused.empty());
  node.report(1, 10);  // What lay unread.
  node.on(agent_event::LinkClosed{1});
  drain();
  REQUIRE(all.size() >= 2);
  CHECK(std::holds_alternative<cluster::WorkerExited>(all.back().body));
  CHECK(std::holds_alternative<cluster::Report>(all[all.size() - 2].body));
  CHECK(std::none_of(all.begin(), all.end(), [](const cluster::Fact& fact) {
    return std::holds_alternative<cluster::WorkerSilent>(fact.body);
  }));
}

TEST_CASE("facts window: a keeper that lies makes one fact of each kind, and none that a frame cannot take") {
  Node node;
  node.on(agent_event::Connected{});
  node.start("run", 1);
  node.acknowledge(node.agent.last_sequence());
  node.take();
  const std::string text(1 << 20, '\x01');
  keeper::ErrorsSaid said;
  said.generation = 1;
  said.others.emplace_back();
  for (int i = 0; i < 50; ++i) {
    node.on(agent_event::FromKeeper{"run", keeper::Spawned{1, 0, 200 + i}});
    node.on(agent_event::FromKeeper{"run", keeper::SpawnFailed{1, 0, 2, text}});
    node.on(agent_event::FromKeeper{"run", keeper::Cleared{1, 5}});
    node.on(agent_event::FromKeeper{"run", keeper::ForkServerReady{9, 0.1, 1, true}});
    node.on(agent_event::FromKeeper{"run", keeper::ForkServerFailed{1, 0, text}});
    node.on(agent_event::FromKeeper{"run", said});
  }
  CHECK(node.take().empty());
  node.on(agent_event::FromCoordinator{cluster::ErrorsAsk{"run", 1, 0}});
  for (int i = 0; i < 50; ++i) node.on(agent_event::FromKeeper{"run", said});
  CHECK(node.take().size() == 1);  // As often as it was asked.
  keeper::Exited liar = exited(1);
  liar.reason = text;
  liar.tail.assign(40, text);
  node.on(agent_event::FromKeeper{"run", liar});
  node.on(agent_event::Tick{}, 1s);
  const std::vector<cluster::Fact> sent = node.take();
  REQUIRE(sent.size() == 1);
  CHECK(bytes_of(sent) < kJsonFrameBytesMax);
}

TEST_CASE("facts window: exchanges that ranks wait for are asked for one at a time, and come in parts") {
  Node node;
  node.on(agent_event::Connected{});
  node.start("run", 1);
  const auto give = [&](const std::string& key) {
    return node.on(agent_event::FromWorker{1, 100, link::ExchangePut{key, "v"}});
  };
  const auto asked = [](const AgentCommands& commands) {
    std::vector<std::string> keys;
    for (const AgentCommand& command : commands) {
      const auto* up = std::get_if<agent_command::TellCoordinator>(&command);
      const auto* ask = up == nullptr ? nullptr : std::get_if<cluster::ExchangeAsk>(&up->message);
      if (ask != nullptr) keys.push_back(ask->key);
    }
    return keys;
  };
  const auto values = [](const AgentCommands& commands) {
    return std::count_if(commands.begin(), commands.end(), [](const AgentCommand& command) {
      const auto* to = std::get_if<agent_command::TellWorker>(&command);
      return to != nullptr && std::holds_alternative<link::ExchangeValue>(to->message);
    });
  };
  for (int key = 0; key < 3; ++key) CHECK(asked(give(std::to_string(key))).empty());
  CHECK(node.take().size() == 4);  // Puts are facts: acknowledged, and within the window.
  node.on(agent_event::Disconnected{});
  CHECK(asked(node.on(agent_event::Connected{})) == std::vector<std::string>{"0"});
  const auto answer = [&](const std::string& key, Rank first, int count, std::vector<nlohmann::json> some) {
    return node.on(agent_event::FromCoordinator{cluster::ExchangeDone{"run", 1, key, first, count, std::move(some)}});
  };
  AgentCommands out = answer("0", 0, 3, {"a", "b"});
  CHECK((asked(out).empty() && values(out) == 0));
  out = answer("0", 2, 3, {"c"});
  CHECK(values(out) == 3);
  CHECK(asked(out) == std::vector<std::string>{"1"});
  CHECK(asked(answer("1", 0, 0, {})) == std::vector<std::string>{"2"});
  CHECK(values(answer("1", 0, 1, {"late"})) == 1);  // It was finished since.
  // Given again: not told again, asked for.
  node.take();
  CHECK(asked(answer("2", 0, 1, {"c"})).empty());
  CHECK(asked(give("2")) == std::vector<std::string>{"2"});
  CHECK(node.take().empty());
  CHECK(values(answer("2", 0, 1, {"c"})) == 1);
  // More keys than there may be, or one too long, end the link with words.
  const auto is_dropped = [](const AgentCommands& commands) {
    return std::any_of(commands.begin(), commands.end(), [](const AgentCommand& command) {
      return std::holds_alternative<agent_command::DropLink>(command);
    });
  };
  CHECK(is_dropped(give(std::string(257, 'k'))));
  for (int key = 3; key < 4096; ++key) REQUIRE_FALSE(is_dropped(give(std::to_string(key))));
  CHECK(is_dropped(give("one too many")));
}

TEST_CASE("facts window: what a rank said last is told before its end, also where its keeper has ended first") {
  Node node;
  node.on(agent_event::Connected{});
  node.start("run", 5);
  end_of_run(node);
  node.take();
  node.on(agent_event::KeeperClosed{"run", 0, ""});
  CHECK(node.take().empty());
  node.report(5, 10);
  node.on(agent_event::LinkClosed{5});
  const std::vector<cluster::Fact> told = node.take();
  REQUIRE(told.size() == 3);
  CHECK(std::holds_alternative<cluster::Report>(told[0].body));
  CHECK(std::holds_alternative<cluster::WorkerExited>(told[1].body));
  CHECK(std::holds_alternative<cluster::Cleared>(told[2].body));
  CHECK(node.agent.runs().empty());
}

TEST_CASE("facts window: nobody waits longer than a moment for the last words of a run whose keeper has ended") {
  Node node;
  node.on(agent_event::Connected{});
  node.start("run", 5);
  end_of_run(node);
  node.on(agent_event::KeeperClosed{"run", 0, ""});
  CHECK_FALSE(node.agent.runs().empty());
  node.on(agent_event::Tick{}, NodeRun::kLinkDrain);
  CHECK(node.agent.runs().empty());
}

TEST_CASE("facts window: a rank's end is told behind all that it said, however long its link takes to read") {
  Node node;
  node.on(agent_event::Connected{});
  node.start("run", 5);
  node.take();
  node.on(agent_event::FromKeeper{"run", exited(0)});
  for (int number = 0; number < 5; ++number) {
    node.report(5, 10);
    node.on(agent_event::Tick{}, NodeRun::kLinkDrain - 10ms);
  }
  std::vector<cluster::Fact> told = node.take();
  REQUIRE(told.size() == 5);
  for (const cluster::Fact& fact : told) CHECK(std::holds_alternative<cluster::Report>(fact.body));
  node.on(agent_event::Tick{}, NodeRun::kLinkDrain);
  told = node.take();
  REQUIRE(told.size() == 1);
  CHECK(std::holds_alternative<cluster::WorkerExited>(told[0].body));
}

TEST_CASE("facts window: who goes on writing to the link of a rank that has ended holds its end up for kLastWordsMax") {
  Node node;
  node.on(agent_event::Connected{});
  node.start("run", 5);
  node.take();
  const TimePoint began = node.now;
  node.on(agent_event::FromKeeper{"run", exited(0)});
  const auto is_told = [&node] {
    const std::vector<cluster::Fact> told = node.take();
    return std::any_of(told.begin(), told.end(), [](const cluster::Fact& fact) {
      return std::holds_alternative<cluster::WorkerExited>(fact.body);
    });
  };
  while (!is_told()) {
    REQUIRE(node.now < began + 2 * NodeRun::kLastWordsMax);
    node.report(5, 10);
    node.on(agent_event::Tick{}, 100ms);
  }
  CHECK(node.now >= began + NodeRun::kLastWordsMax);
}
