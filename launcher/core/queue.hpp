#pragma once
// Which waiting runs start now, where, and what each of the others waits for. A function of values: the
// coordinator acts on it, `plan` and the status page show it, so that they cannot differ.
//
// Order: runs that have run before and wait to go on, then by priority (higher first), then by what their owners have:
// the workers that an owner's runs hold, and of those of its runs that wait in front. So owners take turns, whoever
// submits how much; of one owner, by submission. A run that fits may pass runs that do not. But once a passed run has
// waited longer than `backfill_limit` since it could have started had nothing passed it, what is free on nodes that it
// may use is kept for it. Runs at work below their size come last: they get nothing on a node that a waiting run may
// use, and while others wait, a run that goes on comes back at the size that it had at most. A run that does not fit
// the nodes even when they are idle holds nobody up.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/time.hpp"
#include "common/json/nlohmann.hpp"
#include "launcher/core/placement.hpp"
#include "launcher/core/resources.hpp"

namespace sgd::core {

struct WaitingRun {
  RunId run;
  std::string owner;
  bool is_admitted = false;  ///< Has run before, and waits to go on; not if it has given its place up.
  int priority = 0;
  std::int64_t submission = 0;  ///< Smaller: earlier.
  Demand demand;
  Placement before;                          ///< Of its last generation.
  std::set<RunId> passed_by;                 ///< Runs that started while this one waited in front of them.
  std::optional<TimePoint> startable_since;  ///< It could have started, had nothing passed it.
};

/// A run at work below num_workers that may have more.
struct GrowingRun {
  RunId run;
  int priority = 0;
  std::int64_t submission = 0;
  Demand demand;
  int world_size = 0;
};

/// What a run holds.
struct Holding {
  job::PerWorker per_worker;
  WorkersByNode workers;
  std::string owner = {};
};

struct QueueState {
  TimePoint now;
  Duration backfill_limit{};
  Capacities nodes;
  std::vector<WaitingRun> waiting;
  std::vector<GrowingRun> growing;
  std::map<RunId, Holding> holdings;
  RunId explained = {};  ///< Whose turn tells its rooms.
};

struct QueueTurn {
  RunId run;
  int position = 0;         ///< Among those that go on waiting, from 1; 0: it starts.
  Placement placement;      ///< Where it starts; world_size 0: not now.
  std::string reason;       ///< What it waits for: "2nd in the queue: 4 slots wanted, 2 free on 3 nodes (n2 drained)".
  WorkersByNode rooms;      ///< Of the explained run: workers that it was offered room for, where there is any.
  RunId kept_for;           ///< A run in front of it, for which what is free is kept.
  bool fits_idle = false;   ///< It waits for other runs only.
  bool is_overdue = false;  ///< What is free is kept for it.
  std::optional<TimePoint> startable_since;
};

struct QueuePlan {
  std::vector<QueueTurn> turns;  ///< In the order of the queue.
  std::map<RunId, int> growth;   ///< Workers that a run at work may have more.
};

[[nodiscard]] QueuePlan serve_queue(QueueState state);

/// What would become of a run that is not there yet, node by node.
struct Explanation {
  struct Row {
    NodeId node;
    std::vector<Rank> ranks;  ///< That it would have there now.
    int room = 0;             ///< Workers that would fit there now.
    std::string why_not;      ///< Where there is no room: "excluded", "0 of 4 slots free", "kept for run7".
  };
  QueueTurn turn;
  int num_workers = 0;
  std::vector<Row> nodes;  ///< All, by name.
};

[[nodiscard]] Explanation explain(QueueState state, const WaitingRun& candidate);
[[nodiscard]] nlohmann::ordered_json to_json(const Explanation& explanation);

}  // namespace sgd::core
