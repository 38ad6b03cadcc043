#include "launcher/coordinator/coordinator_shell.hpp"

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include "launcher/process/clock.hpp"

namespace sgd::coordinator {

CoordinatorShell::CoordinatorShell(boost::asio::io_context& io, core::CoordinatorSettings settings)
    : io_(io),
      settings_(settings),
      core_(settings),
      account_asks_(io),
      timer_(io),
      watch_timer_(io),
      self_(std::make_shared<CoordinatorShell*>(this)),
      files_(io) {}

void CoordinatorShell::add_agent(const NodeId& node, std::unique_ptr<net::CoordinatorLink> link) {
  if (is_held_) return;  // It is closed, and dials again.
  net::CoordinatorLink::Handlers handlers;
  const std::uint64_t number = ++links_;
  handlers.on_message = [this, node, number](cluster::FromAgent message) {
    if (!is_held_) on_agent(node, number, std::move(message));
  };
  handlers.on_closed = [this, node, number](const std::string& reason) { on_agent_closed(node, number, reason); };
  link->start(std::move(handlers));
  arriving_[number] = std::move(link);
}

/// A refusal stands in front of everything else, so that answers to a first message go where it came from.
void CoordinatorShell::on_agent(const NodeId& node, std::uint64_t number, cluster::FromAgent message) {
  auto arriving = arriving_.extract(number);
  const auto known = agents_.find(node);
  if (arriving.empty() && (known == agents_.end() || known->second.number != number)) return;
  if (const auto* answer = std::get_if<cluster::AccountAnswer>(&message); answer != nullptr && arriving.empty())
    return account_asks_.on_answer(node, *answer);
  core::CoordinatorCommands commands;
  core_.on(clock_.now(), core::coordinator_event::FromAgent{node, std::move(message)}, commands);
  const auto* refused =
      commands.empty() ? nullptr : std::get_if<core::coordinator_command::RefuseAgent>(&commands.front());
  if (!arriving.empty() && refused != nullptr) {
    if (on_refused) on_refused(node, refused->reason);
    turn_away(number, std::move(arriving.mapped()), refused->reason);
    return arm_timer();
  }
  // A former one of this node goes, without another word.
  if (!arriving.empty()) agents_[node] = {number, 0, std::move(arriving.mapped())};
  agents_[node].order_link = core_.link_of(node);
  follow(std::move(commands));
}

void CoordinatorShell::turn_away(std::uint64_t number, std::unique_ptr<net::CoordinatorLink> link,
                                 const std::string& reason) {
  if (turned_away_.size() >= kTurnedAwayMax) turned_away_.erase(turned_away_.begin());
  link->send(cluster::AgentRefused{reason});
  const auto limit = std::make_shared<net::Timer>(io_);
  turned_away_[number] = {std::move(link), limit};
  // Whoever has not read it by then will not.
  limit->after(kTurnedAwayLimit, [this, number] { turned_away_.erase(number); });
}

/// `node` by value: the caller's may go with the link.
void CoordinatorShell::on_agent_closed(NodeId node, std::uint64_t number, const std::string& reason) {
  if (arriving_.erase(number) > 0 || turned_away_.erase(number) > 0) return;
  const auto known = agents_.find(node);
  if (known == agents_.end() || known->second.number != number) return;
  if (on_link_lost) on_link_lost(node, reason);
  agents_.erase(known);
  on_event(core::coordinator_event::AgentClosed{std::move(node)});
}

std::string CoordinatorShell::order(const NodeId& node, const core::NodeOrder& order) {
  const std::string why_not = core_.why_not(node, order);
  if (why_not.empty()) on_event(core::coordinator_event::NodeOrdered{node, order});
  return why_not;
}

core::Explanation CoordinatorShell::explain(const core::RunDefinition& run) const {
  return core_.explain(clock_.now(), run);
}

void CoordinatorShell::ask_accounts(const std::vector<NodeId>& nodes, const core::RunDefinition& run,
                                    AccountAsks::Done done) {
  const auto tell = [this](const NodeId& node, const cluster::AccountAsk& ask) {
    if (const auto agent = agents_.find(node); agent != agents_.end()) agent->second.link->send(ask);
  };
  account_asks_.ask(nodes, {0, run.owner, run.may_be_root}, tell, std::move(done));
}

void CoordinatorShell::submit(core::RunDefinition run, std::unique_ptr<storage::RunDirectory> directory,
                              RunObserver observer, std::function<void(const Result<RunId>&)> on_accepted) {
  const auto accept = [this, &on_accepted](Result<RunId> result) {
    if (on_accepted) queue_.push([on_accepted, result = std::move(result)] { on_accepted(result); });
    drain();
  };
  if (const auto known = run_of_request(run.request_id)) return accept(*known);
  if (is_held_) return accept(Error{"the coordinator cannot write its state at the moment: try again later"});
  Run& entry = runs_[run.id];
  entry.row = row_of(run);
  entry.row.lines_before = directory->lines();
  live_[run.id] = &entry;
  entry.records = make_records(run.id, std::move(directory), std::move(observer));
  if (store_) access_.begin(run.id);
  const RunId id = run.id;
  on_event(core::coordinator_event::Submitted{std::move(run)});
  accept(id);
}

void CoordinatorShell::when_committed(std::function<void()> then) {
  queue_.push(std::move(then));
  drain();
}

/// Without a store the run is the process: what it records is written at once.
std::unique_ptr<RunRecords> CoordinatorShell::make_records(const RunId& run,
                                                           std::unique_ptr<storage::RunDirectory> directory,
                                                           RunObserver observer) {
  RunRecords::Disk disk;
  if (store_)
    disk = [this](std::function<void()> work, std::function<void()> done) {
      files_.run(std::move(work), std::move(done));
    };
  auto records = std::make_unique<RunRecords>(std::move(directory), std::move(observer), store_ != nullptr, disk);
  records->on_change = [this, run] {
    changed_.insert(run);
    settle_changed();
  };
  return records;
}

storage::StoredRun CoordinatorShell::row_of(const core::RunDefinition& run) {
  storage::StoredRun row;
  row.id = run.id;
  row.name = run.job.name;
  row.owner = run.owner;
  row.request_id = run.request_id;
  row.run_dir = run.run_dir;
  row.num_workers = run.job.num_workers;
  row.submitted_s = process::unix_seconds();
  return row;
}

std::optional<RunId> CoordinatorShell::run_of_request(const std::string& request_id) const {
  if (request_id.empty()) return std::nullopt;
  for (const auto& [id, run] : runs_)
    if (run.row.request_id == request_id) return id;
  return std::nullopt;
}

void CoordinatorShell::request_stop(const RunId& run, const core::StopRequest& request) {
  on_event(core::coordinator_event::StopRequested{run, request});
}

Status CoordinatorShell::pass_signal(const RunId& run, int signal) {
  const auto orders = core_.signal_orders(run, signal);
  if (!orders) return orders.error();
  for (const core::coordinator_command::SendToAgent& order : orders.value()) send(order);
  return {};
}

std::optional<core::RunSnapshot> CoordinatorShell::snapshot(const RunId& run, core::Ranks ranks) const {
  auto shot = core_.snapshot(clock_.now(), run, ranks);
  const auto live = live_.find(run);
  if (!shot || live == live_.end()) return shot;
  const Duration silent = live->second->records->unanswered_for(process::monotonic_now());
  if (silent >= RunRecords::kPatience)
    shot->reason = fmt::format("the state disk has not answered for {:.0f} s{}{}", to_seconds(silent),
                               shot->reason.empty() ? "" : "; ", shot->reason);
  return shot;
}

void CoordinatorShell::stop() {
  account_asks_.stop();
  timer_.cancel();
  watch_timer_.cancel();
}

void CoordinatorShell::on_event(const core::CoordinatorEvent& event) {
  core::CoordinatorCommands commands;
  core_.on(clock_.now(), event, commands);
  follow(std::move(commands));
}

/// Stores at once, carries out the rest in its turn. Of runs that go on the rows come first: a restart in between finds
/// runs that have ended, and says so again.
void CoordinatorShell::follow(core::CoordinatorCommands commands) {
  for (const core::CoordinatorCommand& command : commands)
    if (const auto* trial = std::get_if<core::coordinator_command::BeginTrial>(&command);
        trial && trial->run.past && store_)
      if (Run* run = find_whole(trial->run.id)) reopen_row(*run);
  for (core::CoordinatorCommand& command : commands) {
    if (const auto* stored = std::get_if<core::coordinator_command::Store>(&command)) {
      store(*stored);
    } else {
      queue_.push(std::move(command));
    }
  }
  arm_timer();
  drain();
}

/// What an observer asks for while it is told something comes behind what is in the queue. A start of ten thousand
/// ranks does not hold up who asks for something else: what a turn has left has a turn of its own, which messages that
/// come meanwhile do not take.
void CoordinatorShell::drain() {
  if (is_draining_ || drains_later_) return;
  is_draining_ = true;
  const TimePoint until = process::monotonic_now() + kTurn;
  while (const auto item = queue_.take()) {
    if (const auto* command = std::get_if<core::CoordinatorCommand>(&*item)) {
      carry_out(*command);
    } else {
      std::get<std::function<void()>> (*item)();
    }
    if (process::monotonic_now() >= until) break;
  }
  is_draining_ = false;
  if (queue_.is_ready()) drain_later();
  access_.flush([this](const RunId& run, std::function<Status()> write) {
    const auto live = live_.find(run);
    if (live == live_.end()) return;
    live->second->records->add(std::move(write), carried_out_);
    changed_.insert(run);
  });
  if (!store_) return;
  note_carried_out();
  settle_changed();
}

void CoordinatorShell::drain_later() {
  if (std::exchange(drains_later_, true)) return;
  boost::asio::post(io_, [self = std::weak_ptr<CoordinatorShell*>(self_)] {
    const auto shell = self.lock();
    if (!shell) return;
    (*shell)->drains_later_ = false;
    (*shell)->drain();
  });
}

void CoordinatorShell::carry_out(const core::CoordinatorCommand& command) {
  using namespace core::coordinator_command;
  if (const auto* send = std::get_if<SendToAgent>(&command)) {
    this->send(*send);
  } else if (const auto* shared = std::get_if<SendToAgents>(&command)) {
    net::SharedMessage message{shared->message};
    for (const NodeId& node : shared->nodes)
      if (const auto agent = agents_.find(node); agent != agents_.end()) agent->second.link->send(message);
  } else if (const auto* refused = std::get_if<RefuseAgent>(&command)) {
    agents_.erase(refused->node);
    if (on_refused) on_refused(refused->node, refused->reason);
  } else if (const auto* forgotten = std::get_if<ForgetRun>(&command)) {
    if (store_) return;  // Its row stays until the log is cut.
    live_.erase(forgotten->run);
    runs_.erase(forgotten->run);
  } else {
    record(command);
  }
}

/// Who gets a rank, or is to make ready for it, may touch the run's files from then on.
void CoordinatorShell::send(const core::coordinator_command::SendToAgent& order) {
  const auto* desired = std::get_if<cluster::DesiredRun>(&order.message);
  const bool starts =
      desired != nullptr && (desired->want == cluster::Want::kPrepare || desired->want == cluster::Want::kRun);
  const auto run = starts && store_ ? runs_.find(desired->run) : runs_.end();
  if (run != runs_.end()) {
    access_.admit(desired->run, run->second.row.run_dir, order.node);
  }
  // Without a link it is told with everything else when the node is back. While the order waited for the disk, it
  // or another agent of its name may have come anew.
  const auto agent = agents_.find(order.node);
  if (agent != agents_.end() && agent->second.order_link == order.link) agent->second.link->send(order.message);
}

bool CoordinatorShell::may_touch(const RunId& run, const NodeId& node) {
  const auto run_dir = directory_of(run);
  return run_dir && (core_.has_had_rank(run, node) || access_.may_touch(run, *run_dir, node));
}

std::set<NodeId> CoordinatorShell::nodes_of(const RunId& run) {
  const auto run_dir = directory_of(run);
  return run_dir ? access_.nodes_of(run, *run_dir) : std::set<NodeId>();
}

void CoordinatorShell::record(const core::CoordinatorCommand& command) {
  using namespace core::coordinator_command;
  // Nothing: it has ended, and is recorded already.
  const auto records_of = [this](const RunId& run) -> RunRecords* {
    const auto live = live_.find(run);
    if (live == live_.end()) return nullptr;
    if (store_) changed_.insert(run);
    return live->second->records.get();
  };
  if (const auto* event = std::get_if<RecordEvent>(&command)) {
    if (RunRecords* records = records_of(event->run)) records->event(event->event, carried_out_);
  } else if (const auto* metrics = std::get_if<RecordMetrics>(&command)) {
    if (RunRecords* records = records_of(metrics->run)) records->metrics(metrics->metrics, carried_out_);
  } else if (const auto* trial = std::get_if<BeginTrial>(&command)) {
    begin_trial(trial->run);
  } else if (const auto* take = std::get_if<TakeCheckpoint>(&command)) {
    if (RunRecords* records = records_of(take->run)) records->take_checkpoint(take->from, take->to);
  } else if (const auto* changed = std::get_if<ChangeJob>(&command)) {
    if (RunRecords* records = records_of(changed->run)) records->change_job(changed->job, carried_out_);
  } else if (const auto* best = std::get_if<RecordBest>(&command)) {
    if (RunRecords* records = records_of(best->run)) records->best(best->best, carried_out_);
  } else if (const auto* keep = std::get_if<KeepCheckpoints>(&command)) {
    if (RunRecords* records = records_of(keep->run)) records->keep_checkpoints(keep->paths);
  } else if (const auto* warning = std::get_if<Warn>(&command)) {
    if (RunRecords* records = records_of(warning->run)) records->warn(warning->message);
  } else if (const auto* finished = std::get_if<FinishRun>(&command)) {
    RunRecords* records = records_of(finished->run);
    if (records == nullptr || goes_on(finished->run)) return;
    Run& run = runs_.at(finished->run);
    run.row.finished_s = process::unix_seconds();
    run.row.wall_s = finished->outcome.wall_s;
    put_outcome(run.row, finished->outcome);
    records->finish(finished->outcome, carried_out_);
  }
}

/// A trial whose run has failed, and is begun again behind this command.
bool CoordinatorShell::goes_on(const RunId& run) const {
  const auto machine = core_.state().runs_.find(run);
  return machine != core_.state().runs_.end() && !machine->second.finished();
}

void CoordinatorShell::add_event(const RunId& run, const nlohmann::ordered_json& event) {
  SGD_ASSERT(!store_);  // Else the records that a restart makes would not be those in the file.
  if (const auto live = live_.find(run); live != live_.end()) live->second->records->event(event);
}

void CoordinatorShell::spare_checkpoints(const RunId& run, const std::vector<std::string>& paths) {
  SGD_ASSERT(!store_);  // A restart would not know of them.
  if (const auto live = live_.find(run); live != live_.end()) live->second->records->spare_checkpoints(paths);
}

void CoordinatorShell::put_outcome(storage::StoredRun& row, const core::RunOutcome& outcome) {
  row.state = outcome.state;
  row.exit_code = outcome.exit_code;
  row.summary = row_summary(storage::summary_of(row.id, outcome));
}

/// Where its records are not whole yet, the row is stored with them.
void CoordinatorShell::change_outcome(const RunId& id, const core::RunOutcome& outcome) {
  Run* run = find_whole(id);
  if (run == nullptr) return;
  put_outcome(run->row, outcome);
  if (run->records) return run->records->rewrite_summary(outcome);
  const Status written = storage::rewrite_summary(run->row.run_dir, id, outcome);
  if (store_) file(*run);
  if (written) shorten(id);  // Else the disk has no room for this, either: the row is what counts.
}

/// A heartbeat makes the next wake-up later, ten thousand times a second: the timer stays where it is, and looks again.
void CoordinatorShell::arm_timer() {
  const std::optional<TimePoint> next = is_held_ ? std::nullopt : core_.next_wakeup();
  if (next && armed_ && *armed_ <= *next) return;
  if (!next && !armed_) return;
  armed_ = next;
  timer_.cancel();
  if (!next) return;
  timer_.at(clock_.machine_time(*next), [this] {
    armed_.reset();
    const std::optional<TimePoint> due = is_held_ ? std::nullopt : core_.next_wakeup();
    if (!due || clock_.now() < *due) return arm_timer();
    on_event(core::coordinator_event::Tick{});
  });
}

}  // namespace sgd::coordinator
