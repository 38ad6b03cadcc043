#include "test/sim/node.hpp"

#include <algorithm>

#include "test/sim/cluster.hpp"
#include "test/sim/keeper.hpp"
#include "test/sim/run_state.hpp"
#include "test/sim/worker.hpp"

namespace sgd::sim {

using std::chrono::milliseconds;

Node::Node(World& world, Cluster& cluster, NodeId id, const NodePlan& plan)
    : world_(world),
      cluster_(cluster),
      id_(std::move(id)),
      plan_(plan),
      slots_(plan.slots),
      agent_(
          world, [this](const core::AgentEvent& event) { observe(event); },
          [this](core::AgentCommand&& command) { carry_out(std::move(command)); },
          [this](const core::AgentEvent& event, const core::AgentCommands&) { write_down(event); }),
      wire_(world, *this, cluster),
      last_words_(world) {}

void Node::boot() {
  if (is_up() || is_away_ || is_gone_) return;
  incarnation_ = world_.chance.next() >> 1;
  core::AgentFacts facts;
  facts.node = id_;
  facts.address = "10." + id_;
  facts.incarnation = incarnation_;
  facts.slots = slots_;
  for (int core = 0; core < plan_.cpus; ++core) facts.allowed_cores.push_back(core);
  facts.is_shared = true;
  facts.counts_cpus = plan_.counts_cpus;
  for (int gpu = 0; gpu < plan_.gpus; ++gpu) facts.gpus.push_back(gpu_name(gpu));
  facts.labels["zone"] = plan_.zone;
  facts.worker_program = "sgd-worker";
  if (!world_.plan.is_embedded) {
    facts.beat_interval = kBeatInterval;
    facts.orphan_timeout = kOrphanTimeout;
  }
  world_.say("{}: agent starts with {} slots", id_, slots_);
  ++processes_;
  ports_.clear();
  last_words_.forget();
  agent_.start(std::move(facts), core::Secrets(world_.chance.secret()));
  begin_journal();
  wire_.connect_soon();
}

void Node::crash() {
  if (!is_up()) return;
  world_.say("{}: crashes", id_);
  agent_.end();
  ++incarnation_;  // What its keepers still have to say reaches nobody.
  for (auto* keepers : {&keepers_, &lost_}) {
    for (auto& [run, keeper] : *keepers) {
      keeper->lose_agent();
      keeper->kill_strays();
    }
    keepers->clear();
  }
  workers_.clear();
  paused_.clear();
  newest_desired_.clear();
  ended_.clear();
  wire_.lose_agent(false);
}

void Node::end_agent() {
  if (!is_up()) return;
  world_.say("{}: agent ends", id_);
  agent_.end();
  ++incarnation_;
  for (auto* keepers : {&keepers_, &lost_}) {
    for (auto& [run, keeper] : *keepers) keeper->lose_agent();
    keepers->clear();
  }
  workers_.clear();
  paused_.clear();
  newest_desired_.clear();
  ended_.clear();
  wire_.lose_agent(true);
}

void Node::go_for_good(bool is_crash) {
  world_.say("{}: goes for good", id_);
  is_gone_ = true;
  // Killed, and not here again yet: what it had started waits for it.
  if (is_away_) world_.queue.after(std::chrono::seconds(13), [this] { end_agent(); });
  if (is_crash) return crash();
  end_agent();
}

void Node::tell(core::AgentEvent event) {
  if (!is_away_) return agent_.tell(std::move(event));
  const auto* said = std::get_if<core::agent_event::FromWorker>(&event);
  const bool is_heartbeat = said != nullptr && std::holds_alternative<link::Heartbeat>(said->message);
  if (!is_heartbeat) unheard_.push_back(std::move(event));
}

void Node::kill_agent() {
  if (!is_up()) return;
  world_.say("{}: agent is killed", id_);
  agent_.end();
  is_away_ = true;
  wire_.lose_agent(true);
}

void Node::take_over() {
  if (!is_away_) return;
  world_.say("{}: agent takes over, {} events", id_, journal_.events.size());
  auto saved = storage::decode_agent(journal_.state);
  if (!saved) violated("{}: a journal's state cannot be read: {}", id_, saved.error().message);
  agent_.start(std::move(saved).value());
  core::AgentCommands done;
  for (const core::TimedEvent& timed : journal_.events) agent_.machine().on(timed.at, timed.event, done);
  if (agent_.core().last_sequence() != journal_.told)
    violated("{}: a replay leads to {} facts, {} were told", id_, agent_.core().last_sequence(), journal_.told);
  journal_.filter = {};
  is_away_ = false;
  ++processes_;
  ports_.clear();
  const core::AgentFacts facts = agent_.core().facts();
  tell(core::agent_event::Resumed{slots_, facts.address, facts.memory_bytes, facts.labels});
  for (core::AgentEvent& event : std::exchange(unheard_, {})) tell(std::move(event));
  wire_.connect_soon();
}

void Node::begin_journal() {
  const core::Agent& machine = agent_.core();
  constexpr int kMost[] = {20, 400, 60, 150, 35};
  journal_ = {storage::encode_agent(machine), {}, machine.last_sequence(), {}, kMost[journals_++ % std::size(kMost)]};
}

/// As the agent's shell does it.
void Node::write_down(const core::AgentEvent& event) {
  constexpr std::size_t kWorthBeginningAnew = 20;
  const core::Agent& machine = agent_.core();
  const bool is_long = journal_.events.size() > static_cast<std::size_t>(journal_.most);
  if (is_long || (machine.idle() && journal_.events.size() > kWorthBeginningAnew)) return begin_journal();
  journal_.filter.take(world_.queue.now(), event, machine.was_soft(), journal_.events);
  journal_.told = machine.last_sequence();
}

void Node::preempt() {
  world_.say("{}: agent is told to end", id_);
  tell(core::agent_event::LeavingSoon{});
  const Incarnation told = incarnation_;
  world_.queue.after(world_.chance.spread_between(milliseconds(100), std::chrono::seconds(15)), [this, told] {
    if (incarnation_ == told) end_agent();
    world_.queue.after(world_.chance.spread_between(milliseconds(500), std::chrono::seconds(5)), [this] { boot(); });
  });
}

void Node::set_slots(int slots) {
  slots_ = slots;
  world_.say("{}: {} slots", id_, slots);
  tell(core::agent_event::SlotsChanged{slots});
}

void Node::pause(Duration duration) {
  if (!is_up() || paused()) return;
  trouble_until_ = std::max(trouble_until_, world_.queue.now() + duration);
  last_words_.on_paused(trouble_until_);
  agent_.pause(duration);
}

TimePoint Node::healthy_since() const {
  return std::max(trouble_until_, wire_.healthy_since());
}

core::ConnectionId Node::connect(Worker& worker) {
  if (!is_up() || worker.keeper().node().incarnation() != incarnation_) return 0;
  workers_[next_connection_] = &worker;
  return next_connection_++;
}

Generation Node::told(const RunId& run) const {
  const auto place = newest_desired_.find(run);
  return place == newest_desired_.end() ? 0 : place->second;
}

bool Node::is_told_to_end(const RunId& run) const {
  const auto place = ended_.find(run);
  return place != ended_.end() && place->second == told(run);
}

void Node::observe(const core::AgentEvent& event) {
  const auto* of_keeper = std::get_if<core::agent_event::FromKeeper>(&event);
  const auto* exited = of_keeper == nullptr ? nullptr : std::get_if<keeper::Exited>(&of_keeper->message);
  if (exited != nullptr) last_words_.on_exit_heard({of_keeper->run, exited->generation, exited->rank});
  const auto* message = std::get_if<core::agent_event::FromCoordinator>(&event);
  const auto* desired = message == nullptr ? nullptr : std::get_if<cluster::DesiredRun>(&message->message);
  if (desired == nullptr) return;
  last_words_.on_wish(desired->run, desired->uid);
  Generation& newest = newest_desired_[desired->run];
  // Of a run that it does not hold it knows no older order.
  newest = agent_.core().runs().contains(desired->run) ? std::max(newest, desired->generation) : desired->generation;
  if (desired->want == cluster::Want::kGone) ended_[desired->run] = std::max(ended_[desired->run], desired->generation);
}

void Node::carry_out(core::AgentCommand&& command) {
  using namespace core::agent_command;
  if (auto* up = std::get_if<TellCoordinator>(&command)) {
    if (const auto* fact = std::get_if<cluster::Fact>(&up->message)) last_words_.on_fact(*fact);
    wire_.send_up(std::move(up->message));
  } else if (auto* to_keeper = std::get_if<TellKeeper>(&command)) {
    tell_keeper(to_keeper->run, std::move(to_keeper->message));
  } else if (auto* to_worker = std::get_if<TellWorker>(&command)) {
    tell_worker(to_worker->connection, std::move(to_worker->message));
  } else if (const auto* pause = std::get_if<PauseWorker>(&command)) {
    const auto worker = workers_.find(pause->connection);
    if (worker == workers_.end()) return;
    last_words_.ignore(worker->second->speaker());
    worker->second->pause();
    paused_[pause->connection] = worker->second;
  } else if (const auto* resume = std::get_if<ResumeWorker>(&command)) {
    const auto worker = paused_.extract(resume->connection);
    if (!worker.empty()) worker.mapped()->resume();
  } else if (const auto* drop = std::get_if<DropLink>(&command)) {
    world_.say("{}: drops link {}: {}", id_, drop->connection, drop->reason);
    const auto worker = workers_.find(drop->connection);
    if (worker == workers_.end()) return;
    last_words_.ignore(worker->second->speaker());
    worker->second->lose_link();
  } else if (const auto* start = std::get_if<StartKeeper>(&command)) {
    start_keeper(start->run);
  } else if (const auto* strays = std::get_if<ClearStrays>(&command)) {
    clear_strays(strays->run);
  } else if (const auto* wanted = std::get_if<ReservePort>(&command)) {
    reserve_port(*wanted);
  } else if (const auto* held = std::get_if<HoldPort>(&command)) {
    std::vector<int>& ports = ports_[held->run] = held->worker_ports;
    ports.insert(ports.begin(), held->port);
  } else if (const auto* released = std::get_if<ReleasePort>(&command)) {
    if (ports_.erase(released->run) == 0) violated("{} releases a port of {}, which has none", id_, released->run);
  } else if (const auto* forget = std::get_if<ForgetRun>(&command)) {
    if (ports_.contains(forget->run)) violated("{} forgets {}, whose port it keeps", id_, forget->run);
    world_.say("{}: nothing of {} is left", id_, forget->run);
    newest_desired_.erase(forget->run);
    ended_.erase(forget->run);
    const auto keeper = keepers_.find(forget->run);
    if (keeper != keepers_.end() && keeper->second->alive())
      violated("{} forgets {}, whose keeper is alive", id_, forget->run);
  } else if (const auto* warning = std::get_if<Warn>(&command)) {
    world_.say("{}: warning: {}", id_, warning->message);
  }
}

/// At once; what is said of it comes later, or never when the process has ended by then.
void Node::reserve_port(const core::agent_command::ReservePort& wanted) {
  core::agent_event::PortReserved answer{wanted.run, wanted.generation, 0, "no port is free"};
  const bool is_full = world_.plan.trouble != Duration{0} && !world_.calm && world_.chance.with(0.01);
  // 0: none, which the machine does not know yet, so that it may still release it.
  std::vector<int>& kept = ports_[wanted.run] = {0};
  if (is_full) {
    cluster_.runs().at(wanted.run).check.on_port_refused(wanted.generation, id_);
  } else {
    kept.clear();
    while (static_cast<int>(kept.size()) <= wanted.workers)
      kept.push_back(cluster_.ports().reserve(id_, wanted.run, wanted.generation));
    answer = {wanted.run, wanted.generation, kept.front(), "", {kept.begin() + 1, kept.end()}};
  }
  world_.queue.after(world_.chance.spread_between(std::chrono::microseconds(10), milliseconds(500)),
                     [this, answer, process = processes_] {
                       if (process != processes_ || !is_up()) return;
                       if (ports(answer.run) == std::vector<int>{0}) ports_.erase(answer.run);
                       tell(answer);
                     });
}

std::vector<int> Node::ports(const RunId& run) const {
  const auto place = ports_.find(run);
  return place == ports_.end() ? std::vector<int>() : place->second;
}

void Node::start_keeper(const RunId& run) {
  const auto old = keepers_.find(run);
  if (old != keepers_.end() && old->second->alive()) violated("{}: a second keeper for {}", id_, run);
  Keeper& keeper = cluster_.add_keeper(*this, run);
  keepers_[run] = &keeper;
  keeper.begin();
}

void Node::tell_keeper(const RunId& run, keeper::ToKeeper message) {
  if (const auto* spawn = std::get_if<keeper::Spawn>(&message)) {
    if (spawn->generation != told(run))
      violated("{}: {} spawns a rank of generation {}, and was told {}", id_, run, spawn->generation, told(run));
    last_words_.on_spawn({run, spawn->generation, spawn->rank});
  }
  const auto keeper = keepers_.find(run);
  if (keeper != keepers_.end()) keeper->second->order(std::move(message));
}

void Node::tell_worker(core::ConnectionId connection, link::ToWorker message) {
  const auto worker = workers_.find(connection);
  if (worker != workers_.end()) worker->second->tell(std::move(message));
}

void Node::clear_strays(const RunId& run) {
  const auto keeper = keepers_.find(run);
  if (keeper == keepers_.end()) return;
  Keeper* dead = keeper->second;
  last_words_.ignore(run);
  lost_[run] = dead;
  keepers_.erase(keeper);
  const Duration most = world_.chance.with(world_.plan.late_broom) ? milliseconds(3000) : milliseconds(100);
  world_.queue.after(world_.chance.between(milliseconds(1), most), [this, run, dead, life = incarnation_] {
    if (life != incarnation_) return;
    dead->kill_strays();
    lost_.erase(run);
    tell(core::agent_event::StraysCleared{run});
  });
}

}  // namespace sgd::sim
