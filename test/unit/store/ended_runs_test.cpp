// What hundreds of runs leave behind that have ended, whatever their ranks and nodes have said: no more than ten.

#include <csignal>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "launcher/storage/agent_state_codec.hpp"
#include "launcher/storage/state_codec.hpp"
#include "test/unit/core/agent_story.hpp"
#include "test/unit/core/coordinator_bench.hpp"

using namespace sgd;
using namespace sgd::core;
using namespace std::chrono_literals;

namespace {

constexpr int kSettled = 20;
constexpr int kRuns = 300;
/// Numbers get longer.
constexpr std::size_t kDigits = 200;

template <class Rows>
std::size_t bytes_of(const Rows& rows) {
  std::size_t bytes = 0;
  for (const storage::StateRow& row : rows) bytes += row.kind.size() + row.id.size() + row.text.size();
  return bytes;
}

/// An agent whose coordinator acknowledges what it is told, and runs whose ranks say all that a rank can.
class RunsOfANode {
 public:
  RunsOfANode() { on(agent_event::Connected{}); }

  void live(const RunId& run, int number) {
    const bool is_training = number % 2 == 0;
    on(agent_event::FromCoordinator{wish(run, is_training, cluster::Want::kRun)});
    on(agent_event::KeeperStarted{run, "link-" + run});
    on(agent_event::FromKeeper{run, keeper::ForkServerReady{9, 0.1, 1, true}});
    for (Rank rank = 0; rank < 2; ++rank) on(agent_event::FromKeeper{run, keeper::Spawned{1, rank, 100 + rank}});
    for (int stranger = 0; stranger < 3; ++stranger)
      on(agent_event::FromWorker{++link_, 100, link::Hello{"guessed", 100, link::kProtocol, "", false, 0}, run});
    for (Rank rank = 0; rank < 2; ++rank)
      on(agent_event::FromWorker{
          ++link_, 100 + rank,
          link::Hello{tokens_.at(static_cast<std::size_t>(rank)), 100 + rank, link::kProtocol, "", true, 0}, run});
    for (Rank rank = 0; rank < 2; ++rank) speak(link_ - 1 + static_cast<ConnectionId>(rank), run);
    end(run, number, wish(run, is_training, cluster::Want::kGone));
  }

  [[nodiscard]] std::size_t bytes() const { return bytes_of(storage::encode_agent(agent_)); }
  [[nodiscard]] const Agent& agent() const { return agent_; }

 private:
  static cluster::DesiredRun wish(const RunId& run, bool is_training, cluster::Want want) {
    cluster::DesiredRun desired;
    desired.run = run;
    desired.generation = 1;
    desired.want = want;
    desired.ranks = {{0, 0}, {1, 1}};
    desired.world_size = 2;
    desired.run_dir = "/runs/" + run;
    desired.resume_from = {"/runs/" + run + "/checkpoints/step-000000000010-gen-0001"};
    desired.job = nlohmann::json{{"per_worker", {{"cpus", 1}}},
                                 {"heartbeat", {{"timeout", "5s"}, {"stall_timeout", "10s"}}},
                                 {"recovery", {{"max_failures", 0}}}};
    if (is_training) desired.job.edit()["training"] = {{"seed", 1}};
    if (!is_training) desired.job.edit()["command"] = {"true"};
    return desired;
  }

  void speak(ConnectionId link, const RunId& run) {
    const auto say = [&](link::FromWorker message) { on(agent_event::FromWorker{link, 100, std::move(message)}); };
    say(link::FirstStep{1});
    link::Heartbeat beat;
    beat.step = 3;
    beat.watched = true;
    say(beat);
    for (int sequence = 1; sequence < 20; ++sequence)
      say(link::Report{{1, "train", sequence, sequence}, sequence, {{"text", std::string(2000, 'x')}}});
    for (int key = 0; key < 10; ++key) say(link::ExchangePut{fmt::format("key {}", key), std::string(1000, 'x')});
    say(link::Fetch{"/runs/" + run + "/checkpoints/step-000000000010-gen-0001"});
    say(link::CheckpointSaved{"checkpoints/step-000000000012-gen-0001", 12, 1, 100});
    say(link::ResultMade{std::string(1000, 'r')});
    say(link::Failed{std::string(1000, 'f'), ""});
    say(link::Stoppable{});
  }

  /// As its number says: first links, or first exits; with the end of the link, or without; by its keeper's death.
  void end(const RunId& run, int number, const cluster::DesiredRun& gone) {
    const auto close_links = [&] {
      for (ConnectionId link = link_ - 4; link <= link_; ++link) on(agent_event::LinkClosed{link});
    };
    if (number % 3 == 0) close_links();
    for (Rank rank = 0; rank < 2; ++rank) {
      keeper::Exited exited;
      exited.generation = 1;
      exited.rank = rank;
      exited.pid = 100 + rank;
      exited.signal = SIGKILL;
      exited.tail = {std::string(1000, 't')};
      on(agent_event::FromKeeper{run, exited});
    }
    if (number % 3 == 1) close_links();
    if (number % 5 == 0) on(agent_event::KeeperClosed{run, SIGKILL, ""});  // Its keeper dies.
    on(agent_event::FromCoordinator{gone});
    now_ += 1s;
    on(agent_event::Tick{});
    on(agent_event::CheckpointFetched{run, gone.resume_from.front(), "", false});
    if (number % 3 == 2) close_links();  // Behind its end.
    on(agent_event::FromCoordinator{cluster::FactAck{7, agent_.last_sequence()}});
  }

  /// And what a keeper and the shell answer to what follows from it.
  void on(const AgentEvent& event) {
    AgentCommands out;
    agent_.on(now_ += 1ms, event, out);
    std::vector<AgentEvent> answers;
    for (const AgentCommand& command : out) {
      if (const auto* strays = std::get_if<agent_command::ClearStrays>(&command))
        answers.push_back(agent_event::StraysCleared{strays->run});
      const auto* told = std::get_if<agent_command::TellKeeper>(&command);
      if (told == nullptr) continue;
      if (const auto* clear = std::get_if<keeper::Clear>(&told->message))
        answers.push_back(agent_event::FromKeeper{told->run, keeper::Cleared{clear->generation, 0}});
      if (std::holds_alternative<keeper::Close>(told->message)) {
        answers.push_back(agent_event::FromKeeper{told->run, keeper::Cleared{0, 0}});
        answers.push_back(agent_event::KeeperClosed{told->run, 0, ""});
      }
      const auto* spawn = std::get_if<keeper::Spawn>(&told->message);
      if (spawn == nullptr) continue;
      if (spawn->rank == 0) tokens_.clear();
      tokens_.push_back(spawn->environment.set.at("SGD_TOKEN"));
    }
    for (const AgentEvent& answer : answers) on(answer);
  }

  TimePoint now_{1h};
  Agent agent_{agent_story::facts(), Secrets({1, 2, 3, 4})};
  ConnectionId link_ = 0;
  std::vector<std::string> tokens_;
};

void live_on_coordinator(CoordinatorBench& bench, const RunId& run, std::int64_t& sequence, std::int64_t& others) {
  bench.submit(run, 2);
  const auto say = [&](cluster::FactBody body) { bench.fact("n", run, ++sequence, std::move(body)); };
  for (Rank rank = 0; rank < 2; ++rank) say(cluster::WorkerStarted{rank, 100 + rank});
  for (Rank rank = 0; rank < 2; ++rank) say(cluster::WorkerFirstStep{rank, 1});
  for (int batch = 1; batch < 20; ++batch)
    say(cluster::Report{0, {{1, "train", batch, batch}, batch, {{"text", std::string(2000, 'x')}}}});
  for (int key = 0; key < 10; ++key) say(cluster::ExchangePut{0, fmt::format("key {}", key), std::string(1000, 'x')});
  for (int step = 10; step < 30; ++step)
    say(cluster::CheckpointSaved{{fmt::format("checkpoints/step-{:012}-gen-0001", step), step, 1, 100}});
  for (Rank rank = 0; rank < 2; ++rank) say(cluster::ResultMade{rank, std::string(1000, 'r')});
  cluster::WorkerExited foreign;
  foreign.pid = 100;
  bench.fact("other", run, ++others, foreign);  // It has none of its ranks.
  bench.on(coordinator_event::StopRequested{run, {StopRequest::Why::kCancelled, 0, true, {}}});
  say(cluster::Cleared{});
  REQUIRE(bench.phase(run) == RunPhase::kFinished);
}

}  // namespace

TEST_CASE("of hundreds of runs that have ended an agent keeps nothing, whatever their ranks said") {
  RunsOfANode node;
  std::size_t settled = 0;
  for (int number = 0; number < kRuns; ++number) {
    node.live(fmt::format("run-{:04}", number), number);
    INFO(number);
    REQUIRE(node.agent().runs().empty());
    if (number + 1 == kSettled) settled = node.bytes();
  }
  CHECK(node.agent().state().owners_.empty());
  CHECK(node.agent().state().paused_.empty());
  CHECK(node.agent().state().warned_.empty());
  CHECK(node.agent().idle());
  CHECK(node.bytes() < settled + kDigits);
}

TEST_CASE("of hundreds of runs that have ended a coordinator keeps as much as of those that it remembers") {
  CoordinatorSettings settings;
  settings.finished_max = kSettled;
  CoordinatorBench bench(settings);
  bench.node("n", 2);
  bench.node("other", 0);
  std::int64_t sequence = 0;
  std::int64_t others = 0;
  std::size_t settled = 0;
  for (int number = 0; number < kRuns; ++number) {
    live_on_coordinator(bench, fmt::format("run-{:04}", number), sequence, others);
    if (number == 2 * kSettled) settled = bytes_of(storage::encode_state(bench.coordinator().state()));
  }
  CHECK(bench.coordinator().runs().size() == kSettled);
  CHECK(bytes_of(storage::encode_state(bench.coordinator().state())) < settled + kSettled * kDigits);
}
