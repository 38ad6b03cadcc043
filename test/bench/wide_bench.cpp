// How long one event of a wide run holds the coordinator's loop: nodes come, ranks start, one is killed and all start
// again, a node is lost, many are cut off at once, the run ends; and the same nodes under many small runs, and with as
// many that wait. The machine of the coordinator, with nodes that answer at once.
//
// wide_bench [nodes] [training|command|small|queue]

#include <algorithm>
#include <chrono>
#include <ctime>
#include <deque>
#include <string>

#include <fmt/format.h>

#include "common/job/load.hpp"
#include "launcher/core/coordinator.hpp"

using namespace sgd;

namespace {

Duration thread_cpu() {
  timespec used{};
  (void)::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

std::string name_of(int node) {
  return fmt::format("node{:05}", node);
}

class Bench {
 public:
  Bench(int nodes, bool is_training) : nodes_(nodes), is_training_(is_training) {}

  void play_small() {
    for (int node = 0; node < nodes_; ++node) come(node);
    end_of("nodes come");
    start_small(0, nodes_ / kSmall);
    end_of("start");
    stop_small(nodes_ / kSmall);
    end_of("stop");
  }

  void play_queue() {
    for (int node = 0; node < nodes_; ++node) come(node);
    const int runs = nodes_ / kSmall;
    start_small(0, runs);
    end_of("all nodes are taken");
    start_small(runs, runs);
    end_of("as many runs wait");
    stop_small(20);
    end_of("20 end, and 20 that waited start");
  }

  void play() {
    for (int node = 0; node < nodes_; ++node) come(node);
    end_of("nodes come");
    submit(nodes_);
    deliver();
    end_of("start");
    exit_of(nodes_ / 2);
    deliver();
    end_of("a rank is killed, all start again");
    now_ += std::chrono::seconds(1);
    take("closed", core::coordinator_event::AgentClosed{name_of(nodes_ / 3)});
    take("lost", core::coordinator_event::NodeSilent{name_of(nodes_ / 3), 5});
    deliver();
    end_of("a node is lost, the others start again");
    cut_off(nodes_ / 3);
    end_of("a third of the nodes is cut off, and comes back");
    take("stop", core::coordinator_event::StopRequested{run_, {}});
    deliver();
    end_of("stop");
  }

 private:
  static constexpr int kSmall = 10;

  void start_small(int first, int count) {
    for (int number = first; number < first + count; ++number) {
      run_ = fmt::format("run{:04}", number);
      submit(kSmall);
      deliver();
    }
  }
  /// Those that were submitted first.
  void stop_small(int count) {
    for (int number = 0; number < count; ++number) {
      run_ = fmt::format("run{:04}", number);
      take("stop", core::coordinator_event::StopRequested{run_, {}});
      deliver();
    }
  }
  void cut_off(int count) {
    for (int node = 0; node < count; ++node) take("closed", core::coordinator_event::AgentClosed{name_of(node)});
    now_ += std::chrono::seconds(5);
    for (int node = 0; node < count; ++node) take("lost", core::coordinator_event::NodeSilent{name_of(node), 5});
    deliver();
    for (int node = 0; node < count; ++node) come(node);
    deliver();
  }
  void come(int node) {
    cluster::NodeState state;
    state.node = name_of(node);
    state.incarnation = static_cast<Incarnation>(node + 1);
    state.address = "10.0.0.1";
    state.slots = 1;
    state.cpus = 64;
    state.labels = {{"gpu", "h100"}, {"zone", "a"}};
    state.is_new_link = true;
    take("node", core::coordinator_event::FromAgent{state.node, state});
  }
  void submit(int workers) {
    nlohmann::json job = {{"name", "run"}, {"num_workers", workers}, {"min_workers", 1}};
    job["recovery"] = {{"max_failures", "unlimited"}, {"backoff", {{"first", "1ms"}}}};
    if (is_training_) {
      job["training"] = {{"batch_size", workers}, {"epochs", 10}, {"loss", "mse"}};
      job["training"]["model"] = job["training"]["dataset"] = {{"type", "linear"}};
    } else {
      job["command"] = {"true"};
    }
    core::RunDefinition run;
    run.id = run_;
    run.run_dir = "/runs/" + run_;
    run.job = *job::load_resolved(job).job;
    take("submit", core::coordinator_event::Submitted{std::move(run)});
  }
  void exit_of(int node) {
    cluster::WorkerExited exited;
    for (const auto& [rank, record] : run().ranks_)
      if (record.node == name_of(node)) exited.rank = rank;
    exited.pid = 100;
    exited.signal = 9;
    tell(name_of(node), run().generation_, run().generation_uid_, exited);
  }

  /// Until nobody has anything to say, nor waits for a moment that is near.
  void deliver() {
    while (true) {
      while (!down_.empty()) {
        const auto [node, desired] = std::move(down_.front());
        down_.pop_front();
        run_ = desired.run;
        answer(node, desired);
      }
      const auto next = machine_.next_wakeup();
      if (!next || *next > now_ + std::chrono::seconds(10)) return;
      now_ = std::max(now_, *next);
      take("tick", core::coordinator_event::Tick{});
    }
  }
  void answer(const NodeId& node, const cluster::DesiredRun& desired) {
    switch (desired.want) {
      case cluster::Want::kPrepare:
        return tell(node, desired.generation, desired.uid, cluster::PortReserved{4000});
      case cluster::Want::kRun:
        for (const cluster::RankPlace& place : desired.ranks) {
          tell(node, desired.generation, desired.uid, cluster::WorkerStarted{place.rank, 100});
          if (is_training_) tell(node, desired.generation, desired.uid, cluster::WorkerReady{place.rank, {}});
          if (is_training_) tell(node, desired.generation, desired.uid, cluster::WorkerFirstStep{place.rank, 1});
        }
        return;
      case cluster::Want::kLeave:
        return;
      case cluster::Want::kStop:
      case cluster::Want::kClear:
      case cluster::Want::kGone:
        return tell(node, desired.generation, desired.uid, cluster::Cleared{1});
    }
  }
  void tell(const NodeId& node, Generation generation, GenerationUid uid, cluster::FactBody body) {
    const auto known = machine_.state().nodes_.find(node);
    if (known == machine_.state().nodes_.end()) return;
    const std::string what = fmt::format("fact {}", body.index());
    take(what,
         core::coordinator_event::FromAgent{node, cluster::Fact{known->second.incarnation, known->second.last_fact + 1,
                                                                run_, generation, std::move(body), uid}});
  }
  void take(const std::string& what, const core::CoordinatorEvent& event) {
    core::CoordinatorCommands commands;
    const Duration before = thread_cpu();
    machine_.on(now_ += std::chrono::microseconds(10), event, commands);
    const Duration held = thread_cpu() - before;
    all_ += held;
    ++events_;
    if (held > longest_) {
      longest_ = held;
      longest_is_ = what;
    }
    for (core::CoordinatorCommand& command : commands) {
      auto* send = std::get_if<core::coordinator_command::SendToAgent>(&command);
      auto* desired = send == nullptr ? nullptr : std::get_if<cluster::DesiredRun>(&send->message);
      if (desired != nullptr) down_.emplace_back(send->node, std::move(*desired));
    }
  }
  void end_of(const std::string& phase) {
    fmt::print("{}: {} events, {:.0f} ms; the longest {:.1f} ms ({})\n", phase, events_, to_seconds(all_) * 1e3,
               to_seconds(longest_) * 1e3, longest_is_);
    events_ = 0;
    all_ = longest_ = {};
  }
  [[nodiscard]] const core::RunState& run() const { return machine_.state().runs_.at(run_).state(); }

  int nodes_;
  bool is_training_;
  RunId run_ = "run";
  TimePoint now_{std::chrono::hours(1)};
  core::Coordinator machine_{core::CoordinatorSettings{std::chrono::hours(24)}};
  std::deque<std::pair<NodeId, cluster::DesiredRun>> down_;
  int events_ = 0;
  Duration all_{};
  Duration longest_{};
  std::string longest_is_;
};

}  // namespace

int main(int argc, char** argv) {
  const int nodes = argc > 1 ? std::stoi(argv[1]) : 10'000;
  const std::string only = argc > 2 ? argv[2] : "";
  for (const std::string kind : {"training", "command", "small", "queue"}) {
    if (!only.empty() && only != kind) continue;
    const bool is_one = kind == "training" || kind == "command";
    fmt::print("{} nodes, {}\n", nodes, is_one ? "one run: " + kind : "runs of 10 ranks: " + kind);
    Bench bench(nodes, kind != "command");
    if (kind == "small") bench.play_small();
    if (kind == "queue") bench.play_queue();
    if (is_one) bench.play();
  }
  return 0;
}
