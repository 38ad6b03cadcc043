#pragma once
// The ledger of one run: everything that its coordinator orders and records is entered here, beside what
// really happened to its processes and samples, and must agree with it after every entry.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/json/nlohmann.hpp"
#include "common/messages/cluster.hpp"
#include "launcher/core/coordinator_io.hpp"
#include "test/sim/budget_check.hpp"
#include "test/sim/point.hpp"
#include "test/sim/world.hpp"

namespace sgd::sim {

struct ProcessEnd {
  Generation generation = 0;
  Rank rank = 0;
  int exit_code = 0;
  int signal = 0;
  bool is_order = false;  ///< Killed because its keeper was told so, or with its keeper.
};

class RunCheck {
 public:
  /// The coordinator died: what it was about to tell of generations up to `generation` may never have been told.
  void skip_to(Generation generation);
  /// It was built again, with this newest generation: a start that nobody was told of may be cleared.
  void on_coordinator_restarted(Generation generation) { restarted_at_ = generation; }
  /// The store has lost its end: the coordinator knows of generations up to this one, and of no other end.
  void on_tail_lost(Generation generation, bool is_finished);
  /// It was, or may have been, before the store lost its end: nobody can know what becomes of it.
  [[nodiscard]] bool is_forgotten(Generation generation) const { return generation <= forgotten_; }
  RunCheck(World& world, const RunPlan& plan) : world_(world), plan_(plan), budget_(job()) {}

  struct Told {
    bool starts = false;  ///< A new generation,
    bool places = false;  ///< or its ranks on this node.
  };
  /// `is_drained`: to leave, it needs no room elsewhere and no cooldown.
  Told on_desired(const NodeId& node, const cluster::DesiredRun& desired, bool is_drained);
  /// All nodes of a generation have been told.
  void check_ranks() const;
  void on_event(const nlohmann::ordered_json& event);
  void on_metrics(const nlohmann::ordered_json& line);
  void on_phase_done(Generation generation, const Point& point);
  /// Of a trial: its run has ended, and lives once more.
  void begin_again(Generation past);
  /// Of a trial: it goes on from a state of another one's.
  void on_clone(const Point& point) {
    checkpoints_.clear();
    accepted_.clear();
    position_ = 2 * (point.epoch - 1) + (point.validating ? 1 : 0);
  }
  /// It has come to the coordinator's disk, and that is committed.
  void on_checkpoint_stored(const std::string& path);
  /// A generation that its coordinator has forgotten may come again.
  void on_process_start(Generation generation, Rank rank) { ends_.erase({generation, rank}); }
  /// A number that was given a second time, after the store had lost its end, is another group's on another node.
  void on_process_end(const NodeId& node, const ProcessEnd& end) {
    if (!has_forgotten() || end.generation != generation_ || !is_elsewhere(node, end.rank))
      ends_[{end.generation, end.rank}] = end;
  }
  /// Its keeper on `node` died, or was ended unasked: nobody tells the ends of its ranks.
  void on_keeper_lost(const NodeId& node) { keepers_lost_.emplace(node, generation_); }
  /// The keeper has refused to start it.
  void on_spawn_failed(Generation generation, Rank rank) { never_started_.insert({generation, rank}); }
  /// None of its ranks of that generation is started then; one of them is blamed.
  void on_port_refused(Generation generation, const NodeId& node) { without_port_.insert({generation, node}); }
  void on_stop_requested() { is_stop_requested_ = true; }
  void on_finish(const core::RunOutcome& outcome);

  [[nodiscard]] Generation generation() const { return generation_; }
  /// The ranks of the newest generation are asked to leave at the next boundary.
  [[nodiscard]] bool is_leaving() const { return is_leaving_; }
  [[nodiscard]] bool finished() const { return finished_; }
  [[nodiscard]] int lines() const { return lines_; }
  /// Of this life of the run.
  [[nodiscard]] Generation first_generation() const { return first_generation_; }
  /// The coordinator has given `node` up while `generation`, or a later one, was there.
  [[nodiscard]] bool was_lost(const NodeId& node, Generation generation) const;
  /// The generation of a placement that keeps the job's rules about nodes.
  void check_rules(const NodeId& node, const NodePlan& plan, std::size_t ranks) const;
  /// The node could not begin with it, and it has not run since: while it waits for another node it does not ask again.
  [[nodiscard]] bool was_refused_by(const NodeId& node) const { return refusing_.contains(node); }
  /// Ranks that the newest generation may have on `node`; nothing when they were told to go.
  [[nodiscard]] std::optional<int> wanted_on(const NodeId& node) const;

  /// What it left for may be taken by others meanwhile, now and then.
  static constexpr int kVainMost = 5;

 private:
  void start(const cluster::DesiredRun& desired);
  /// The rank of the newest generation is wanted on another node.
  [[nodiscard]] bool is_elsewhere(const NodeId& node, Rank rank) const;
  [[nodiscard]] bool has_forgotten() const { return forgotten_ > 0; }
  void check_resume(const cluster::DesiredRun& desired) const;
  void check_stored(const cluster::DesiredRun& desired) const;
  void drop_older();
  void note_refusal(const nlohmann::ordered_json& event);
  void check_cause(const nlohmann::ordered_json& event) const;
  [[nodiscard]] const ProcessEnd* end_of(const nlohmann::ordered_json& failure) const;
  [[nodiscard]] bool is_final(const nlohmann::ordered_json& failure) const;
  void on_rejected(const std::string& path);
  void check_success() const;
  void check_exits() const;
  [[nodiscard]] const job::JobSpec& job() const { return plan_.definition.job; }

  World& world_;
  const RunPlan& plan_;
  BudgetCheck budget_;
  Generation generation_ = 0;
  int world_size_ = 0;
  std::optional<TimePoint> resized_at_;
  bool is_leaving_ = false;
  std::set<NodeId> refusing_;                                 // Since its ranks ran last.
  std::map<NodeId, std::vector<cluster::RankPlace>> places_;  ///< Of the newest generation.
  std::map<NodeId, cluster::Want> wants_;
  std::set<std::pair<NodeId, Generation>> lost_;
  std::set<std::pair<NodeId, Generation>> keepers_lost_;
  /// Ranks that have started and whose end is not recorded, and where they are.
  std::map<std::pair<Generation, Rank>, NodeId> open_;
  std::vector<std::string> checkpoints_;  ///< Accepted, and as many as the job keeps, the newest last.
  std::vector<std::string> accepted_;     ///< None before the newest that has come,
  std::set<std::string> stored_;          ///< and those that have come to the coordinator, where files travel.
  std::map<std::pair<Generation, Rank>, ProcessEnd> ends_;
  std::set<std::pair<Generation, Rank>> never_started_;
  std::set<std::pair<Generation, NodeId>> without_port_;
  std::map<std::tuple<Generation, int, bool>, std::int64_t> samples_;  ///< Of finished phases.
  std::map<Generation, int> world_sizes_;
  int lines_ = 0;
  int position_ = 0;  ///< As many lines of metrics stand for all that its state has been through.
  Generation first_generation_ = 1;
  bool finished_ = false;
  bool is_stop_requested_ = false;
  Generation restarted_at_ = 0;
  int leaves_in_vain_ = 0;    ///< In a row, to go on in the same size.
  Generation forgotten_ = 0;  ///< Not 0: what it counts is not what the coordinator counts.
};

}  // namespace sgd::sim
