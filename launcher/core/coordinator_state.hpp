#pragma once
// All that the coordinator's machine knows, as a value: a machine made of it goes on as the one that it was taken of.
// What can be made anew of it, or matters in one event only, stands apart. A new field belongs into one of the two
// (coordinator.hpp does not compile with one of its own), and one of the first also into its list in
// storage/coordinator_state_fields.hpp (which does not compile without it).

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "common/base/time.hpp"
#include "launcher/core/coordinator_io.hpp"
#include "launcher/core/experiment.hpp"
#include "launcher/core/fact_counts.hpp"
#include "launcher/core/resources.hpp"
#include "launcher/core/run_machine.hpp"

namespace sgd::core {

struct CoordinatorSettings {
  /// A node that says nothing for so long is lost. Nothing: nodes live in this process.
  std::optional<Duration> node_timeout;
  /// After so long in front of runs that pass it, what is free is kept for a run (queue.hpp).
  Duration backfill_limit = std::chrono::minutes(10);
  /// A node whose link is lost more often than this within flap_window gets no new ranks until it has been
  /// well for stable_after. Only with node_timeout.
  int flaps_max = 5;
  Duration flap_window = std::chrono::hours(1);
  Duration stable_after = std::chrono::minutes(5);
  /// Finished runs that are remembered; the one that finished first is forgotten first.
  std::size_t finished_max = 1000;
  /// And trials, of all experiments; those that their experiment may need do not count: they go with it.
  std::size_t finished_trials_max = 50;
  /// Nodes have disks of their own, and what they save comes to the coordinator's some time later: it is told then
  /// (coordinator_event::CheckpointStored).
  bool files_travel = false;
  /// With more nodes than this, what is free is offered no more often than once in so long for each of them: one offer
  /// looks at all, and when a switch fails, or a coordinator restarts, each of them brings an event that asks for one.
  std::size_t offered_at_once = 100;
  Duration offer_gap = std::chrono::microseconds(10);
  /// So long a copy of a trial waits until the state that was compared is stored (HeldCopy).
  Duration copy_limit = std::chrono::seconds(5);
};

struct CoordinatorState {
  /// Ranks that their run has given up with their node, or knows nothing of, and that may be alive.
  struct Leftover {
    job::PerWorker per_worker;
    int workers = 0;
    Generation generation = 0;  ///< What its run wants since they were given up: an answer to this or to newer
    GenerationUid uid = 0;      ///< orders is of them, an older one may be of those before. 0: any answer is.
    bool is_foreign = false;    ///< Nobody knows its run: what the node says that it holds is all.
  };
  struct Node {
    Incarnation incarnation = 0;
    cluster::NodeState state;    ///< As it was told last; its runs are not kept.
    std::int64_t last_fact = 0;  ///< Highest sequence of this incarnation that was taken.
    TimePoint heard_at;
    std::optional<TimePoint> look_at;  ///< Its place in looks_.
    bool is_closed = false;            ///< Its link.
    bool is_linked = true;             ///< Since this process began it has been connected.
    std::optional<TimePoint> suspect_until;
    std::optional<TimePoint> lost_at;
    std::map<RunId, Leftover> leftovers;    ///< By run: nobody else gets their slots before they are known to be dead.
    std::map<RunId, Generation> forgotten;  ///< While lost: runs that it may hold and that nobody knows any more.
  };
  /// What belongs to a name, whichever agent bears it.
  struct NodeCondition {
    bool is_drained = false;
    std::optional<int> slots;     ///< Ordered.
    std::deque<TimePoint> flaps;  ///< Losses of its link, at most flaps_max + 1.
    std::optional<TimePoint> unstable_until;
  };
  /// What the queue remembers of a run.
  struct Ticket {
    std::int64_t submission = 0;
    std::set<RunId> passed_by;
    std::optional<TimePoint> startable_since;
    bool gave_way = false;  ///< It has given its place up, and waits as one that has not run yet.
  };

  std::map<NodeId, Node> nodes_;
  std::map<NodeId, Node> lost_;  ///< As they were: a node may be heard again, and its facts go on counting.
  std::map<NodeId, NodeCondition> conditions_;
  Duration time_to_be_back_{};  ///< Of nodes that have not connected since the restart; whole seconds.
  std::map<RunId, RunMachine> runs_;
  std::map<RunId, Experiment> experiments_;  ///< Their trials are among runs_, as long as these are remembered.
  std::map<RunId, Ticket> tickets_;          ///< Of runs_ and experiments_.
  std::deque<RunId> finished_;               ///< In the order in which they finished; trials apart.
  std::deque<RunId> finished_trials_;
  std::int64_t submissions_ = 0;
  std::optional<TimePoint> offered_at_;  ///< Runs that waited, or could grow, were told what they may have.
  std::optional<TimePoint> offer_at_;    ///< Something has changed since, and it was too soon for another offer.
};

/// What nodes have, whoever of the runs holds it.
struct NodeOffers {
  Capacities nodes;
  std::vector<NodeId> with_leftovers;  ///< Whose leftovers are not taken off: their run may be there again.
  bool has_labels = false;
};

struct CoordinatorIndex {
  CoordinatorSettings settings_;
  /// Of nodes_: when each is looked at next for being silent, so that a heartbeat costs no look at all the others.
  std::set<std::pair<TimePoint, NodeId>> looks_;
  std::set<NodeId> unstable_;             ///< Names whose condition has unstable_until.
  std::map<RunId, RunMachine*> live_;     ///< Of runs_: those that have not finished; most events look at all of them.
  FactCounts facts_;                      ///< Since this process began.
  LinkNumber links_ = 0;                  ///< Of agents, since this process began.
  std::map<NodeId, LinkNumber> link_of_;  ///< The newest one of each node that is known or lost.
  TimePoint restarted_at_{};              ///< This process; no node has come back before.
  std::optional<TimePoint> back_at_;      ///< The last node that was not linked.
  // In the event in work:
  bool capacity_changed_ = false;
  TimePoint next_offer_{};     ///< Not before: then it would be too soon.
  bool room_changed_ = false;  ///< What nodes offer, so that more may be held than there is.
  // Asked after every event, and another for few runs after most: what concerns one run must not cost a look at all.
  std::set<RunId> wanting_;                        ///< Of live_: those that want capacity.
  std::set<std::pair<TimePoint, RunId>> wakeups_;  ///< Of live_.
  std::map<RunId, TimePoint> wakeup_of_;           ///< Its place in wakeups_.
  std::set<NodeId> changed_nodes_;                 ///< In the event in work: their NodeView is another.
  std::optional<NodeOffers> offers_;               ///< Of nodes_, while none of them changes.
};

}  // namespace sgd::core
