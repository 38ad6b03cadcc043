#include "test/sim/cluster.hpp"

#include <algorithm>

namespace sgd::sim {

using std::chrono::milliseconds;
using std::chrono::seconds;

Cluster::Cluster(World& world)
    : world_(world),
      coordinator_(
          world, [](const core::CoordinatorEvent&) {},
          [this](core::CoordinatorCommand&& command) { take(std::move(command)); },
          [this](const core::CoordinatorEvent& event, const core::CoordinatorCommands& commands) {
            judge(event, commands);
          }),
      passes_(world, runs_),
      quotas_(world, runs_),
      log_(
          world, [this](const Log::Store& store) { note(store); },
          [this](core::CoordinatorCommand&& command) { carry_out(std::move(command)); }) {
  coordinator_.start(world.plan.settings);
  int number = 0;
  for (const NodePlan& plan : world.plan.nodes) {
    nodes_.emplace_back(world, *this, fmt::format("node{}", ++number), plan);
    world.queue.after(world.chance.between(Duration{0}, seconds(2)), [this, &node = nodes_.back()] { node.boot(); });
  }
  for (const RunPlan& plan : world.plan.runs) {
    runs_.try_emplace(plan.definition.id, world, plan);
    world.queue.after(plan.submit_after, [this, &plan] { submit(plan); });
  }
  for (const ExperimentPlan& plan : world.plan.experiments) {
    experiments_.try_emplace(plan.definition.id, world, plan);
    world.queue.after(plan.submit_after, [this, &plan] { submit(plan); });
  }
}

/// As a client does it: again, until it is stored.
void Cluster::submit(const RunPlan& plan) {
  const RunId& id = plan.definition.id;
  if (submitted_.contains(id)) return;
  const bool is_new = coordinator_alive() && !coordinator_.core().snapshot(world_.queue.now(), id);
  if (is_new && !coordinator_.paused() && !asked_.contains(id) && quotas_.takes(coordinator_.core(), plan)) {
    asked_.insert(id);
    tell(core::coordinator_event::Submitted{plan.definition});
  }
  world_.queue.after(milliseconds(500), [this, &plan] { submit(plan); });
}

void Cluster::pause_coordinator(Duration duration) {
  const TimePoint now = world_.queue.now();
  if (now > late_until_ + kLossTime) late_from_ = now;
  late_until_ = std::max(late_until_, now + duration);
  coordinator_.pause(duration);
}

void Cluster::stop_run(RunState& run, const core::StopRequest& request) {
  run.check.on_stop_requested();
  tell(core::coordinator_event::StopRequested{run.plan.definition.id, request});
}

bool Cluster::order(const NodeId& node, const core::NodeOrder& order) {
  if (!coordinator_alive() || coordinator_.paused() || drained_for_good_.contains(node)) return false;
  if (!coordinator_.core().why_not(node, order).empty()) return false;
  world_.say("{}: order {}, {} slots", node, static_cast<int>(order.kind), order.slots);
  tell(core::coordinator_event::NodeOrdered{node, order});
  if (order.kind == core::NodeOrder::Kind::kDrain)
    world_.queue.after(seconds(1), [this, node] { check_drained(node); });
  return true;
}

/// Training that is at work on a drained node has been asked to leave it, in the moment in which that was stored.
void Cluster::check_drained(const NodeId& node) {
  if (!coordinator_alive() || !known_.at(node).is_drained) return;
  if (!log_.is_idle()) return world_.queue.after(milliseconds(50), [this, node] { check_drained(node); });
  for (const auto& [id, run] : runs_) {
    const auto shot = coordinator_.core().snapshot(world_.queue.now(), id);
    if (!shot || shot->phase != core::RunPhase::kRunning || !run.plan.definition.job.training) continue;
    const Generation generation = run.check.generation();
    const auto interrupted = interrupted_.find(id);
    if (interrupted != interrupted_.end() && interrupted->second == generation) continue;
    if (run.check.wanted_on(node).value_or(0) == 0 || run.check.was_lost(node, generation)) continue;
    if (!run.check.is_leaving()) violated("{} stays on {}, which is drained", id, node);
  }
}

/// Who asked last has it: two who go on asking for opposite things would never be done.
void Cluster::drain_until_done(const NodeId& node, bool is_drained, bool for_good) {
  drain_until_done(node, is_drained, for_good, ++drain_orders_[node]);
}

void Cluster::drain_until_done(const NodeId& node, bool is_drained, bool for_good, int number) {
  if (drained_for_good_.contains(node) || number != drain_orders_[node]) return;
  if (known_.at(node).is_drained == is_drained && coordinator_alive()) {
    if (for_good) drained_for_good_.insert(node);
    return;
  }
  (void)order(node, {is_drained ? core::NodeOrder::Kind::kDrain : core::NodeOrder::Kind::kUndrain, -1});
  world_.queue.after(milliseconds(500), [this, node, is_drained, for_good, number] {
    drain_until_done(node, is_drained, for_good, number);
  });
}

void Cluster::remove_until_done(const NodeId& node) {
  const auto is_it = [&](const core::NodeSnapshot& row) { return row.node == node; };
  if (coordinator_alive() && !coordinator_.paused() && log_.is_idle()) {
    const std::vector<core::NodeSnapshot> rows = coordinator_.core().nodes();
    if (std::none_of(rows.begin(), rows.end(), is_it)) return;
  }
  (void)order(node, {core::NodeOrder::Kind::kRemove, -1});
  world_.queue.after(milliseconds(500), [this, node] { remove_until_done(node); });
}

bool Cluster::send_twin(Node& node) {
  const bool is_well = node.is_up() && !node.paused() && node.wire().is_healthy() &&
                       node.healthy_since() < world_.queue.now() - seconds(3);
  if (!is_well || !coordinator_alive() || coordinator_.paused() || crash_in_ > 0) return false;
  if (late_until_ > world_.queue.now() - seconds(3)) return false;
  if (!coordinator_.core().is_expected(node.id())) return false;  // Removed by an operator: its name is free.
  cluster::NodeState state;
  state.node = node.id();
  state.incarnation = twin_ = world_.chance.next() >> 1;
  state.slots = node.slots();
  state.is_new_link = true;
  world_.say("{}: a second agent", node.id());
  tell(core::coordinator_event::FromAgent{node.id(), state});
  if (twin_ != 0) violated("{}: a second agent is taken beside one that is well", node.id());
  return true;
}

/// The coordinator closes a connection.
void Cluster::refuse(const core::coordinator_command::RefuseAgent& refused) {
  if (refused.incarnation == twin_) {
    twin_ = 0;
    return;
  }
  world_.say("{}: refused: {}", refused.node, refused.reason);
  Node& agent = node(refused.node);
  if (agent.incarnation() == refused.incarnation) agent.wire().refuse();
}

Node& Cluster::node(const NodeId& id) {
  const auto found = std::find_if(nodes_.begin(), nodes_.end(), [&](const Node& one) { return one.id() == id; });
  if (found == nodes_.end()) violated("a message for {}, which does not exist", id);
  return *found;
}

Keeper& Cluster::add_keeper(Node& node, const RunId& run) {
  return keepers_.emplace_back(world_, node, runs_.at(run));
}

/// Before a process of a generation starts on a node, everything older of its run there is reaped.
Worker& Cluster::add_worker(RunState& run, Keeper& keeper, Worker::Identity identity) {
  if (const ExperimentCheck* parent = parent_of(run))
    if (!run.check.was_lost(keeper.node().id(), identity.generation)) parent->on_process_start(run.plan.definition.id);
  for (Worker* other : run.alive) {
    if (&other->node() != &keeper.node()) continue;
    if (other->generation() != identity.generation || other->rank() == identity.rank)
      violated("{}: rank {} of generation {} starts on {} beside rank {} of generation {}", run.plan.definition.id,
               identity.rank, identity.generation, keeper.node().id(), other->rank(), other->generation());
  }
  check_cores(run, keeper, identity);
  ports_.on_process_start(run, keeper.node(), identity);
  gpus_.on_process_start(runs_, run, keeper.node(), identity);
  run.check.on_process_start(identity.generation, identity.rank);
  Worker& worker = workers_.emplace_back(world_, run, keeper, std::move(identity));
  run.alive.push_back(&worker);
  return worker;
}

/// Runs that share a node have cores of their own, wherever ranks are bound.
void Cluster::check_cores(const RunState& run, Keeper& keeper, const Worker::Identity& identity) {
  for (auto& [id, other] : runs_) {
    for (Worker* worker : other.alive) {
      if (&other == &run || &worker->node() != &keeper.node() || worker->keeper().incarnation() != keeper.incarnation())
        continue;
      for (const int core : worker->identity().cores)
        if (std::find(identity.cores.begin(), identity.cores.end(), core) != identity.cores.end())
          violated("{}: rank {} is bound to core {} of {}, which {} has", run.plan.definition.id, identity.rank, core,
                   keeper.node().id(), id);
    }
  }
}

void Cluster::note_link(const core::coordinator_event::FromAgent& arrived) {
  const auto* said = std::get_if<cluster::NodeState>(&arrived.message);
  if (said == nullptr || said->incarnation == twin_ || !said->is_new_link) return;
  Wire& wire = node(arrived.node).wire();
  if (is_refusal_) return wire.note_refused();
  wire.note_accepted(coordinator_.core().link_of(arrived.node));
}

/// What concerns the queue is judged when it is decided: what is behind it may have changed when it is carried out.
void Cluster::judge(const core::CoordinatorEvent& event, const core::CoordinatorCommands& commands) {
  using namespace core::coordinator_command;
  if (is_crashed_) return;
  if (const auto* submitted = std::get_if<core::coordinator_event::Submitted>(&event))
    note_submitted(submitted->run.id);
  is_refusal_ = !commands.empty() && std::holds_alternative<RefuseAgent>(commands.front());
  if (const auto* arrived = std::get_if<core::coordinator_event::FromAgent>(&event)) note_link(*arrived);
  note_trials(commands);
  std::set<RunId> growing;
  std::set<RunId> pausing;  // They leave for others of their experiment.
  for (const core::CoordinatorCommand& command : commands) {
    if (const auto* store = std::get_if<Store>(&command)) {
      decided_.note(store->event);
      silences_.on_decided(store->event);
    }
    note_quota(command);
    const auto* record = std::get_if<RecordEvent>(&command);
    if (record != nullptr && record->event.at("event") == "run_started" && !experiments_.contains(record->run))
      passes_.on_first_start(coordinator_.core(), record->run);
    if (record != nullptr && record->event.at("event") == "trial_decided")
      pausing.insert(experiments_.at(record->run).run_of(record->event.at("trial")));
    const auto* sent = std::get_if<SendToAgent>(&command);
    const auto* desired = sent == nullptr ? nullptr : std::get_if<cluster::DesiredRun>(&sent->message);
    if (desired == nullptr || desired->want != cluster::Want::kLeave) continue;
    const bool is_first = std::exchange(leaving_[desired->run], desired->generation) != desired->generation;
    if (is_first && interrupted_[desired->run] != desired->generation) growing.insert(desired->run);
    if (decided_.at(sent->node).is_drained) growing.erase(desired->run);
  }
  for (const RunId& run : growing) {
    const auto shot = coordinator_.core().snapshot(world_.queue.now(), run);
    const bool is_past = shot && shot->generation != leaving_[run];  // Its nodes were lost then, and it has the room.
    if (!pausing.contains(run) && !is_past) passes_.on_growth(coordinator_.core(), run);
  }
}

void Cluster::note_submitted(const RunId& run) {
  passes_.on_submitted(run);
  quotas_.on_submitted(run);
}

void Cluster::note_quota(const core::CoordinatorCommand& command) {
  using namespace core::coordinator_command;
  const auto* record = std::get_if<RecordEvent>(&command);
  if (record != nullptr && record->event.at("event") == "run_started") quotas_.on_first_start(record->run);
  // One whose first start the store has lost does not say it again.
  const auto* sent = std::get_if<SendToAgent>(&command);
  const auto* desired = sent == nullptr ? nullptr : std::get_if<cluster::DesiredRun>(&sent->message);
  if (desired != nullptr && (desired->want == cluster::Want::kRun || desired->want == cluster::Want::kPrepare))
    quotas_.on_first_start(desired->run);
  if (const auto* finished = std::get_if<FinishRun>(&command)) quotas_.on_finished(finished->run);
}

/// It is on the disk, and so is all that was before it.
void Cluster::note(const core::coordinator_command::Store& store) {
  if (!is_replaying_) {
    ++noted_;
    note_stop(store);
  }
  known_.note(store.event);
  if (const auto* stored = std::get_if<core::coordinator_event::CheckpointStored>(&store.event))
    runs_.at(stored->run).check.on_checkpoint_stored(stored->path);
  const auto* ordered = std::get_if<core::coordinator_event::NodeOrdered>(&store.event);
  removed_ = ordered != nullptr && ordered->order.kind == core::NodeOrder::Kind::kRemove ? ordered->node : NodeId{};
  if (const auto* submitted = std::get_if<core::coordinator_event::Submitted>(&store.event))
    submitted_.try_emplace(submitted->run.id, world_.queue.now());
  const auto* arrived = std::get_if<core::coordinator_event::FromAgent>(&store.event);
  const auto* fact = arrived == nullptr ? nullptr : std::get_if<cluster::Fact>(&arrived->message);
  if (fact == nullptr) return;
  std::int64_t& taken = facts_taken_[fact->incarnation];
  if (fact->sequence == taken + 1) ++taken;
}

/// Between any two commands: what was not carried out is lost, what was stored is not.
bool Cluster::crash_coordinator(bool loses_tail) {
  if (!coordinator_alive() || crash_in_ > 0) return false;
  loses_tail_ = loses_tail;
  crash_in_ = world_.chance.between(1, 12);
  return true;
}

void Cluster::die_now() {
  is_crashed_ = true;
  world_.say("coordinator dies");
  log_.die();
  world_.queue.after(Duration{0}, [this] { coordinator_.end(); });
  for (Node& one : nodes_) one.wire().lose_coordinator();
  world_.queue.after(world_.chance.spread_between(milliseconds(100), seconds(4)), [this] { restart_coordinator(); });
}

/// The same machine by replay; its records are those of its former life, and what is missing at their end is made up
/// for.
void Cluster::restart_coordinator() {
  using namespace core::coordinator_command;
  is_crashed_ = false;
  is_replaying_ = true;
  const bool has_lost = std::exchange(loses_tail_, false) && log_.lose_tail();
  coordinator_.start(world_.plan.settings);
  std::size_t number = 0;
  std::size_t replayed = 0;
  known_.clear();
  asked_.clear();
  passes_.forget();
  quotas_.forget();
  leaving_.clear();
  for (const std::shared_ptr<const Store>& store : log_.stored()) {
    note(*store);
    if (++replayed > noted_) note_stop(*store);
    if (const auto* submitted = std::get_if<core::coordinator_event::Submitted>(&store->event))
      note_submitted(submitted->run.id);
    core::CoordinatorCommands commands;
    coordinator_.machine().replay(store->at, store->event, commands);
    note_trials(commands);
    for (const core::CoordinatorCommand& command : commands) {
      note_quota(command);
      if (const auto* take = std::get_if<TakeCheckpoint>(&command)) take_checkpoint(*take);
      const auto said = words_of(command);
      if (!said) continue;
      if (++number > recorded_)
        record(command);
      else if (outputs_[number - 1] != *said)
        violated("before it died the coordinator has told \"{}\", and now \"{}\"", outputs_[number - 1], *said);
    }
  }
  noted_ = log_.stored().size();
  is_replaying_ = false;
  decided_ = known_;
  if (has_lost) forget_tail();
  recorded_ = std::min(recorded_, number);
  outputs_.resize(recorded_);
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
  world_.say("coordinator is back after {} stored events{}", log_.stored().size(), has_lost ? ", some are lost" : "");
  coordinator_.tell(core::coordinator_event::Restarted{});
  tell_stored_again();
}

/// What it had told and recorded since is news to it.
void Cluster::forget_tail() {
  gpus_.forget();
  for (auto& [id, run] : runs_) {
    const auto shot = coordinator_.core().snapshot(world_.queue.now(), id);
    if (shot) run.check.on_tail_lost(shot->generation, shot->phase == core::RunPhase::kFinished);
    const auto placed = placed_.find(id);
    if (placed != placed_.end() && (!shot || placed->second.generation > shot->generation)) placed_.erase(placed);
  }
}

/// As the shell does it, when no run is live.
void Cluster::cut_if_idle() {
  if (!coordinator_alive() || coordinator_.paused() || !log_.is_idle()) return;
  // What has ended is forgotten with it, and an experiment may be wanted to go on.
  for (const ExperimentPlan& plan : world_.plan.experiments)
    if (plan.goes_on) return;
  const TimePoint now = world_.queue.now();
  for (const RunId& id : coordinator_.core().runs())
    if (coordinator_.core().snapshot(now, id)->phase != core::RunPhase::kFinished) return;
  world_.say("the coordinator's log is cut");
  log_.cut({now, coordinator_.core().known_nodes()});
  recorded_ = 0;
  outputs_.clear();
  noted_ = 1;
}

void Cluster::record(const core::CoordinatorCommand& command) {
  using namespace core::coordinator_command;
  if (const auto* take = std::get_if<TakeCheckpoint>(&command)) return take_checkpoint(*take);
  const auto said = words_of(command);
  if (!said) return;
  ++recorded_;
  outputs_.push_back(*said);
  if (record_of_experiment(command)) return;
  if (const auto* event = std::get_if<RecordEvent>(&command)) {
    runs_.at(event->run).check.on_event(event->event);
    gpus_.on_event(runs_.at(event->run), event->event);
    if (event->event.at("event") == "node_lost") check_loss(event->event);
  } else if (const auto* metrics = std::get_if<RecordMetrics>(&command)) {
    RunState& run = runs_.at(metrics->run);
    run.check.on_metrics(metrics->metrics);
    if (ExperimentCheck* parent = parent_of(run)) parent->on_trial_metrics(metrics->run, metrics->metrics);
  } else if (const auto* finished = std::get_if<FinishRun>(&command)) {
    RunState& run = runs_.at(finished->run);
    run.check.on_finish(finished->outcome);
    const bool is_done = finished->outcome.state == "succeeded";
    if (ExperimentCheck* parent = parent_of(run)) parent->on_trial_finished(finished->run, is_done);
    check_end(finished->run);
    check_memory();
    if (world_.chance.with(world_.plan.cut)) world_.queue.after(milliseconds(10), [this] { cut_if_idle(); });
  }
}

/// From the machine, in its turn.
void Cluster::take(core::CoordinatorCommand&& command) {
  if (is_crashed_) return;
  const bool is_store = std::holds_alternative<core::coordinator_command::Store>(command);
  if (is_store && crash_in_ > 0 && --crash_in_ == 0) return die_now();
  if (std::exchange(is_refusal_, false)) return carry_out(std::move(command));
  log_.push(std::move(command));
}

void Cluster::carry_out(core::CoordinatorCommand&& command) {
  using namespace core::coordinator_command;
  if (is_crashed_) return;
  if (crash_in_ > 0 && --crash_in_ == 0) return die_now();
  if (auto* send_command = std::get_if<SendToAgent>(&command)) {
    send(send_command->node, std::move(send_command->message), send_command->link);
  } else if (const auto* shared = std::get_if<SendToAgents>(&command)) {
    for (const NodeId& node : shared->nodes) send(node, shared->message, std::nullopt);
  } else if (const auto* refused = std::get_if<RefuseAgent>(&command)) {
    refuse(*refused);
  } else if (const auto* forgotten = std::get_if<ForgetRun>(&command)) {
    check_forgotten(forgotten->run);
  } else if (const auto* keep = std::get_if<KeepCheckpoints>(&command)) {
    runs_.at(keep->run).disk.keep(keep->paths);
  } else {
    record(command);
  }
}

/// Rank 0's node is told to prepare: the generation is placed, and nothing of it runs.
void Cluster::note_placement(const NodeId& node, const cluster::DesiredRun& desired) {
  const RunState& run = runs_.at(desired.run);
  if (run.check.finished()) violated("{}: {} is told to prepare after the end", desired.run, node);
  if (desired.generation <= run.check.generation() && !run.check.is_forgotten(desired.generation))
    violated("{}: {} is told to prepare generation {}, which has started", desired.run, node, desired.generation);
  Placed& placed = placed_[desired.run];
  if (placed.generation != desired.generation) placed = {desired.generation, known_};
}

/// While ranks start there, nothing that is said of it is heard.
void Cluster::part_soon(Wire& wire) {
  world_.count(Fault::kPartition);
  world_.queue.after(world_.chance.between(Duration{0}, milliseconds(100)), [&wire, this] {
    // Often until the node has just been given up, and the link is still there.
    const Duration length = world_.chance.with(0.5) ? world_.chance.between(kNodeTimeout, kNodeTimeout + seconds(2))
                                                    : world_.chance.spread_between(milliseconds(100), kHealing);
    if (wire.is_healthy()) wire.partition(Wire::Direction::kUp, length);
  });
}

void Cluster::send(const NodeId& id, cluster::ToAgent message, std::optional<core::LinkNumber> link) {
  if (const auto* desired = std::get_if<cluster::DesiredRun>(&message)) {
    static constexpr const char* kWants[] = {"prepare", "run", "leave", "stop", "clear", "gone"};
    world_.say("coordinator -> {}: {} {} generation {}, {} of {} ranks", id, desired->run,
               kWants[static_cast<int>(desired->want)], desired->generation, desired->ranks.size(),
               desired->world_size);
    if (desired->want == cluster::Want::kPrepare) {
      note_placement(id, *desired);
    } else {
      RunCheck& check = runs_.at(desired->run).check;
      const ExperimentCheck* parent = parent_of(runs_.at(desired->run));
      const bool is_pausing = parent != nullptr && parent->is_pausing(desired->run);
      const bool may_leave = is_pausing || is_on_drained(desired->run, *desired);
      const RunCheck::Told told = check.on_desired(id, *desired, may_leave);
      if (told.starts) check_start(desired->run, *desired);
      // What was decided before a restart is told again, to nodes that may have changed meanwhile.
      if (told.places && interrupted_[desired->run] != desired->generation)
        check_place(desired->run, node(id), desired->ranks.size());
      if (told.places && desired->want == cluster::Want::kRun && !world_.calm &&
          world_.chance.with(world_.plan.parted_at_start))
        part_soon(node(id).wire());
    }
  } else if (const auto* ack = std::get_if<cluster::FactAck>(&message)) {
    if (ack->sequence > facts_taken_[ack->incarnation])
      violated("{}: fact {} is acknowledged, {} have come", id, ack->sequence, facts_taken_[ack->incarnation]);
  }
  node(id).wire().send_down(std::move(message), link);
}

}  // namespace sgd::sim
