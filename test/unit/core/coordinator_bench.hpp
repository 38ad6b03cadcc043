#pragma once
// A coordinator's machine under test: events in, the commands of the last one out, on a clock that the test moves.

#include "launcher/core/coordinator.hpp"

#include <array>
#include <map>

#include <catch2/catch.hpp>

namespace sgd::core {

using namespace std::chrono_literals;

/// A coordinator, its commands of the last event, and agents that number their facts.
class CoordinatorBench {
 public:
  explicit CoordinatorBench(std::optional<Duration> node_timeout = std::nullopt)
      : coordinator_(core::CoordinatorSettings{node_timeout}) {}
  explicit CoordinatorBench(core::CoordinatorSettings settings) : coordinator_(settings) {}

  void node(const NodeId& node, int slots, Incarnation incarnation = 1, bool is_new_link = true) {
    cluster::NodeState state;
    state.node = node;
    state.incarnation = incarnation;
    state.slots = slots;
    state.is_new_link = is_new_link;
    from(node, state);
  }
  void submit(const RunId& id, int workers, int priority = 0, int max_failures = 0) {
    core::RunDefinition run;
    run.id = id;
    run.priority = priority;
    run.run_dir = "/" + id;
    run.job.num_workers = workers;
    run.job.recovery.max_failures = max_failures;
    run.job.training.emplace();
    run.job.resolved = nlohmann::json{{"training", nlohmann::json::object()}};
    on(core::coordinator_event::Submitted{std::move(run)});
  }
  void fact(const NodeId& node, const RunId& run, std::int64_t sequence, cluster::FactBody body,
            Generation generation = 1, Incarnation incarnation = 1) {
    const GenerationUid uid = uid_of(run, std::holds_alternative<cluster::Cleared>(body));
    from(node, cluster::Fact{incarnation, sequence, run, generation, std::move(body), uid});
  }
  /// As nodes were told it: of the newest generation, or of the wish to clear on behalf of the next one.
  [[nodiscard]] GenerationUid uid_of(const RunId& run, bool is_of_wish) const {
    const auto known = coordinator_.state().runs_.find(run);
    if (known == coordinator_.state().runs_.end()) return 0;
    const core::RunState& state = known->second.state();
    return is_of_wish ? state.desired_uid_ : state.generation_uid_;
  }
  void from(const NodeId& node, cluster::FromAgent message) {
    on(core::coordinator_event::FromAgent{node, std::move(message)});
  }
  void on(const core::CoordinatorEvent& event) {
    commands_.clear();
    coordinator_.on(now_, event, commands_);
    check_sums();
  }
  void replay(const core::CoordinatorEvent& event) { coordinator_.replay(now_, event, commands_); }
  /// Moves the clock on, with a tick at every wake-up.
  void wait(Duration duration) {
    const TimePoint end = now_ + duration;
    for (auto next = coordinator_.next_wakeup(); next && *next <= end; next = coordinator_.next_wakeup()) {
      now_ = *next;
      on(core::coordinator_event::Tick{});
    }
    now_ = end;
  }
  /// Moves the clock on and ticks only then.
  void wait_late(Duration duration) {
    now_ += duration;
    on(core::coordinator_event::Tick{});
  }

  /// What the last event wants of `run` on `node`; nothing: it said nothing.
  [[nodiscard]] std::optional<cluster::DesiredRun> wanted(const NodeId& node, const RunId& run) const {
    std::optional<cluster::DesiredRun> found;
    for (const auto& command : commands_) {
      const auto* send = std::get_if<core::coordinator_command::SendToAgent>(&command);
      if (send == nullptr || send->node != node) continue;
      const auto* desired = std::get_if<cluster::DesiredRun>(&send->message);
      if (desired != nullptr && desired->run == run) found = *desired;
    }
    return found;
  }
  /// Sequence that the last event acknowledged; -1: none.
  [[nodiscard]] std::int64_t acknowledged() const {
    std::int64_t sequence = -1;
    for (const auto& command : commands_) {
      const auto* send = std::get_if<core::coordinator_command::SendToAgent>(&command);
      const auto* ack = send == nullptr ? nullptr : std::get_if<cluster::FactAck>(&send->message);
      if (ack != nullptr) sequence = ack->sequence;
    }
    return sequence;
  }
  [[nodiscard]] int events() const {
    int count = 0;
    for (const auto& command : commands_)
      count += std::holds_alternative<core::coordinator_command::RecordEvent>(command);
    return count;
  }
  /// Of the run that the last event has ended.
  [[nodiscard]] std::optional<core::RunOutcome> outcome() const {
    for (const auto& command : commands_)
      if (const auto* finished = std::get_if<core::coordinator_command::FinishRun>(&command)) return finished->outcome;
    return std::nullopt;
  }
  [[nodiscard]] RunPhase phase(const RunId& run) const { return coordinator_.snapshot(now_, run)->phase; }
  /// Words of the last event's refusal; empty: nobody was refused.
  [[nodiscard]] std::string refused() const {
    for (const auto& command : commands_)
      if (const auto* refused = std::get_if<core::coordinator_command::RefuseAgent>(&command)) return refused->reason;
    return {};
  }
  [[nodiscard]] const core::FactCounts& facts() const { return coordinator_.facts(); }
  [[nodiscard]] bool has_had_rank(const RunId& run, const NodeId& node) const {
    return coordinator_.has_had_rank(run, node);
  }
  [[nodiscard]] bool has_stored() const {
    for (const auto& command : commands_)
      if (std::holds_alternative<core::coordinator_command::Store>(command)) return true;
    return false;
  }
  void order(const NodeId& node, core::NodeOrder::Kind kind, int slots = -1) {
    on(core::coordinator_event::NodeOrdered{node, {kind, slots}});
  }
  [[nodiscard]] core::NodeSnapshot row(const NodeId& node) const {
    for (const core::NodeSnapshot& row : coordinator_.nodes())
      if (row.node == node) return row;
    return {};
  }
  [[nodiscard]] bool knows(const NodeId& node) const {
    for (const core::NodeSnapshot& row : coordinator_.nodes())
      if (row.node == node) return row.phase != core::NodePhase::kLost;
    return false;
  }
  /// Of the last event.
  [[nodiscard]] const CoordinatorCommands& commands() const { return commands_; }
  [[nodiscard]] const Coordinator& coordinator() const { return coordinator_; }

 private:
  /// They are what the rows of all nodes add up to.
  void check_sums() const {
    using Counts = std::map<NodePhase, std::array<int, 3>>;
    Counts rows;
    Counts sums;
    for (const NodeSnapshot& row : coordinator_.nodes()) {
      std::array<int, 3>& all = rows[row.phase];
      all = {all[0] + 1, all[1] + row.slots, all[2] + row.used};
    }
    for (const auto& [phase, sum] : coordinator_.node_sums()) sums[phase] = {sum.nodes, sum.slots, sum.used};
    if (rows != sums) FAIL("node_sums() are not those of nodes()");
  }

  Coordinator coordinator_;
  TimePoint now_{};
  CoordinatorCommands commands_;
};

}  // namespace sgd::core
