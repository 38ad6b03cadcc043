#pragma once
// Makes up what could happen to an agent with two runs, and puts what it answers into words.

#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include "launcher/core/agent.hpp"
#include "launcher/core/random.hpp"

namespace sgd::core::agent_story {

using std::chrono::milliseconds;
using std::chrono::seconds;

inline AgentFacts facts() {
  AgentFacts facts;
  facts.node = "n";
  facts.incarnation = 7;
  facts.slots = 4;
  facts.allowed_cores = {0, 1, 2, 3};
  facts.worker_program = "sgd-worker";
  facts.beat_interval = seconds(1);
  facts.orphan_timeout = seconds(20);
  facts.returns_within = seconds(20);
  facts.is_shared = true;
  return facts;
}

inline Random seeded(std::uint64_t seed) {
  return Random({seed, 2, 3, 4});
}

inline std::string words(const AgentCommand& command) {
  if (const auto* up = std::get_if<agent_command::TellCoordinator>(&command)) return cluster::encode(up->message);
  if (const auto* keeper = std::get_if<agent_command::TellKeeper>(&command))
    return keeper->run + keeper::encode(keeper->message);
  if (const auto* worker = std::get_if<agent_command::TellWorker>(&command))
    return std::to_string(worker->connection) + link::encode(worker->message);
  return std::to_string(command.index());
}

/// When a link gets its next sign of life, and facts are told once more, is not worth a replay; all else is compared.
inline std::vector<std::string> words(const AgentCommands& commands, bool is_tick = false, std::int64_t told = 0) {
  std::vector<std::string> all;
  for (const AgentCommand& command : commands) {
    const auto* up = std::get_if<agent_command::TellCoordinator>(&command);
    if (up != nullptr && std::holds_alternative<cluster::Beat>(up->message)) continue;
    const auto* fact = up == nullptr ? nullptr : std::get_if<cluster::Fact>(&up->message);
    if (is_tick && fact != nullptr && fact->sequence <= told) continue;
    all.push_back(words(command));
  }
  return all;
}

/// From what it was told to do.
class Story {
 public:
  explicit Story(std::uint64_t seed) : random_(seeded(seed * 977 + 5)) {}

  TimePoint now() const { return now_; }

  AgentEvent next(const Agent& machine) {
    now_ += Duration(static_cast<std::int64_t>(random_.next() % 400'000'000));
    if (const auto wakeup = machine.next_wakeup(); wakeup && *wakeup <= now_) {
      now_ = std::max(*wakeup, now_ - milliseconds(300));
      return agent_event::Tick{};
    }
    const RunId run = pick(2) == 0 ? "training" : "command";
    switch (pick(15)) {
      case 0:
        return agent_event::Connected{};
      case 1:
        return agent_event::Disconnected{};
      case 2:
        return agent_event::FromCoordinator{desired(run)};
      case 3:
        return agent_event::KeeperStarted{run, "link-" + run};
      case 4:
        return agent_event::FromKeeper{run, keeper::ForkServerReady{9, 0.1, 1, true}};
      case 5:
        return agent_event::FromKeeper{run, keeper::Spawned{generation_, pick(2), 100 + pick(2)}};
      case 6:
        return exit_or_cleared(run);
      case 7:
        return agent_event::FromCoordinator{
            cluster::FactAck{7, pick(8) == 0 ? machine.last_sequence() : machine.last_sequence() / 2}};
      case 8:
        return hello();
      case 9:
        return agent_event::LinkClosed{static_cast<ConnectionId>(pick(6))};
      case 10:
        return from_worker(link::Report{{1, "train", pick(1000), 0}, 3, {{"train_loss", 0.5}}});
      case 11:
        return pick(20) == 0 ? AgentEvent(agent_event::KeeperClosed{run, SIGKILL, ""})
                             : AgentEvent(agent_event::StraysCleared{run});
      case 12:
        return agent_event::PortReserved{run, generation_, pick(4) == 0 ? 0 : 40'000 + pick(1000), "none"};
      default:
        break;
    }
    link::Heartbeat beat;
    beat.step = beat_ += pick(2);
    beat.phase = "train";
    return from_worker(beat);
  }

  void note(const AgentCommands& commands) {
    for (const AgentCommand& command : commands) {
      const auto* told = std::get_if<agent_command::TellKeeper>(&command);
      const auto* spawn = told == nullptr ? nullptr : std::get_if<keeper::Spawn>(&told->message);
      if (spawn != nullptr) tokens_.push_back(spawn->environment.set.at("SGD_TOKEN"));
    }
  }

 private:
  int pick(int count) { return static_cast<int>(random_.next() % static_cast<std::uint64_t>(count)); }

  cluster::DesiredRun desired(const RunId& run) {
    cluster::DesiredRun desired;
    desired.run = run;
    generation_ += pick(4) == 0 ? 1 : 0;
    desired.generation = generation_;
    const int want = pick(10);
    desired.want = want < 2    ? cluster::Want::kPrepare
                   : want < 7  ? cluster::Want::kRun
                   : want == 7 ? cluster::Want::kClear
                   : want == 8 ? cluster::Want::kGone
                               : cluster::Want::kStop;
    desired.ranks = {{0, 0}, {1, 1}};
    desired.world_size = 2;
    desired.stop_grace_s = 3;
    desired.run_dir = "/runs/" + run;
    desired.job = nlohmann::json{{"per_worker", {{"cpus", 1}}},
                                 {"heartbeat", {{"timeout", "2s"}, {"stall_timeout", "6s"}}},
                                 {"recovery", {{"max_failures", 3}}}};
    if (run == "training") desired.job.edit()["training"] = {{"seed", 1}};
    if (run == "command") desired.job.edit()["command"] = {"true"};
    return desired;
  }

  AgentEvent exit_or_cleared(const RunId& run) {
    if (pick(3) == 0) return agent_event::FromKeeper{run, keeper::Cleared{pick(3) == 0 ? 0 : generation_, 1}};
    keeper::Exited exited;
    exited.generation = generation_;
    exited.rank = pick(2);
    exited.pid = 100 + exited.rank;
    exited.exit_code = pick(3);
    return agent_event::FromKeeper{run, exited};
  }

  AgentEvent hello() {
    link::Hello hello;
    hello.token =
        tokens_.empty()
            ? "none"
            : tokens_[tokens_.size() - 1 -
                      static_cast<std::size_t>(pick(static_cast<int>(std::min<std::size_t>(tokens_.size(), 4))))];
    return agent_event::FromWorker{++connection_, 100 + pick(2), hello, pick(2) == 0 ? "training" : "command"};
  }

  AgentEvent from_worker(link::FromWorker message) {
    const auto back = static_cast<ConnectionId>(pick(4));
    return agent_event::FromWorker{connection_ > back ? connection_ - back : 1, 100, std::move(message)};
  }

  Random random_;
  TimePoint now_{seconds(1000)};
  Generation generation_ = 1;
  ConnectionId connection_ = 0;
  std::int64_t beat_ = 0;
  std::vector<std::string> tokens_;
};

}  // namespace sgd::core::agent_story
