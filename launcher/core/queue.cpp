#include "launcher/core/queue.hpp"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "common/base/bytes.hpp"

namespace sgd::core {
namespace {

/// Nodes named in one reason; the others are counted.
constexpr int kNamedMax = 4;

/// Who comes first, but for what owners have.
auto rank_of(const WaitingRun& run) {
  return std::tuple(!run.is_admitted, -run.priority);
}

/// In their order.
std::vector<WaitingRun> in_order(std::vector<WaitingRun> waiting, const std::map<RunId, Holding>& holdings) {
  std::map<std::string, std::int64_t> held;
  for (const auto& [run, holding] : holdings)
    for (const auto& [node, workers] : holding.workers) held[holding.owner] += workers;
  std::sort(waiting.begin(), waiting.end(), [](const WaitingRun& a, const WaitingRun& b) {
    return std::tuple(rank_of(a), a.submission, a.run) < std::tuple(rank_of(b), b.submission, b.run);
  });
  struct Position {
    std::int64_t load = 0;  ///< Of its owner, when it has what stands in front of it.
    std::size_t run = 0;
  };
  std::vector<Position> places;
  std::map<std::string, std::int64_t> load;
  for (std::size_t run = 0; run < waiting.size(); ++run) {
    if (run == 0 || rank_of(waiting[run]) != rank_of(waiting[run - 1])) load = held;
    std::int64_t& its = load[waiting[run].owner];
    places.push_back({its, run});
    its += waiting[run].demand.least;
  }
  std::sort(places.begin(), places.end(), [&waiting](const Position& a, const Position& b) {
    return std::tuple(rank_of(waiting[a.run]), a.load, a.run) < std::tuple(rank_of(waiting[b.run]), b.load, b.run);
  });
  std::vector<WaitingRun> ordered;
  ordered.reserve(waiting.size());
  for (const Position& place : places) ordered.push_back(std::move(waiting[place.run]));
  return ordered;
}

void take(Capacities& nodes, const job::PerWorker& per_worker, const Placement& placement) {
  for (const NodePlace& place : placement.nodes)
    take(nodes.at(place.node).free, per_worker, static_cast<int>(place.ranks.size()));
}

int ranks_on(const Placement& placement, const NodeId& node) {
  for (const NodePlace& place : placement.nodes)
    if (place.node == node) return static_cast<int>(place.ranks.size());
  return 0;
}

std::string ordinal(int number) {
  const int tens = number / 10 % 10;
  const int ones = tens == 1 ? 0 : number % 10;
  const char* ending = ones == 1 ? "st" : ones == 2 ? "nd" : ones == 3 ? "rd" : "th";
  return fmt::format("{}{}", number, ending);
}

/// "4 slots wanted, 2 free", or "4 workers of 2 cpus, 4GiB wanted, room for 2".
std::string wanted_and_free(const Demand& demand, bool counts_cpus, std::int64_t free) {
  const job::PerWorker& each = demand.per_worker;
  std::string parts;
  const auto add = [&parts](const std::string& part) { parts += (parts.empty() ? "" : ", ") + part; };
  if (counts_cpus && each.cpus > 1) add(fmt::format("{} cpus", each.cpus));
  if (each.gpus > 0) add(fmt::format("{} gpu{}", each.gpus, each.gpus == 1 ? "" : "s"));
  if (each.memory_bytes > 0) add(format_bytes(each.memory_bytes));
  const char* plural = demand.least == 1 ? "" : "s";
  if (parts.empty()) return fmt::format("{} slot{} wanted, {} free", demand.least, plural, free);
  return fmt::format("{} worker{} of {} wanted, room for {}", demand.least, plural, parts, free);
}

/// Nodes that are out for this run, and why.
std::string notes(const Demand& demand, const Capacities& nodes) {
  std::string text;
  int count = 0;
  for (const auto& [node, capacity] : nodes) {
    if (room_when_idle(node, capacity, demand) > 0) continue;
    const std::string why = why_no_room(node, capacity, demand);
    if (why.empty() || ++count > kNamedMax) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", node, why);
  }
  if (count > kNamedMax) text += fmt::format(", and {} more", count - kNamedMax);
  return text.empty() ? "" : " (" + text + ")";
}

/// What decides where a run has room, but for what is free: many runs that wait are alike in it.
auto kind_of(const Demand& demand) {
  std::map<NodeId, std::pair<int, int>> left_out;
  for (const auto& [node, gpus] : demand.left_out) left_out[node] = {gpus.all, gpus.free};
  const job::PerWorker& each = demand.per_worker;
  return std::tuple(each.cpus, each.gpus, each.memory_bytes, demand.rules.max_per_node, demand.rules.labels,
                    demand.rules.exclude, demand.refusing, std::move(left_out));
}

/// Of one kind of demand, what a look at all nodes tells. Thousands of runs may wait for as many nodes: each looking
/// for itself would take seconds.
struct KindView {
  std::vector<NodeId> useful;        ///< Nodes with room for it when they are idle.
  std::int64_t idle_room = 0;        ///< On all of them.
  std::optional<std::string> notes;  ///< On nodes that are out for it, and why.
  bool is_wanted = false;            ///< Its nodes are among those that somebody waits for,
  bool is_contested = false;         ///< or that runs which have never run wait for,
  bool is_kept = false;              ///< or are kept, all of them.
  // Now, that is of this change of what is free:
  std::int64_t change = -1;
  WorkersByNode rooms;                      ///< Where there is any, and nobody's.
  std::int64_t room = 0;                    ///< There.
  std::map<RunId, std::int64_t> kept_room;  ///< By the run that it is kept for.
  RunId kept_for;                           ///< One of them.
  std::int64_t all_room = 0;                ///< Kept or not.
};

class Server {
 public:
  explicit Server(QueueState state)
      : state_(std::move(state)), waiting_(in_order(std::move(state_.waiting), state_.holdings)) {
    counts_cpus_ =
        std::any_of(state_.nodes.begin(), state_.nodes.end(), [](const auto& node) { return node.second.counts_cpus; });
    const auto is_admitted = [](const WaitingRun& run) { return run.is_admitted; };
    if (std::none_of(waiting_.begin(), waiting_.end(), is_admitted)) return;
    for (const WaitingRun& run : waiting_) {
      KindView& kind = kind_view(run.demand);
      if (run.is_admitted || kind.idle_room < run.demand.least || std::exchange(kind.is_contested, true)) continue;
      contested_.insert(kind.useful.begin(), kind.useful.end());
    }
  }

  QueuePlan serve() {
    QueuePlan plan;
    for (const WaitingRun& run : waiting_) plan.turns.push_back(turn_of(run));
    number(plan.turns);
    std::vector<GrowingRun> growing = state_.growing;
    std::sort(growing.begin(), growing.end(), [](const GrowingRun& a, const GrowingRun& b) {
      return std::tuple(-a.priority, a.submission, a.run) < std::tuple(-b.priority, b.submission, b.run);
    });
    for (const GrowingRun& run : growing) plan.growth[run.run] = grow(run);
    return plan;
  }

 private:
  QueueTurn turn_of(const WaitingRun& run) {
    KindView& kind = look(run.demand);
    QueueTurn turn;
    turn.run = run.run;
    turn.fits_idle = kind.idle_room >= run.demand.least;
    turn.startable_since = run.startable_since;
    turn.kept_for = kind.kept_for;
    if (run.run == state_.explained) turn.rooms = kind.rooms;
    turn.placement = placement_of(run, kind.rooms);
    if (turn.placement.world_size > 0) {
      take(state_.nodes, run.demand.per_worker, turn.placement);
      ++change_;
      for (const NodePlace& place : turn.placement.nodes)
        placed_[run.run].emplace_back(place.node, static_cast<int>(place.ranks.size()));
      return turn;
    }
    if (!turn.startable_since && could_start(run, kind.all_room)) turn.startable_since = state_.now;
    if (!turn.fits_idle) return turn;
    turn.is_overdue = turn.startable_since && state_.now - *turn.startable_since > state_.backfill_limit;
    if (!std::exchange(kind.is_wanted, true)) wanted_.insert(kind.useful.begin(), kind.useful.end());
    if (!turn.is_overdue || std::exchange(kind.is_kept, true)) return turn;
    for (const NodeId& node : kind.useful) kept_.try_emplace(node, run.run);
    ++change_;
    return turn;
  }

  KindView& kind_view(const Demand& demand) {
    const auto [place, is_new] = kinds_.try_emplace(kind_of(demand));
    KindView& kind = place->second;
    if (!is_new) return kind;
    for (const auto& [node, capacity] : state_.nodes) {
      const int idle = room_when_idle(node, capacity, demand);
      kind.idle_room += idle;
      if (idle > 0) kind.useful.push_back(node);
    }
    return kind;
  }

  /// As things stand.
  KindView& look(const Demand& demand) {
    KindView& kind = kind_view(demand);
    if (std::exchange(kind.change, change_) == change_) return kind;
    kind.rooms.clear();
    kind.kept_room.clear();
    kind.kept_for.clear();
    kind.room = kind.all_room = 0;
    for (const auto& [node, capacity] : state_.nodes) {
      const int here = capacity.free.slots > 0 ? room(node, capacity, demand) : 0;
      if (here == 0) continue;
      kind.all_room += here;
      const auto kept = kept_.find(node);
      if (kept == kept_.end()) {
        kind.rooms.emplace_hint(kind.rooms.end(), node, here);
        kind.room += here;
      } else {
        kind.kept_room[kept->second] += here;
        kind.kept_for = kept->second;
      }
    }
    return kind;
  }

  /// What has run before goes on in its size, and grows only where nobody who waits could start: as grow() has it, or a
  /// run would leave for room that it does not get.
  [[nodiscard]] Placement placement_of(const WaitingRun& run, const WorkersByNode& rooms) const {
    const auto within = [&run](const WorkersByNode& some, int most) {
      return place(some, most, run.demand.least, run.before, run.demand.rules.strategy);
    };
    const int most = run.demand.num_workers;
    if (!run.is_admitted || contested_.empty()) return within(rooms, most);
    Placement same = within(rooms, std::min(most, std::max(run.before.world_size, run.demand.least)));
    WorkersByNode own = rooms;
    for (auto& [node, room] : own)
      if (contested_.contains(node)) room = std::min(room, ranks_on(run.before, node));
    Placement grown = within(own, most);
    return grown.world_size > same.world_size ? grown : same;
  }

  /// Had those that passed it never started, nor been started again just now: they held, or hold, what is not in
  /// `room`.
  [[nodiscard]] bool could_start(const WaitingRun& run, std::int64_t room) const {
    std::map<NodeId, NodeCapacity> given_back;
    for (const RunId& passer : run.passed_by) {
      const auto holding = state_.holdings.find(passer);
      if (holding == state_.holdings.end()) continue;
      const auto give_back = [&](const NodeId& node, int workers) {
        const auto known = state_.nodes.find(node);
        if (known == state_.nodes.end()) return;
        NodeCapacity& capacity = given_back.try_emplace(node, known->second).first->second;
        core::take(capacity.free, holding->second.per_worker, -workers);
      };
      for (const auto& [node, workers] : holding->second.workers) give_back(node, workers);
      if (const auto placed = placed_.find(passer); placed != placed_.end())
        for (const auto& [node, workers] : placed->second) give_back(node, workers);
    }
    for (const auto& [node, capacity] : given_back)
      room += core::room(node, capacity, run.demand) - core::room(node, state_.nodes.at(node), run.demand);
    return room >= run.demand.least;
  }

  /// It leaves all its nodes to grow: more than it could not come back to has to be free.
  int grow(const GrowingRun& run) {
    const auto held = state_.holdings.find(run.run);
    const WorkersByNode none;
    const WorkersByNode& its = held == state_.holdings.end() ? none : held->second.workers;
    const int forsaken = lost_by_leaving(its, run.demand);
    int more = run.demand.num_workers - run.world_size + forsaken;
    std::vector<std::pair<NodeCapacity*, int>> found;
    int sum = 0;
    for (auto& [node, capacity] : state_.nodes) {
      if (more == 0) break;
      if (capacity.free.slots <= 0 || wanted_.contains(node)) continue;
      int here = std::min(room(node, capacity, run.demand), more);
      if (run.demand.rules.max_per_node > 0 && its.contains(node))
        here = std::clamp(run.demand.rules.max_per_node - its.at(node), 0, here);
      if (here == 0) continue;
      found.emplace_back(&capacity, here);
      more -= here;
      sum += here;
    }
    if (sum <= forsaken) return 0;
    for (const auto& [capacity, workers] : found) core::take(capacity->free, run.demand.per_worker, workers);
    return sum - forsaken;
  }

  /// Workers on nodes that would not have it again: one that was drained, or is not what its job asks for any more.
  [[nodiscard]] int lost_by_leaving(const WorkersByNode& its, const Demand& demand) const {
    int lost = 0;
    for (const auto& [node, workers] : its) {
      const auto known = state_.nodes.find(node);
      const bool may_return = known != state_.nodes.end() && room_when_idle(node, known->second, demand) > 0;
      if (!may_return) lost += workers;
    }
    return lost;
  }

  void number(std::vector<QueueTurn>& turns) {
    int waiting = 0;
    for (QueueTurn& turn : turns)
      if (turn.placement.world_size == 0) turn.position = ++waiting;
    for (std::size_t index = 0; index < turns.size(); ++index) {
      QueueTurn& turn = turns[index];
      if (turn.position == 0) continue;
      const Demand& demand = waiting_[index].demand;
      KindView& kind = look(demand);  // When those behind it have taken what they got.
      if (!kind.notes) kind.notes = notes(demand, state_.nodes);
      const auto kept = kind.kept_room.find(turn.run);
      const std::int64_t free = kind.room + (kept == kind.kept_room.end() ? 0 : kept->second);
      if (waiting > 1) turn.reason = ordinal(turn.position) + " in the queue: ";
      turn.reason += fmt::format("{} on {} node{}{}", wanted_and_free(demand, counts_cpus_, free), state_.nodes.size(),
                                 state_.nodes.size() == 1 ? "" : "s", *kind.notes);
      if (!turn.fits_idle && kind.idle_room > 0)
        turn.reason += fmt::format("; more nodes are needed: these have room for {} in all", kind.idle_room);
      if (!turn.kept_for.empty()) turn.reason += fmt::format("; what is free is kept for {}", turn.kept_for);
    }
  }

  QueueState state_;  ///< What is free on its nodes becomes less as runs are placed.
  std::vector<WaitingRun> waiting_;
  std::map<decltype(kind_of(Demand())), KindView> kinds_;
  std::int64_t change_ = 0;  ///< Counts what changes what is free, or for whom.
  bool counts_cpus_ = false;
  std::set<NodeId> contested_;                                   ///< Of use to runs that have never run, and would fit.
  std::set<NodeId> wanted_;                                      ///< By a run that goes on waiting.
  std::map<NodeId, RunId> kept_;                                 ///< For an overdue run.
  std::map<RunId, std::vector<std::pair<NodeId, int>>> placed_;  ///< By this plan: workers.
};

}  // namespace

QueuePlan serve_queue(QueueState state) {
  return Server(std::move(state)).serve();
}

Explanation explain(QueueState state, const WaitingRun& candidate) {
  state.waiting.push_back(candidate);
  state.explained = candidate.run;
  const QueuePlan plan = serve_queue(state);
  Explanation out;
  out.num_workers = candidate.demand.num_workers;
  const auto is_it = [&](const QueueTurn& turn) { return turn.run == candidate.run; };
  const auto turn = std::find_if(plan.turns.begin(), plan.turns.end(), is_it);
  // What those in front of it take now is not free for it.
  for (auto before = plan.turns.begin(); before != turn; ++before) {
    const auto run = std::find_if(state.waiting.begin(), state.waiting.end(),
                                  [&](const auto& one) { return one.run == before->run; });
    take(state.nodes, run->demand.per_worker, before->placement);
  }
  out.turn = *turn;
  for (const auto& [node, capacity] : state.nodes) {
    Explanation::Row row;
    row.node = node;
    const auto room = turn->rooms.find(node);
    row.room = room == turn->rooms.end() ? 0 : room->second;
    row.why_not = why_no_room(node, capacity, candidate.demand);
    if (row.why_not.empty() && row.room == 0) row.why_not = "kept for " + turn->kept_for;
    for (const NodePlace& place : turn->placement.nodes)
      if (place.node == node) row.ranks = place.ranks;
    out.nodes.push_back(std::move(row));
  }
  return out;
}

nlohmann::ordered_json to_json(const Explanation& explanation) {
  const QueueTurn& turn = explanation.turn;
  nlohmann::ordered_json json = {{"schema_version", 1},
                                 {"run", turn.run},
                                 {"starts_now", turn.placement.world_size > 0},
                                 {"num_workers", explanation.num_workers},
                                 {"world_size", turn.placement.world_size},
                                 {"position", turn.position},
                                 {"fits_idle", turn.fits_idle},
                                 {"reason", turn.position == 0 ? turn.placement.reason : turn.reason},
                                 {"nodes", nlohmann::ordered_json::array()}};
  for (const Explanation::Row& row : explanation.nodes)
    json["nodes"].push_back({{"node", row.node}, {"ranks", row.ranks}, {"room", row.room}, {"why_not", row.why_not}});
  return json;
}

}  // namespace sgd::core
