#include "launcher/core/coordinator.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/base/assert.hpp"

namespace sgd::core {

Coordinator::Coordinator(CoordinatorSettings settings, State state) : State(std::move(state)) {
  settings_ = settings;
  for (const auto& [id, node] : nodes_)
    if (node.look_at) looks_.emplace(*node.look_at, id);
  for (const auto& [id, condition] : conditions_)
    if (condition.unstable_until) unstable_.insert(id);
  for (auto& [id, run] : runs_)
    if (!run.finished()) live_[id] = &run;
  note_all_touched();
}

void Coordinator::on(TimePoint now, const CoordinatorEvent& event, CoordinatorCommands& out) {
  if (auto refused = refusal(now, event)) {
    out.push_back(*std::move(refused));
    return;
  }
  if (std::holds_alternative<coordinator_event::Tick>(event))
    for (const NodeId& node : silent_nodes(now))
      on(now, coordinator_event::NodeSilent{node, to_seconds(now - nodes_.at(node).heard_at)}, out);
  const std::size_t first = out.size();
  if (is_stored(event)) out.push_back(coordinator_command::Store{now, event});
  apply(now, event, out);
  for (std::size_t order = first; order < out.size(); ++order)
    if (auto* send = std::get_if<coordinator_command::SendToAgent>(&out[order])) send->link = link_of(send->node);
}

/// Nothing but the time depends on it.
bool Coordinator::is_sign_of_life(const CoordinatorEvent& event) {
  const auto* arrived = std::get_if<coordinator_event::FromAgent>(&event);
  return arrived != nullptr && (std::holds_alternative<cluster::Progress>(arrived->message) ||
                                std::holds_alternative<cluster::ExchangeAsk>(arrived->message) ||
                                std::holds_alternative<cluster::Beat>(arrived->message));
}

/// All but signs of life, facts that have been taken or come too early, and checkpoints that are known to be here.
bool Coordinator::is_stored(const CoordinatorEvent& event) const {
  if (const auto* checkpoint = std::get_if<coordinator_event::CheckpointStored>(&event)) return is_news(*checkpoint);
  const auto* arrived = std::get_if<coordinator_event::FromAgent>(&event);
  if (arrived == nullptr) return true;
  const auto known = nodes_.find(arrived->node);
  if (known == nodes_.end()) return true;
  if (const auto* fact = std::get_if<cluster::Fact>(&arrived->message))
    return fact->incarnation == known->second.incarnation && fact->sequence == known->second.last_fact + 1;
  return !is_sign_of_life(event);
}

bool Coordinator::is_news(const coordinator_event::CheckpointStored& stored) const {
  const auto run = runs_.find(stored.run);
  return run != runs_.end() && run->second.awaits(stored.path);
}

void Coordinator::apply(TimePoint now, const CoordinatorEvent& event, CoordinatorCommands& out) {
  const std::size_t first = out.size();
  handle(now, event, out);
  // Ten thousand nodes say a word a second: what no run hears of must not cost a look at all of them.
  if (is_sign_of_life(event) && !capacity_changed_) return;
  if (offer_at_ && now >= *offer_at_) capacity_changed_ = true;
  next_offer_ = offered_at_ ? *offered_at_ + offer_gap() : now;
  note_touched(event);
  if (std::exchange(room_changed_, false)) take_back_slots(now, out);
  tell_views(now, out);
  std::size_t told = first;
  std::map<RunId, int> growth;
  do {
    growth = settle(now, told, out);
  } while (offer_growth(now, growth, out));
  changed_nodes_.clear();
  note_finished(first, out);
}

/// Until nobody who waits can be given more, nor what that leads to changes what is free; the workers that each run at
/// work may have more then. `told`: the first command that its experiment has not heard of.
std::map<RunId, int> Coordinator::settle(TimePoint now, std::size_t& told, CoordinatorCommands& out) {
  std::map<RunId, int> growth;
  while (true) {
    // A run that ends while it waits makes way in the queue.
    for (; told < out.size(); ++told) {
      if (std::holds_alternative<coordinator_command::FinishRun>(out[told])) capacity_changed_ = true;
      if (!experiments_.empty()) tell_parent(now, told, out);
    }
    if (!capacity_changed_ && wanting_.empty()) return growth;
    capacity_changed_ = false;
    if (now < next_offer_) {
      offer_at_ = next_offer_;
      return growth;
    }
    offer_at_.reset();
    growth = offer_capacity(now, out);
    note_all_touched();
    advance_all(now, out);
  }
}

/// What concerns one run, and changes nothing that runs share, is no news of any other.
void Coordinator::note_touched(const CoordinatorEvent& event) {
  using namespace coordinator_event;
  if (capacity_changed_ || room_changed_) return note_all_touched();
  if (const auto* from_agent = std::get_if<FromAgent>(&event)) {
    const auto* fact = std::get_if<cluster::Fact>(&from_agent->message);
    return fact == nullptr ? note_all_touched() : note_touched(fact->run);
  }
  if (const auto* stop = std::get_if<StopRequested>(&event)) return note_touched(stop->run);
  if (const auto* stored = std::get_if<CheckpointStored>(&event)) return note_touched(stored->run);
  note_all_touched();
}

/// Most of them have nothing new: that costs no look-up by name.
void Coordinator::note_all_touched() {
  auto wakeup = wakeup_of_.begin();
  for (const auto& [id, run] : live_) {
    while (wakeup != wakeup_of_.end() && wakeup->first < id) ++wakeup;
    const bool has_wakeup = wakeup != wakeup_of_.end() && wakeup->first == id;
    const auto before = has_wakeup ? std::optional(wakeup->second) : std::nullopt;
    if (before == run->next_wakeup() && wanting_.empty() && !run->wants_capacity()) continue;
    if (has_wakeup) ++wakeup;  // Its place may go.
    note_touched(id);
  }
}

void Coordinator::note_touched(const RunId& id) {
  const auto run = live_.find(id);
  const bool is_live = run != live_.end();
  if (is_live && run->second->wants_capacity()) {
    wanting_.insert(id);
  } else {
    wanting_.erase(id);
  }
  const std::optional<TimePoint> at = is_live ? run->second->next_wakeup() : std::nullopt;
  const auto before = wakeup_of_.find(id);
  if (before != wakeup_of_.end()) {
    if (at == before->second) return;
    wakeups_.erase({before->second, id});
    if (!at) wakeup_of_.erase(before);
  }
  if (!at) return;
  wakeup_of_[id] = *at;
  wakeups_.emplace(*at, id);
}

void Coordinator::handle(TimePoint now, const CoordinatorEvent& event, CoordinatorCommands& out) {
  using namespace coordinator_event;
  if (const auto* submitted = std::get_if<Submitted>(&event)) {
    if (is_experiment(submitted->run.job)) return begin_experiment(now, submitted->run, out);
    begin_run(now, submitted->run);
  } else if (const auto* from_agent = std::get_if<FromAgent>(&event)) {
    on_agent(now, from_agent->node, from_agent->message, out);
  } else if (const auto* closed = std::get_if<AgentClosed>(&event)) {
    on_closed(now, closed->node);
  } else if (const auto* stop = std::get_if<StopRequested>(&event)) {
    carry_out(now, {trial_order::Stop{stop->run, stop->request}}, out);
  } else if (const auto* ordered = std::get_if<NodeOrdered>(&event)) {
    on_order(now, ordered->node, ordered->order, out);
  } else if (const auto* forgotten = std::get_if<RunForgotten>(&event)) {
    const auto has_run = [&forgotten](const std::deque<RunId>& runs) {
      return std::find(runs.begin(), runs.end(), forgotten->run) != runs.end();
    };
    if (has_run(finished_) || has_run(finished_trials_)) forget(forgotten->run, out);
  } else if (const auto* silent = std::get_if<NodeSilent>(&event)) {
    lose(now, silent->node, fmt::format("silent for {}", format_duration(settings_.node_timeout.value_or(Duration{0}))),
         silent->silent_s, out);
  } else if (const auto* known = std::get_if<NodesKnown>(&event)) {
    on_nodes_known(now, *known);
  } else if (const auto* resumed = std::get_if<ExperimentResumed>(&event)) {
    on_experiment_resumed(now, *resumed, out);
  } else if (const auto* said = std::get_if<SearchSaid>(&event)) {
    on_search(now, said->run, said->line, true, out);
  } else if (const auto* failed = std::get_if<SearchFailed>(&event)) {
    on_search(now, failed->run, failed->why, false, out);
  } else if (const auto* stored = std::get_if<CheckpointStored>(&event)) {
    if (is_news(*stored)) on_checkpoint_stored(now, *stored, out);
  } else if (std::holds_alternative<Restarted>(event)) {
    on_restarted(now, out);
  } else {
    end_quarantines(now);
    for (const auto& [id, run] : live_) run->on_tick(now, out);
    for (auto& [id, experiment] : experiments_) {
      if (experiment.finished()) continue;
      experiment.on_tick(now, out);
      advance(now, experiment, out);
    }
  }
}

/// Nobody was listened to for a while: silence counts from here.
void Coordinator::on_restarted(TimePoint now, CoordinatorCommands& out) {
  facts_ = {};
  restarted_at_ = now;
  back_at_.reset();
  time_to_be_back_ = std::chrono::seconds(nodes_.size() / kBackPerSecond);
  for (auto& [id, node] : nodes_) {
    node.is_linked = false;
    note_heard(now, id, node);
  }
  for (const auto& [id, run] : live_) run->on_restarted(out);
  for (auto& [id, experiment] : experiments_) {
    TrialOrders orders;
    experiment.on_restarted(now, out, orders);
    carry_out(now, orders, out);
  }
}

void Coordinator::on_fact(TimePoint now, const NodeId& node, Node& known, const cluster::Fact& fact,
                          CoordinatorCommands& out) {
  if (fact.incarnation != known.incarnation) return facts_.add(FactVerdict::kOtherIncarnation);
  // A gap means that an earlier one is still on its way: it will be sent again, and this one after it.
  if (fact.sequence > known.last_fact + 1) return facts_.add(FactVerdict::kEarly);
  if (fact.sequence <= known.last_fact) {
    facts_.add(FactVerdict::kRepeated);
  } else {
    known.last_fact = fact.sequence;
    const auto run = runs_.find(fact.run);
    const FactVerdict verdict =
        run == runs_.end() ? FactVerdict::kUnknownRun : run->second.on_fact(now, node, fact, out);
    facts_.add(verdict);
    if (std::holds_alternative<cluster::Cleared>(fact.body) || tells_of_left_out(node, fact.body))
      capacity_changed_ = true;
    const auto left = known.leftovers.find(fact.run);
    if (left != known.leftovers.end() && is_end_of(left->second, fact, verdict)) {
      known.leftovers.erase(left);
      note_node_changed();
    }
  }
  out.push_back(coordinator_command::SendToAgent{node, cluster::FactAck{fact.incarnation, known.last_fact}});
}

/// The ranks before are dead when their node says so, and when it has started others that are wanted.
bool Coordinator::is_end_of(const Leftover& left, const cluster::Fact& fact, FactVerdict verdict) {
  if (std::holds_alternative<cluster::WorkerStarted>(fact.body)) return verdict == FactVerdict::kTaken;
  if (!std::holds_alternative<cluster::Cleared>(fact.body)) return false;
  // What it answers may be older than an order by which ranks were started: then it does not speak of them. Of a later
  // order for the same number the uid is larger, and a node that connects anew says what it holds.
  if (fact.uid == 0 || left.uid == 0 || fact.generation > left.generation) return true;
  return fact.generation == left.generation && fact.uid >= left.uid;
}

/// Runs among the commands from `first` on that have ended; of all that have, the oldest are forgotten.
void Coordinator::note_finished(std::size_t first, CoordinatorCommands& out) {
  for (std::size_t index = first; index < out.size(); ++index)
    if (const auto* finished = std::get_if<coordinator_command::FinishRun>(&out[index])) {
      const auto experiment = experiments_.find(finished->run);
      const RunMachine* run = experiment == experiments_.end() ? &runs_.at(finished->run) : nullptr;
      if (run != nullptr && run->definition().parent && !run->finished()) continue;  // A trial that goes on already.
      // Else nobody would tell it of anything any more.
      SGD_ASSERT(run == nullptr ? experiment->second.finished() : run->finished());
      live_.erase(finished->run);
      Ticket& ticket = tickets_.at(finished->run);
      ticket = {ticket.submission, {}, {}};
      note_touched(finished->run);
      if (is_needed(finished->run)) continue;  // It is forgotten with its experiment.
      (run != nullptr && run->definition().parent ? finished_trials_ : finished_).push_back(finished->run);
    }
  while (finished_.size() > settings_.finished_max) forget(RunId(finished_.front()), out);
  while (finished_trials_.size() > settings_.finished_trials_max) forget(RunId(finished_trials_.front()), out);
}

/// A node that still holds it is told kGone when it connects, as for any run that is not known; one that is
/// only cut off will not connect anew, so it is remembered what to tell it.
void Coordinator::forget(const RunId& run, CoordinatorCommands& out) {
  if (const auto machine = runs_.find(run); machine != runs_.end())
    for (auto& [id, node] : lost_)
      if (machine->second.has_touched(id)) node.forgotten[run] = machine->second.desired_generation();
  std::erase(finished_, run);
  std::erase(finished_trials_, run);
  tickets_.erase(run);
  for (auto& [id, ticket] : tickets_) ticket.passed_by.erase(run);
  runs_.erase(run);
  const bool was_experiment = experiments_.erase(run) > 0;
  out.push_back(coordinator_command::ForgetRun{run});
  if (was_experiment) forget_trials(run, out);
}

bool Coordinator::has_had_rank(const RunId& run, const NodeId& node) const {
  const auto known = runs_.find(run);
  return known != runs_.end() && known->second.has_touched(node);
}

Result<std::vector<coordinator_command::SendToAgent>> Coordinator::signal_orders(const RunId& run, int signal) const {
  if (experiments_.contains(run)) return Error{"an experiment has no worker of its own: name one of its trials"};
  const auto known = runs_.find(run);
  if (known == runs_.end()) return Error{"the run is over"};
  auto orders = known->second.signal_orders(signal);
  if (orders)
    for (coordinator_command::SendToAgent& order : orders.value()) order.link = link_of(order.node);
  return orders;
}

std::optional<TimePoint> Coordinator::next_wakeup() const {
  std::optional<TimePoint> next;
  const auto consider = [&next](TimePoint at) { next = next ? std::min(*next, at) : at; };
  if (!wakeups_.empty()) consider(wakeups_.begin()->first);
  if (!looks_.empty()) consider(looks_.begin()->first);
  if (offer_at_) consider(*offer_at_);
  for (const auto& [id, experiment] : experiments_)
    for (const auto at : {experiment.next_wakeup(), experiment.next_copy()})
      if (at) consider(*at);
  for (const NodeId& id : unstable_) {
    const auto node = nodes_.find(id);
    if (node != nodes_.end() && !node->second.is_closed) consider(*conditions_.at(id).unstable_until);
  }
  return next;
}

std::optional<RunSnapshot> Coordinator::snapshot(TimePoint now, const RunId& run, Ranks ranks) const {
  if (const auto experiment = experiments_.find(run); experiment != experiments_.end())
    return experiment->second.snapshot(now);
  const auto place = runs_.find(run);
  if (place == runs_.end()) return std::nullopt;
  return place->second.snapshot(now, ranks);
}

std::vector<RunId> Coordinator::runs() const {
  std::vector<RunId> ids;
  for (const auto& [id, run] : runs_) ids.push_back(id);
  for (const auto& [id, experiment] : experiments_) ids.push_back(id);
  const auto is_earlier = [this](const RunId& a, const RunId& b) {
    return tickets_.at(a).submission < tickets_.at(b).submission;
  };
  std::sort(ids.begin(), ids.end(), is_earlier);
  return ids;
}

}  // namespace sgd::core
