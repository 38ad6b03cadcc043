#include "launcher/cli/local_run.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/json/lenient.hpp"
#include "launcher/cli/error_record.hpp"
#include "launcher/cli/local_node.hpp"
#include "launcher/cli/planned_steps.hpp"
#include "launcher/cli/program_files.hpp"
#include "launcher/cli/whole_fields.hpp"
#include "launcher/core/kept_checkpoints.hpp"
#include "launcher/core/process_rules.hpp"
#include "launcher/net/embedded_link.hpp"
#include "launcher/process/caught_signals.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/process/cpu_quota.hpp"
#include "launcher/process/cpu_set.hpp"
#include "launcher/storage/ahead_checkpoints.hpp"
#include "launcher/storage/run_succession.hpp"
#include "launcher/warm/warm_server.hpp"

namespace sgd::cli {
namespace {

constexpr auto kStatusInterval = std::chrono::milliseconds(100);
constexpr int kTicksPerPlainLine = 50;  // Without a terminal: a line every 5 s.

/// Says when an agent is told of a run: only then will it say that nothing of the run is left.
class WatchedLink : public net::CoordinatorLink {
 public:
  WatchedLink(std::unique_ptr<net::CoordinatorLink> link, std::function<void()> on_run)
      : link_(std::move(link)), on_run_(std::move(on_run)) {}

  void start(Handlers handlers) override { link_->start(std::move(handlers)); }
  void send(cluster::ToAgent message) override {
    if (std::holds_alternative<cluster::DesiredRun>(message)) on_run_();
    link_->send(std::move(message));
  }
  void send(net::SharedMessage& message) override { link_->send(message); }

 private:
  std::unique_ptr<net::CoordinatorLink> link_;
  std::function<void()> on_run_;
};

/// One line, however many there are; the newest is the first of them.
std::string ahead_warning(const storage::RunHistory& history, const std::string& run_dir) {
  const std::vector<std::string>& ahead = history.ahead;
  const auto newest = core::step_of(ahead.front()).value_or(0);
  const auto oldest = core::step_of(ahead.back()).value_or(0);
  const bool is_one = ahead.size() == 1;
  const std::string what =
      is_one ? fmt::format("a newer checkpoint (step {}) is of an epoch", newest)
             : fmt::format("{} newer checkpoints (steps {} to {}) are of epochs", ahead.size(), oldest, newest);
  return fmt::format(
      "{} that metrics.jsonl has no line of: going on from step {}; until the run has passed {} in {}/{}/{}/ "
      "(sgd-launch validate CHECKPOINT measures one)",
      what, history.newest.step, is_one ? "it, it stays" : "them, they stay", run_dir, checkpoint::kDirectory,
      storage::kAheadFolder);
}

}  // namespace

LocalRun::LocalRun(const RunOptions& options, job::JobSpec job, storage::RunPlace place,
                   std::optional<storage::RunHistory> history, std::optional<storage::RunOrigin> origin)
    : options_(options),
      job_(std::move(job)),
      place_(std::move(place)),
      history_(std::move(history)),
      origin_(std::move(origin)),
      shown_dir_(as_typed(place_.directory)),
      console_(io_, detect_style(options.no_color, options.quiet)),
      ranks_(io_, console_, line_style(options_, job_, console_), [this](Rank rank) { return local_rank(rank); }),
      steps_planned_(planned_steps(job_)),
      callbacks_(io_, console_, job_, options_.is_json),
      coordinator_(io_),
      control_(io_, [this](const nlohmann::json& request) { return answer(request); }),
      signals_(io_),
      status_timer_(io_),
      timeout_(io_) {
  process::catch_signals(signals_, {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH});
}

int LocalRun::run() {
  const Status prepared = prepare();
  if (!prepared) {
    console_.complain("error", prepared.error().message);
    return exit_code::kUsage;
  }
  print_beginning();
  wait_signal();
  tick_status();
  if (options_.timeout) {
    timeout_.after(*options_.timeout, [this] {
      coordinator_.request_stop(place_.id, {core::StopRequest::Why::kTimeout, 0, false, std::nullopt});
    });
  }
  submit();
  if (options_.lifeline) {
    // As if the terminal had been closed. A signal that has ended its other end, too, is no second request.
    lifeline_.emplace(io_, *options_.lifeline, [this] {
      if (signals_seen_ == 0) on_signal(SIGHUP);
    });
  }
  io_.run();
  return outcome_ ? outcome_->exit_code : exit_code::kFailed;
}

void LocalRun::print_beginning() {
  std::string from;
  if (origin_)
    from = fmt::format("begins with step {} of {}; ", origin_->history.newest.step, as_typed(origin_->checkpoint));
  if (history_ && job_.training && history_->past.checkpoints.empty())
    from = "no checkpoint to continue from, training starts from the beginning; ";
  else if (history_ && job_.training)
    from = fmt::format("goes on from step {}; ", history_->newest.step);
  else if (history_)
    from = "started again; ";
  console_.narrate(fmt::format("sgd-launch: run {}: {}{} worker{} on this machine, files in {}", place_.id, from,
                               job_.num_workers, job_.num_workers == 1 ? "" : "s", shown_dir_));
  const int cores = static_cast<int>(process::allowed_cores().size());
  const int wanted = job_.num_workers * job_.per_worker.cpus;
  if (wanted > cores)
    console_.complain("warning", fmt::format("{} workers of {} cpu on {} cores: their shares overlap", job_.num_workers,
                                             job_.per_worker.cpus, cores));
  else if (const auto quota = process::cpu_quota(); quota && wanted > *quota)
    console_.complain("warning",
                      fmt::format("{} worker{} of {} cpu within a quota of {:.3g} CPUs (control group): the kernel "
                                  "holds up {} steps",
                                  job_.num_workers, job_.num_workers == 1 ? "" : "s", job_.per_worker.cpus, *quota,
                                  job_.num_workers == 1 ? "its" : "their"));
}

void LocalRun::submit() {
  core::RunDefinition definition;
  definition.id = place_.id;
  definition.job = job_;
  definition.run_dir = directory_->path();
  definition.placement_timeout = job_.placement_timeout;
  definition.priority = job_.priority;
  definition.past = past_;
  LocalCallbacks::Run run{place_.id, definition.run_dir, {}, {}};
  run.record = [this](const nlohmann::ordered_json& event) { coordinator_.add_event(place_.id, event); };
  run.spare = [this](const std::vector<std::string>& paths) { coordinator_.spare_checkpoints(place_.id, paths); };
  coordinator_.submit(std::move(definition), std::move(directory_), observer());
  callbacks_.begin(run);
}

/// Everything that can fail before a process is started.
Status LocalRun::prepare() {
  if (const Status begun = begin_locally(); !begun) return begun;
  const auto base = process::runtime_base();
  if (!base) return base.error();
  (void)process::remove_dead_runtime_dirs(base.value());
  auto runtime = process::RuntimeDir::create(base.value());
  if (!runtime) return runtime.error();
  runtime_.emplace(std::move(runtime).value());
  if (std::error_code error; std::filesystem::exists(warm::socket_in(base.value()), error))
    spares_ = warm::socket_in(base.value());
  const Status control = control_.listen(runtime_->file("control.sock"));
  if (!control) return control;
  const Status opened = open_directory();
  if (!opened) return opened;
  for (int index = 0; index < options_.local_nodes; ++index) {
    const Status started = start_node(index);
    if (!started) return started;
  }
  return {};
}

Status LocalRun::open_directory() {
  auto directory = history_ ? storage::RunDirectory::reopen(place_, *job_.resolved, *history_)
                            : storage::RunDirectory::create(place_, *job_.resolved);
  if (!directory) return directory.error();
  directory_ = std::move(directory).value();
  const Status linked = directory_->link_control_socket(runtime_->file("control.sock"));
  if (!linked) console_.complain("warning", linked.error().message + "; status and stop will not find this run");
  if (origin_) return begin_from_origin();
  if (!history_) return {};
  past_ = history_->past;
  return record_resumption();
}

Status LocalRun::begin_from_origin() {
  for (const storage::DamagedCheckpoint& damaged : origin_->history.damaged)
    console_.complain("warning", fmt::format("resume_from: {} is left out: {}", damaged.path, damaged.reason));
  auto past = storage::begin_from(*origin_, *directory_);
  if (!past) return past.error();
  past_ = std::move(past).value();
  return {};
}

/// What was found in the folder: the first lines of the run's new life, and warnings.
Status LocalRun::record_resumption() {
  for (const storage::LinesEnd* end : {&history_->events_end, &history_->metrics_end})
    if (end->whole_bytes != end->bytes)
      console_.complain("warning", fmt::format("{}/{}: its last line was cut short; {} bytes are removed", shown_dir_,
                                               end->file, end->bytes - end->whole_bytes));
  if (!history_->ahead.empty()) console_.complain("warning", ahead_warning(*history_, shown_dir_));
  for (const storage::DamagedCheckpoint& damaged : history_->damaged)
    console_.complain("warning",
                      fmt::format("checkpoint {}/{} is left out: {}", shown_dir_, damaged.path, damaged.reason));
  return storage::record_resumption(*directory_, *history_);
}

Status LocalRun::start_node(int index) {
  core::AgentFacts facts = local_facts(job_, {index, options_.local_nodes, options_.slots.value_or(job_.num_workers)});
  net::EmbeddedLink link = net::make_embedded_link(io_);
  const NodeId id = facts.node;
  coordinator_.add_agent(
      id, std::make_unique<WatchedLink>(std::move(link.coordinator), [this, id] { holders_.insert(id); }));
  agent::AgentObserver watcher;
  const auto place = static_cast<std::size_t>(index);
  watcher.on_output = [this, place](const agent::Output& output) { on_output(place, output); };
  watcher.on_warning = [this](const std::string& message) { console_.complain("warning", message); };
  watcher.on_run_gone = [this, id](const RunId&, bool) { on_run_gone(id); };
  LocalNode node{id, facts.slots, nullptr};
  node.agent = std::make_unique<agent::AgentShell>(io_, std::move(facts), runtime_->file(fmt::format("{}-", index)),
                                                   own_program(), std::move(link.agent), std::move(watcher));
  if (auto input = input_for_ranks(); input) node.agent->give_input(std::move(input));
  if (!spares_.empty()) node.agent->use_spares(spares_);
  nodes_.push_back(std::move(node));
  return nodes_.back().agent->start();
}

coordinator::RunObserver LocalRun::observer() {
  coordinator::RunObserver observer;
  observer.on_event = [this](const nlohmann::ordered_json& event) {
    const std::string line = narrate_event(event);
    if (!line.empty()) console_.narrate("sgd-launch: " + line, is_trouble(event));
    if (read_or(event, "event", "") == "failure") failed_at_s_ = process::unix_seconds();
    callbacks_.on_event(event);
  };
  observer.on_metrics = [this](const nlohmann::ordered_json& metrics) {
    const int epochs = job_.training ? job_.training->epochs : 0;
    const std::string line = options_.is_json ? metrics.dump() : epoch_line(metrics, epochs);
    if (!line.empty()) console_.result(line);
    callbacks_.on_metrics(metrics);
  };
  observer.on_warning = [this](const std::string& message) { console_.complain("warning", message); };
  observer.on_finished = [this](const core::RunOutcome& outcome) { on_finished(outcome); };
  return observer;
}

void LocalRun::on_finished(const core::RunOutcome& outcome) {
  outcome_ = outcome;
  end_if_done();
}

void LocalRun::on_run_gone(const NodeId& node) {
  ranks_.flush();
  holders_.erase(node);
  end_if_done();
}

void LocalRun::end_if_done() {
  if (!outcome_ || !holders_.empty() || std::exchange(is_ending_, true)) return;
  console_.status("");
  callbacks_.end(outcome_->state == "succeeded", [this] { end(); });
}

void LocalRun::end() {
  if (std::exchange(is_over_, true)) return;
  console_.when_drained([this] {
    console_.status("");
    tell_end();
    close();
  });
}

void LocalRun::tell_end() {
  if (outcome_->state == "succeeded" || outcome_->state == "interrupted" || outcome_->state == "cancelled" ||
      outcome_->state == "timed_out") {
    console_.narrate("sgd-launch: " + end_block(*outcome_, shown_dir_, shown_dir_, *job_.resolved),
                     outcome_->state != "succeeded");
    return;
  }
  console_.block(failure_block(*outcome_, shown_dir_, shown_dir_, console_.style().color, failed_at_s_));
  const char* file = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (file == nullptr || *file == '\0') return;
  if (const Status told = write_error_record(file, *outcome_, failed_at_s_); !told)
    console_.complain("warning", told.error().message);
}

void LocalRun::close() {
  for (LocalNode& node : nodes_) node.agent->stop();
  coordinator_.stop();
  control_.stop();
  signals_.cancel();
  status_timer_.cancel();
  ranks_.stop();
  timeout_.cancel();
  lifeline_.reset();
  io_.stop();  // Idle control clients are all that could still wait here.
}

/// Nothing is waited for any more, neither agents nor callbacks.
void LocalRun::leave() {
  if (is_over_) return close();
  is_ending_ = true;
  end();
}

void LocalRun::wait_signal() {
  signals_.async_wait([this](const boost::system::error_code& error, int signal) {
    if (error) return;
    on_signal(signal);
    wait_signal();
  });
}

void LocalRun::on_signal(int signal) {
  if (signal == SIGUSR1 || signal == SIGUSR2 || signal == SIGWINCH) return pass_signal(signal);
  ++signals_seen_;
  const bool is_kill = signal == SIGQUIT && !core::passes_signal(job_.resolved, signal);
  const bool at_once = signals_seen_ > 1 || is_kill;
  // Whoever asks twice, or when all is over, does not wait for a stdout that nobody reads.
  if (at_once || outcome_) console_.give_up();
  if (is_ending_) callbacks_.give_up();
  if (outcome_) {
    if (std::exchange(is_hurried_, true)) leave();
    return;
  }
  if (!at_once)
    console_.narrate(fmt::format("sgd-launch: signal {}: stopping{}, at most {}; once more to kill",
                                 core::signal_words(signal), job_.training ? " with a checkpoint" : "",
                                 format_duration(job_.stop.grace)));
  coordinator_.request_stop(place_.id, {core::StopRequest::Why::kSignal, signal, at_once, std::nullopt});
}

/// Of which the run's own steps begin.
std::int64_t LocalRun::step_before() const {
  if (origin_) return origin_->history.newest.step;
  return history_ ? history_->newest.step : 0;
}

void LocalRun::tick_status() {
  const auto shot = coordinator_.snapshot(place_.id);
  if (shot && !outcome_) {
    const std::string line = status_line(*shot, steps_planned_, step_before());
    console_.status(whole_fields(line));
    has_begun_ = has_begun_ || shot->phase != core::RunPhase::kPlacing;
    if (const std::string wait = waits_.line(*shot); !wait.empty()) console_.narrate("sgd-launch: " + wait, true);
    const bool is_plain = !console_.style().is_terminal && job_.training && has_begun_;
    if (is_plain && ++status_ticks_ % kTicksPerPlainLine == 0) console_.narrate("sgd-launch: " + line);
  }
  // Without anything to show there is no reason to wake up.
  if (!console_.style().is_terminal && !job_.training && (has_begun_ || outcome_)) return;
  status_timer_.after(kStatusInterval, [this] { tick_status(); });
}

}  // namespace sgd::cli
