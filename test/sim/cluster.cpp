#include "test/sim/cluster.hpp"

#include <algorithm>

namespace sgd::sim {

using std::chrono::milliseconds;
using std::chrono::seconds;

Cluster::Cluster(World& world)
    : world_(world),
      coordinator_(world, [this](const core::CoordinatorEvent& event) { observe(event); },
                   [this](core::CoordinatorCommand&& command) { carry_out(std::move(command)); }) {
  coordinator_.start(core::CoordinatorSettings{kNodeTimeout});
  int number = 0;
  for (const int slots : world.plan.slots) {
    nodes_.emplace_back(world, *this, fmt::format("node{}", ++number), slots);
    world.queue.after(world.chance.between(Duration{0}, seconds(2)), [this, &node = nodes_.back()] { node.boot(); });
  }
  for (const RunPlan& plan : world.plan.runs) {
    runs_.try_emplace(plan.definition.id, world, plan);
    world.queue.after(plan.submit_after, [this, &plan] { submit(plan); });
  }
}

/// As a client does it: again, until it is stored.
void Cluster::submit(const RunPlan& plan) {
  const auto is_it = [&](const core::coordinator_command::Store& store) {
    const auto* submitted = std::get_if<core::coordinator_event::Submitted>(&store.event);
    return submitted != nullptr && submitted->run.id == plan.definition.id;
  };
  if (std::any_of(stored_.begin(), stored_.end(), is_it)) return;
  if (coordinator_alive() && !coordinator_.paused()) tell(core::coordinator_event::Submitted{plan.definition});
  world_.queue.after(milliseconds(500), [this, &plan] { submit(plan); });
}

void Cluster::pause_coordinator(Duration duration) {
  late_until_ = std::max(late_until_, world_.queue.now() + duration);
  coordinator_.pause(duration);
}

void Cluster::stop_run(RunState& run, const core::StopRequest& request) {
  run.check.on_stop_requested();
  tell(core::coordinator_event::StopRequested{run.plan.definition.id, request});
}

Node& Cluster::node(const NodeId& id) {
  const auto found = std::find_if(nodes_.begin(), nodes_.end(), [&](const Node& one) { return one.id() == id; });
  if (found == nodes_.end()) violated("a message for {}, which does not exist", id);
  return *found;
}

Keeper& Cluster::add_keeper(Node& node, const RunId& run) { return keepers_.emplace_back(world_, node, runs_.at(run)); }

/// Before a process of a generation starts on a node, everything older of its run there is reaped.
Worker& Cluster::add_worker(RunState& run, Keeper& keeper, Worker::Identity identity) {
  for (Worker* other : run.alive) {
    if (&other->node() != &keeper.node()) continue;
    if (other->generation() != identity.generation || other->rank() == identity.rank)
      violated("{}: rank {} of generation {} starts on {} beside rank {} of generation {}", run.plan.definition.id,
               identity.rank, identity.generation, keeper.node().id(), other->rank(), other->generation());
  }
  Worker& worker = workers_.emplace_back(world_, run, keeper, std::move(identity));
  run.alive.push_back(&worker);
  return worker;
}

void Cluster::observe(const core::CoordinatorEvent& event) {
  const auto* arrived = std::get_if<core::coordinator_event::FromAgent>(&event);
  if (arrived == nullptr || is_crashed_) return;
  if (const auto* fact = std::get_if<cluster::Fact>(&arrived->message)) {
    std::int64_t& taken = facts_taken_[fact->incarnation];
    if (fact->sequence == taken + 1) ++taken;
  } else if (const auto* state = std::get_if<cluster::NodeState>(&arrived->message)) {
    note_slots(event);
    if (state->is_new_link) node(arrived->node).wire().note_accepted();
  }
}

void Cluster::note_slots(const core::CoordinatorEvent& event) {
  const auto* arrived = std::get_if<core::coordinator_event::FromAgent>(&event);
  const auto* state = arrived == nullptr ? nullptr : std::get_if<cluster::NodeState>(&arrived->message);
  if (state != nullptr) known_slots_[arrived->node] = state->slots;
}

/// Between any two commands: what was not carried out is lost, what was stored is not.
bool Cluster::crash_coordinator() {
  if (!coordinator_alive() || crash_in_ > 0) return false;
  crash_in_ = world_.chance.between(1, 12);
  return true;
}

void Cluster::die_now() {
  is_crashed_ = true;
  world_.say("coordinator dies");
  world_.queue.after(Duration{0}, [this] { coordinator_.end(); });
  for (Node& one : nodes_) one.wire().lose_coordinator();
  world_.queue.after(world_.chance.spread_between(milliseconds(100), seconds(4)), [this] { restart_coordinator(); });
}

/// The same machine by replay; its records are those of its former life, and what is missing at their end is made up for.
void Cluster::restart_coordinator() {
  using namespace core::coordinator_command;
  is_crashed_ = false;
  coordinator_.start(core::CoordinatorSettings{kNodeTimeout});
  std::map<RunId, ReservePort> unanswered;
  std::size_t number = 0;
  known_slots_.clear();
  for (const Store& store : stored_) {
    note_slots(store.event);
    core::CoordinatorCommands commands;
    coordinator_.machine().replay(store.at, store.event, commands);
    if (const auto* port = std::get_if<core::coordinator_event::PortReserved>(&store.event)) unanswered.erase(port->run);
    for (const core::CoordinatorCommand& command : commands) {
      if (const auto* reserve = std::get_if<ReservePort>(&command)) unanswered.insert_or_assign(reserve->run, *reserve);
      const bool is_record = std::holds_alternative<RecordEvent>(command) || std::holds_alternative<RecordMetrics>(command) ||
                             std::holds_alternative<FinishRun>(command);
      if (is_record && ++number > recorded_) record(command);
    }
  }
  // Nodes of a generation that was being started hear of it one by one, as they connect.
  for (auto& [id, run] : runs_) {
    const auto shot = coordinator_.core().snapshot(world_.queue.now(), id);
    if (!shot || shot->generation == 0) continue;
    interrupted_[id] = shot->generation;
    const bool is_live = shot->phase == core::RunPhase::kStarting || shot->phase == core::RunPhase::kRunning ||
                         shot->phase == core::RunPhase::kLeaving || shot->phase == core::RunPhase::kStopping;
    run.check.skip_to(shot->generation - (is_live ? 1 : 0));
    run.check.on_coordinator_restarted(shot->generation);
  }
  world_.say("coordinator is back after {} stored events", stored_.size());
  coordinator_.tell(core::coordinator_event::Restarted{});
  for (const auto& [run, reserve] : unanswered) reserve_port(reserve);
}

void Cluster::record(const core::CoordinatorCommand& command) {
  using namespace core::coordinator_command;
  ++recorded_;
  if (const auto* event = std::get_if<RecordEvent>(&command)) {
    runs_.at(event->run).check.on_event(event->event);
    if (event->event.at("event") == "node_lost") check_loss(event->event);
  } else if (const auto* metrics = std::get_if<RecordMetrics>(&command)) {
    runs_.at(metrics->run).check.on_metrics(metrics->metrics);
  } else if (const auto* finished = std::get_if<FinishRun>(&command)) {
    runs_.at(finished->run).check.on_finish(finished->outcome);
    check_end(finished->run);
  }
}

void Cluster::carry_out(core::CoordinatorCommand&& command) {
  using namespace core::coordinator_command;
  if (is_crashed_) return;
  if (crash_in_ > 0 && --crash_in_ == 0) return die_now();
  if (auto* store = std::get_if<Store>(&command)) {
    stored_.push_back(std::move(*store));
  } else if (auto* send_command = std::get_if<SendToAgent>(&command)) {
    send(send_command->node, std::move(send_command->message));
  } else if (const auto* keep = std::get_if<KeepCheckpoints>(&command)) {
    runs_.at(keep->run).disk.keep(keep->paths);
  } else if (const auto* reserve = std::get_if<ReservePort>(&command)) {
    reserve_port(*reserve);
  } else {
    record(command);
  }
}

void Cluster::reserve_port(const core::coordinator_command::ReservePort& wanted) {
  const int port = 1024 + static_cast<int>(ports_.size());
  ports_[port] = wanted.node;
  slots_at_placement_[wanted.run] = known_slots_;
  world_.queue.after(world_.chance.spread_between(milliseconds(1), milliseconds(500)), [this, wanted, port] {
    tell(core::coordinator_event::PortReserved{wanted.run, wanted.generation, port});
  });
}

void Cluster::send(const NodeId& id, cluster::ToAgent message) {
  if (const auto* desired = std::get_if<cluster::DesiredRun>(&message)) {
    static constexpr const char* kWants[] = {"run", "leave", "stop", "clear", "gone"};
    world_.say("coordinator -> {}: {} {} generation {}, {} of {} ranks", id, desired->run,
               kWants[static_cast<int>(desired->want)], desired->generation, desired->ranks.size(), desired->world_size);
    const RunCheck::Told told = runs_.at(desired->run).check.on_desired(id, *desired);
    if (told.starts) check_start(desired->run, *desired);
    // What was decided before a restart is told again, to nodes that may have changed meanwhile.
    if (told.places && interrupted_[desired->run] != desired->generation) check_slots(desired->run, node(id));
  } else if (const auto* ack = std::get_if<cluster::FactAck>(&message)) {
    if (ack->sequence > facts_taken_[ack->incarnation])
      violated("{}: fact {} is acknowledged, {} have come", id, ack->sequence, facts_taken_[ack->incarnation]);
  }
  node(id).wire().send_down(std::move(message));
}

/// Nothing older runs on a node that still counts, and when all nodes are told, the ranks are right.
void Cluster::check_start(const RunId& id, const cluster::DesiredRun& desired) {
  RunState& run = runs_.at(id);
  const bool runs_command = !run.plan.definition.job.training && desired.want == cluster::Want::kRun;
  if (runs_command && "10." + ports_[desired.master_port] != desired.master_address)
    violated("{}: generation {} is given the port {}, which was reserved on {}", id, desired.generation,
             desired.master_port, ports_[desired.master_port]);
  for (Worker* worker : run.alive)
    if (!run.check.was_lost(worker->node().id(), worker->generation()))
      violated("{}: generation {} starts, and rank {} of generation {} lives on {}", id, desired.generation, worker->rank(),
               worker->generation(), worker->node().id());
  world_.queue.after(Duration{0}, [this, id, generation = desired.generation] {
    const RunState& told = runs_.at(id);
    if (is_crashed_ || told.check.generation() != generation || interrupted_[id] == generation) return;
    told.check.check_ranks();
  });
}

void Cluster::check_slots(const RunId& starting, const Node& place) {
  int held = 0;
  for (auto& [id, run] : runs_) {
    const auto wanted = run.check.wanted_on(place.id());
    // Told to go, and not gone: its processes count.
    const Generation newest = run.check.generation();
    held += wanted ? *wanted : static_cast<int>(std::count_if(run.alive.begin(), run.alive.end(), [&](Worker* worker) {
              return &worker->node() == &place && worker->generation() == newest;
            }));
  }
  // A generation that waited for its port was placed when it asked for one.
  const auto placed = slots_at_placement_.find(starting);
  const int before = placed == slots_at_placement_.end() ? 0 : placed->second[place.id()];
  const int slots = std::max(known_slots_[place.id()], before);
  if (held > slots) violated("{}: {} ranks on {}, which has {} slots", starting, held, place.id(), slots);
}

/// A node whose agent and link are well, and have been for longer than any delay, must not be given up.
void Cluster::check_loss(const nlohmann::ordered_json& event) {
  if (!event.at("reason").get_ref<const std::string&>().starts_with("silent")) return;
  Node& lost = node(event.at("node"));
  const TimePoint well = world_.queue.now() - kNodeTimeout - seconds(2);
  if (lost.is_up() && lost.wire().is_healthy() && lost.healthy_since() < well)
    violated("{} is declared lost, and is well", lost.id());
}

void Cluster::check_end(const RunId& id) {
  RunState& run = runs_.at(id);
  for (Worker* worker : run.alive)
    if (!run.check.was_lost(worker->node().id(), worker->generation()))
      violated("{}: finished, and rank {} of generation {} lives on {}", id, worker->rank(), worker->generation(),
               worker->node().id());
}

}  // namespace sgd::sim
