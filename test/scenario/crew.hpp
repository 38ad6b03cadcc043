#pragma once
// Plays keepers and ranks for a transcript: remembers what keepers were told and have not done yet, and
// which ranks live. Ranks that have their assignment send a heartbeat every half second, with a new number of
// samples, until they end, freeze (no heartbeats) or stall (the same one again and again).

#include <deque>

#include "test/scenario/words.hpp"
#include "test/scenario/world.hpp"

namespace sgd::test {

class Crew final : public Processes {
 public:
  static constexpr Duration kHeartbeat = std::chrono::milliseconds(500);

  Crew() : world_(*this) {}
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  [[nodiscard]] World& world() { return world_; }

  /// keeper NODE started | fork-server-ready | fork-server-failed | spawned | spawn-failed | exited | cleared | closed
  /// | strays-cleared
  void keeper(const Words& words);
  /// rank NODE R hello | ready | first-step | exchange KEY VALUE | report | checkpoint | rejects | failed WORD |
  /// heartbeat | closed
  void rank(const NodeId& node, Rank rank, const std::string& what, const Words& words);
  /// What became of a checkpoint that a rank has asked for.
  void spool(const NodeId& node, const std::string& what, const Words& words);
  /// All ranks of the newest generation that live, in their order.
  void all_ranks(const std::string& what, const Words& words);
  /// Keepers (of one node, or of all when `node` is empty) do what they were told.
  void obey(const NodeId& node);
  /// All that a generation does up to its first step.
  void train(const Words& words);
  /// The process of a rank ends, and its link closes.
  void end(Rank rank, int exit_code, int signal);
  void end_all(int exit_code);
  /// heartbeat R freezes | thaws | stalls | waits | goes-on
  void pulse(Rank rank, const std::string& what);
  /// The node's agent is gone, and its processes with it.
  void node_dies(const NodeId& node);

  void on_command(const NodeId& node, const core::AgentCommand& command) override;
  [[nodiscard]] std::optional<TimePoint> next_wakeup() const override;
  void on_time(TimePoint now) override;

  /// What the next end comes with: "error=ValueError:text", and "living=1:ValueError:text" of a rank that goes on.
  void note_errors(const Words& words);
  /// A rank of the node that goes on has said of its failure: "1:ValueError:text".
  void note_said(const NodeId& node, const std::string& said);

 private:
  struct Process {
    NodeId node;
    Generation generation = 0;
    Rank rank = 0;
    std::string token;
    bool is_assigned = false;
    bool is_frozen = false;
    bool is_stalled = false;
    link::Heartbeat heartbeat;
  };
  /// Something that a keeper was told and has not done.
  struct Task {
    NodeId node;
    std::string what;
    Generation generation = 0;
    Rank rank = 0;
    RunId run = "run";  ///< Of any other only the keeper is played, and its ranks say nothing.
  };

  void on_told(const NodeId& node, const keeper::ToKeeper& message);
  void perform(const Task& task);
  void say_exit(const NodeId& node, Generation generation, Rank rank, int exit_code, int signal);
  void from_keeper(const NodeId& node, keeper::FromKeeper message);
  void from_rank(const NodeId& node, core::ConnectionId connection, link::FromWorker message);
  void beat(Process& process);
  [[nodiscard]] std::vector<Rank> live_ranks() const;
  [[nodiscard]] Process* newest(Rank rank, const NodeId& node = "");
  [[nodiscard]] static core::ConnectionId link_of(Generation generation, Rank rank);
  [[nodiscard]] static int pid_of(Generation generation, Rank rank);

  World world_;
  std::deque<Task> tasks_;
  std::map<std::pair<Generation, Rank>, Process> processes_;
  TimePoint beat_at_{kHeartbeat};
  RankError error_;
  std::vector<OtherError> others_;
  std::map<NodeId, std::vector<OtherError>> said_;
};

}  // namespace sgd::test
