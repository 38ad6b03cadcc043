// CoordinatorShell with a store: what a start makes of stored events, what a commit lets go on, and when the log is
// cut.

#include <algorithm>

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include "common/checkpoint/scan.hpp"
#include "launcher/coordinator/coordinator_shell.hpp"
#include "launcher/process/clock.hpp"

namespace sgd::coordinator {

struct CoordinatorShell::Replay {
  TimePoint last;  ///< Of the newest event.
};

Status CoordinatorShell::open_store(const std::string& folder, StoreObserver observer) {
  auto store = storage::EventStore::open(folder);
  if (!store) return store.error();
  store_ = std::move(store).value();
  store_observer_ = std::move(observer);
  return {};
}

Status CoordinatorShell::restore(const ObserverOf& observer_of) {
  observer_of_ = observer_of;
  auto rows = store_->load_runs();
  if (!rows) return rows.error();
  for (storage::StoredRun& row : rows.value()) {
    const RunId id = row.id;
    runs_[id].row = std::move(row);
  }
  Replay state{TimePoint{}};
  is_replaying_ = true;
  if (const Status restored = restore_state(state); !restored) return restored;
  const Status loaded = store_->load([&](TimePoint at, core::CoordinatorEvent&& event) { replay(at, event, state); });
  if (!loaded) return loaded;
  storage::StoreTables& tables = store_->tables();
  const auto former = tables.clock_offset();
  if (!former) return former.error();
  const bool is_new = store_->last_event() == 0;
  const Duration offset = is_new ? Duration{0} : clock_offset(process::monotonic_now(), state.last, former.value());
  clock_ = CoreClock(offset);
  if (const Status kept = tables.keep_clock_offset(offset); !kept && store_observer_.on_trouble)
    store_observer_.on_trouble(kept.error().message +
                               ": what this coordinator is told waits, and is not kept until there is room");
  is_replaying_ = false;
  if (const Status started = start_store(); !started) return started;
  check_lines();
  carried_out_ = store_->last_event();
  settle_changed();
  if (!is_new) on_event(core::coordinator_event::Restarted{});
  if (!is_new && settings_.files_travel) look_for_checkpoints();
  for (auto run = runs_.begin(); run != runs_.end();) {
    const RunId id = (run++)->first;  // Its place may go.
    shorten(id);
  }
  return {};
}

/// That had come, and what was told of them was lost with the former process: their nodes do not send them again.
void CoordinatorShell::look_for_checkpoints() {
  for (const auto& [id, run] : live_) {
    const std::string folder = run->row.run_dir + "/" + checkpoint::kDirectory;
    auto found = checkpoint::list_checkpoints(folder, checkpoint::Proof::kSizes);
    if (!found) continue;  // They come again when their nodes ask what is here.
    std::reverse(found.value().begin(), found.value().end());
    for (const checkpoint::Found& one : found.value())
      if (one.damage.empty()) checkpoint_stored(id, one.path.substr(run->row.run_dir.size() + 1));
  }
}

/// The machine as it was at the last cut of the log; the lines before that are in the files.
Status CoordinatorShell::restore_state(Replay& replay) {
  const auto cut = store_->tables().load_cut();
  if (!cut) return cut.error();
  auto state = store_->load_state();
  if (!state) return state.error();
  replay.last = cut.value().at;
  core_ = core::Coordinator(settings_, std::move(state).value());
  for (const auto& [id, machine] : core_.state().runs_) adopt(machine.definition());
  for (const auto& [id, experiment] : core_.state().experiments_) adopt(experiment.definition());
  core::CoordinatorCommands open;
  core_.tell_open(open);
  redo(open);
  return {};
}

/// Records are made again, and skipped as far as they are written; what was sent is told again when nodes connect.
void CoordinatorShell::replay(TimePoint at, const core::CoordinatorEvent& event, Replay& replay) {
  replay.last = at;
  if (const auto* submitted = std::get_if<core::coordinator_event::Submitted>(&event)) adopt(submitted->run);
  if (const auto* resumed = std::get_if<core::coordinator_event::ExperimentResumed>(&event)) redo_resumption(*resumed);
  core::CoordinatorCommands commands;
  core_.replay(at, event, commands);
  redo(commands);
}

void CoordinatorShell::redo(const core::CoordinatorCommands& commands) {
  for (const core::CoordinatorCommand& command : commands)
    if (!std::holds_alternative<core::coordinator_command::Warn>(command))
      record(command);  // What is no record is left out there.
}

/// Its row is gone: it has been removed, with its folder, behind the event that is replayed. A trial's own row may only
/// be late, and goes with that of its experiment.
bool CoordinatorShell::is_removed(const core::RunDefinition& definition) const {
  return is_replaying_ && !runs_.contains(definition.parent.value_or(definition.id));
}

void CoordinatorShell::adopt(const core::RunDefinition& definition) {
  if (is_removed(definition)) return;
  Run& run = runs_[definition.id];
  if (run.row.is_finished()) return;
  if (run.row.id.empty()) run.row = row_of(definition);
  storage::LineCounts& before = run.row.lines_before;
  auto directory = storage::RunDirectory::adopt({definition.id, definition.run_dir}, *definition.job.resolved, before);
  const std::string trouble = directory ? "" : directory.error().message;
  storage::LineCounts there = before;
  if (directory) there = directory.value()->lines();
  if (there.events < before.events ||
      there.metrics < before.metrics) {  // Somebody has taken lines of an earlier life away.
    before = {std::min(before.events, there.events), std::min(before.metrics, there.metrics)};
    wait_for(store_->put(run.row));
  }
  run.records =
      make_records(definition.id, directory ? std::move(directory).value() : nullptr, observer_of_(definition));
  live_[definition.id] = &run;
  run.records->skip({there.events - before.events, there.metrics - before.metrics});
  if (!trouble.empty()) run.records->warn(trouble + "; the run goes on, and nothing is written before the next start");
}

/// Nobody submits it: its experiment has decided so, and decides it again when this process is started anew.
void CoordinatorShell::begin_trial(const core::RunDefinition& definition) {
  if (is_removed(definition)) return;
  const Run* known = find_whole(definition.id);
  const bool is_new = known == nullptr;
  const bool is_live_again = live_.contains(definition.id);
  if (!is_new && !is_live_again && is_replaying_ && known->row.is_finished()) return;  // All of it is written.
  if (definition.past) return begin_again(definition);
  adopt(definition);
  if (!is_new) return;
  access_.begin(definition.id);
  wait_for(store_->put(runs_.at(definition.id).row));  // Behind its event, and so in front of a cut after it.
}

/// A run that has ended lives once more, in its folder. The lines before stay those of its stored events, so that a
/// replay makes and skips them all.
void CoordinatorShell::begin_again(const core::RunDefinition& definition) {
  Run& run = runs_[definition.id];
  reopen_row(run);
  if (!run.records) {
    adopt(definition);
    if (!is_replaying_) (void)run.records->end_skipping();  // What comes from here on is new.
  }
  run.records->begin_again(carried_out_);
}

void CoordinatorShell::reopen_row(Run& run) {
  if (run.row.state.empty() && !run.row.is_finished()) return;
  unsettled_.erase(run.row.id);
  run.row.state.clear();
  run.row.summary.clear();
  run.row.finished_s = 0;
  run.row.exit_code = 0;
  if (!is_replaying_) wait_for(store_->put(run.row));
}

/// It is about to change. Null: it is not known.
CoordinatorShell::Run* CoordinatorShell::find_whole(const RunId& id) {
  if (const auto known = runs_.find(id); known != runs_.end()) return &known->second;
  auto row = ended_trial(id);
  if (!row) return nullptr;
  ended_trials_.remove(id);
  Run& run = runs_[id];
  run.row = *std::move(row);
  return &run;
}

/// Of a trial that has ended little is kept.
void CoordinatorShell::shorten(const RunId& id) {
  const auto trial = runs_.find(id);
  const auto experiment = runs_.find(experiment_of(id));
  if (trial == runs_.end() || experiment == runs_.end()) return;
  if (trial->second.records || !trial->second.row.is_finished()) return;
  if (!ended_trials_.add(trial->second.row, experiment->second.row)) return;
  access_.forget(id);
  runs_.erase(trial);
}

/// The row first: a restart in between finds what has ended, and says so again. Those of trials are opened when they
/// begin: one of which nothing is left to do does not.
Status CoordinatorShell::resume_experiment(const RunId& experiment, std::int64_t samples) {
  const auto known = core_.state().experiments_.find(experiment);
  if (known == core_.state().experiments_.end()) return Error{fmt::format("no experiment {} here", experiment)};
  if (const std::string why = known->second.why_not_resumed(samples); !why.empty()) return Error{why};
  if (known->second.finished()) begin_again(known->second.definition());
  on_event(core::coordinator_event::ExperimentResumed{experiment, samples});
  return {};
}

/// One whose row says that it has ended has done so after this, too, and all of it is written.
void CoordinatorShell::redo_resumption(const core::coordinator_event::ExperimentResumed& resumed) {
  const auto known = core_.state().experiments_.find(resumed.run);
  if (known == core_.state().experiments_.end() || !known->second.finished() || !live_.contains(resumed.run)) return;
  begin_again(known->second.definition());
}

void CoordinatorShell::search_said(const RunId& experiment, const std::string& line) {
  on_event(core::coordinator_event::SearchSaid{experiment, line});
}

void CoordinatorShell::search_failed(const RunId& experiment, const std::string& why) {
  on_event(core::coordinator_event::SearchFailed{experiment, why});
}

void CoordinatorShell::checkpoint_stored(const RunId& run, const std::string& path) {
  on_event(core::coordinator_event::CheckpointStored{run, path});
}

std::vector<core::RunDefinition> CoordinatorShell::experiments() const {
  std::vector<core::RunDefinition> found;
  for (const auto& [id, machine] : core_.state().experiments_) found.push_back(machine.definition());
  return found;
}

/// Lines that no stored event has made can only come from a state folder that was put back from a copy.
void CoordinatorShell::check_lines() {
  for (const auto& [id, entry] : live_) {
    Run& run = *entry;
    const storage::LineCounts extra = run.records->end_skipping();
    if (extra.events == 0 && extra.metrics == 0) continue;
    run.records->warn(
        fmt::format("{} has {} events and {} metrics that the coordinator's state knows nothing of; they stay",
                    run.row.run_dir, extra.events, extra.metrics));
    run.row.lines_before.events += extra.events;
    run.row.lines_before.metrics += extra.metrics;
    if (!run.row.is_finished()) wait_for(store_->put(run.row));
  }
}

Status CoordinatorShell::start_store() {
  const auto post = [this](auto what) {
    boost::asio::post(io_, [what, self = std::weak_ptr<CoordinatorShell*>(self_)] {
      if (const auto shell = self.lock()) what(**shell);
    });
  };
  storage::EventStore::Handlers handlers;
  handlers.on_committed = [post](BarrierQueue::Ticket up_to) {
    post([up_to](CoordinatorShell& shell) { shell.on_committed(up_to); });
  };
  handlers.on_trouble = [post](const std::string& message) {
    post([message](CoordinatorShell& shell) {
      if (shell.store_observer_.on_trouble) shell.store_observer_.on_trouble(message);
    });
  };
  handlers.on_recovered = [post] {
    post([](CoordinatorShell& shell) {
      if (shell.store_observer_.on_recovered) shell.store_observer_.on_recovered();
    });
  };
  handlers.on_cut = [post](Result<std::shared_ptr<const storage::StateCut>> cut) {
    post([cut = std::move(cut)](CoordinatorShell& shell) { shell.on_cut(cut); });
  };
  if (store_observer_.on_commit)
    handlers.on_timed = [post](Duration took) {
      post([took](CoordinatorShell& shell) { shell.store_observer_.on_commit(took); });
    };
  return store_->start(std::move(handlers));
}

void CoordinatorShell::store(const core::coordinator_command::Store& event) {
  if (!store_) return;
  const auto* submitted = std::get_if<core::coordinator_event::Submitted>(&event.event);
  const auto row = submitted ? std::optional(runs_.at(submitted->run.id).row) : std::nullopt;
  const BarrierQueue::Ticket ticket = store_->append(event.at, event.event, row);
  queue_.stored(ticket);
  open_events_.emplace_back(ticket, store_->last_event());
  wait_for(ticket);
  if (!is_held_ && store_->is_full()) hold();
}

/// The loop does not end before the ticket is committed.
void CoordinatorShell::wait_for(BarrierQueue::Ticket ticket) {
  last_ticket_ = ticket;
  if (!uncommitted_) uncommitted_.emplace(io_.get_executor());
}

/// Nor before the row is.
void CoordinatorShell::file(const Run& run) {
  unsettled_.erase(run.row.id);
  store_->file(run.row);
  if (!uncommitted_) uncommitted_.emplace(io_.get_executor());
}

/// Its records go, and with them the files that they hold open: nodes that have gone may be waited for.
void CoordinatorShell::file_when_settled(const Run& run) {
  if (const auto after = run.records->unsettled_after())
    unsettled_[run.row.id] = *after;
  else
    file(run);
}

/// Where its lines are not all written it is filed with the last of them.
void CoordinatorShell::settle(const RunId& id) {
  if (const auto live = live_.find(id); live != live_.end()) return live->second->records->settle();
  if (!unsettled_.contains(id)) return;
  file(runs_.at(id));
  shorten(id);
  cut_if_long();
}

bool CoordinatorShell::is_committed() const {
  return committed_ >= last_ticket_ && (!store_ || !store_->is_filing());
}

void CoordinatorShell::on_committed(BarrierQueue::Ticket up_to) {
  committed_ = up_to;
  queue_.committed(up_to);
  if (is_committed()) uncommitted_.reset();
  if (is_held_ && store_->has_room()) {
    is_held_ = false;
    arm_timer();
  }
  drain();
}

/// Agents are sent away: they keep what is not acknowledged, and what they say now would be lost anyway.
void CoordinatorShell::hold() {
  is_held_ = true;
  if (store_observer_.on_trouble)
    store_observer_.on_trouble(
        "too many events wait to be committed: agents and submissions are refused until that is done");
  // Later: the event in work may have come over one of these links.
  boost::asio::post(io_, [self = std::weak_ptr<CoordinatorShell*>(self_)] {
    const auto shell = self.lock();
    if (!shell) return;
    (*shell)->agents_.clear();
    (*shell)->arriving_.clear();
    (*shell)->turned_away_.clear();
  });
}

/// The row of an ended run says that all of it is written, and has come from its nodes: a restart says nothing of it
/// any more. Ten thousand nodes say a word a second: a look at all live runs for each of them would be most of what
/// there is to do.
void CoordinatorShell::settle_changed() {
  for (const RunId& id : std::exchange(changed_, {})) {
    const auto entry = live_.find(id);
    if (entry == live_.end()) continue;
    Run& run = *entry->second;
    if (run.records->written_up_to() && !is_watching_) watch_records();
    if (!run.records->is_complete()) continue;
    file_when_settled(run);
    run.records.reset();
    live_.erase(entry);
    if (!unsettled_.contains(id)) shorten(id);
  }
  cut_if_long();
}

/// As long as something is to be written.
void CoordinatorShell::watch_records() {
  is_watching_ = true;
  watch_timer_.after(kLookAtRecords, [this] {
    is_watching_ = false;
    for (const auto& [id, run] : live_) {
      run->records->watch(process::monotonic_now());
      if (run->records->waits()) run->records->retry();
      if (run->records->written_up_to()) changed_.insert(id);
    }
    settle_changed();
  });
}

void CoordinatorShell::note_carried_out() {
  const BarrierQueue::Ticket done = queue_.done_up_to();
  for (; !open_events_.empty() && open_events_.front().first <= done; open_events_.pop_front())
    carried_out_ = open_events_.front().second;
}

/// A line that is not in its file can only be made of its event, and so can the end of a run that is not settled, which
/// takes FileCompletion::kLimit at most. Who is not patient gives up the lines of runs that cannot be written.
std::uint64_t CoordinatorShell::recorded_up_to(bool is_patient) const {
  std::uint64_t up_to = carried_out_;
  const TimePoint now = process::monotonic_now();
  for (const auto& [id, run] : live_) {
    const RunRecords& records = *run->records;
    const bool is_stuck =
        records.waits() || records.leaves_out() || records.unanswered_for(now) >= RunRecords::kPatience;
    if (is_stuck && !is_patient) continue;
    if (records.leaves_out()) return 0;
    up_to = std::min(up_to, records.written_up_to().value_or(up_to));
    up_to = std::min(up_to, records.unsettled_after().value_or(up_to));
  }
  for (const auto& [id, after] : unsettled_) up_to = std::min(up_to, after);
  return up_to;
}

/// A cut that takes less than half of the log is not worth its price yet.
void CoordinatorShell::cut_if_long() {
  const std::uint64_t events = store_->events();
  const std::uint64_t most = live_.empty() ? cut_after.idle_events : cut_after.events;
  if (is_cutting_ || (events <= most && store_->bytes() <= cut_after.bytes) || events < cut_again_at_) return;
  const bool is_patient = events <= kPatience * cut_after.events && store_->bytes() <= kPatience * cut_after.bytes;
  const std::uint64_t up_to = recorded_up_to(is_patient);
  const std::uint64_t before = store_->last_event() - events;
  if (up_to <= before || 2 * (up_to - before) < events) return;
  is_cutting_ = true;
  store_->compact(up_to, settings_);
}

void CoordinatorShell::on_cut(const Result<std::shared_ptr<const storage::StateCut>>& cut) {
  is_cutting_ = false;
  if (!cut) {
    cut_again_at_ = 2 * store_->events();
    if (store_observer_.on_trouble) store_observer_.on_trouble("the log cannot be cut: " + cut.error().message);
    return;
  }
  cut_again_at_ = 0;
  store_->begin_behind(*cut.value());
  for (const auto& [id, lines] : cut.value()->lines) {
    ended_trials_.add_lines(id, lines);
    const auto run = runs_.find(id);
    if (run == runs_.end()) continue;
    run->second.row.lines_before.events += lines.events;
    run->second.row.lines_before.metrics += lines.metrics;
  }
}

void CoordinatorShell::forget_run(const RunId& id) {
  if (live_.contains(id) || (runs_.erase(id) == 0 && !ended_trials_.remove(id))) return;
  unsettled_.erase(id);
  for (const RunId& trial : ended_trials_.of(id)) forget_run(trial);
  for (auto trial = runs_.lower_bound(id + "."); trial != runs_.end() && trial->first.starts_with(id + ".");) {
    const RunId its = (trial++)->first;
    forget_run(its);
  }
  if (store_) wait_for(store_->drop(id));
  const core::Coordinator::State& known = core_.state();
  if (known.runs_.contains(id) || known.experiments_.contains(id)) on_event(core::coordinator_event::RunForgotten{id});
}

bool CoordinatorShell::is_idle() const {
  return live_.empty() && unsettled_.empty() && queue_.empty() && is_committed() && !is_cutting_;
}

}  // namespace sgd::coordinator
