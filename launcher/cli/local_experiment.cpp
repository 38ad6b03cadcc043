#include "launcher/cli/local_experiment.hpp"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/json/json_file.hpp"
#include "common/json/lenient.hpp"
#include "launcher/cli/json_lines.hpp"
#include "launcher/cli/local_node.hpp"
#include "launcher/cli/narrator.hpp"
#include "launcher/cli/program_files.hpp"
#include "launcher/cli/tune_views.hpp"
#include "launcher/core/claims.hpp"
#include "launcher/core/failure.hpp"
#include "launcher/core/stop_request.hpp"
#include "launcher/net/embedded_link.hpp"
#include "launcher/process/caught_signals.hpp"
#include "launcher/process/cpu_quota.hpp"

namespace sgd::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr auto kRedraw = std::chrono::milliseconds(200);
constexpr auto kLookForWaits = std::chrono::milliseconds(500);  // Without a terminal.
constexpr auto kLookForEnd = std::chrono::milliseconds(5);
constexpr std::size_t kRowsLive = 12;
constexpr std::size_t kRowsAtEnd = 24;

}  // namespace

LocalExperiment::LocalExperiment(const RunOptions& options, core::RunDefinition experiment)
    : options_(options),
      experiment_(std::move(experiment)),
      shown_dir_(as_typed(experiment_.run_dir)),
      console_(io_, detect_style(options.no_color, options.quiet)),
      table_(kRowsAtEnd),
      coordinator_(io_),
      control_(io_, [this](const nlohmann::json& request) { return answer(request); }),
      signals_(io_),
      status_timer_(io_),
      end_timer_(io_),
      timeout_(io_),
      stop_watch_(io_, StopWatch::Handlers{
                           [this](std::function<void()> stored) { coordinator_.when_committed(std::move(stored)); },
                           [this](const std::string& trouble) { leave_unstored(trouble); }}) {
  process::catch_signals(signals_, {SIGINT, SIGTERM, SIGHUP, SIGQUIT});
}

int LocalExperiment::run() {
  Status begun = prepare();
  if (begun) begun = submit();
  if (!begun) {
    console_.complain("error", begun.error().message);
    return exit_code::kUsage;
  }
  go();
  return outcome_ ? outcome_->exit_code : exit_code::kFailed;
}

/// Everything that can fail before a process is started.
Status LocalExperiment::prepare() {
  if (const Status begun = begin_locally(); !begun) return begun;
  const auto base = process::runtime_base();
  if (!base) return base.error();
  (void)process::remove_dead_runtime_dirs(base.value());
  auto runtime = process::RuntimeDir::create(base.value());
  if (!runtime) return runtime.error();
  runtime_.emplace(std::move(runtime).value());
  return control_.listen(runtime_->file("control.sock"));
}

Status LocalExperiment::open_store() {
  coordinator::CoordinatorShell::StoreObserver observer;
  observer.on_trouble = [this](const std::string& message) {
    console_.complain("warning", message);
    stop_watch_.on_trouble(message);
    tell_stop_waits();
  };
  observer.on_recovered = [this] {
    console_.narrate("sgd-launch: the store takes events again");
    stop_watch_.on_stored();
  };
  observer.on_commit = [this](Duration) { stop_watch_.on_stored(); };
  const Status opened = coordinator_.open_store(experiment_.run_dir + "/state", std::move(observer));
  if (!opened) return opened;
  return coordinator_.restore([this](const core::RunDefinition& run) { return observer_of(run); });
}

Status LocalExperiment::submit() {
  auto directory = storage::RunDirectory::create({experiment_.id, experiment_.run_dir}, *experiment_.job.resolved);
  if (!directory) return directory.error();
  if (const Status opened = open_store(); !opened) return opened;
  if (const Status started = start_search(); !started) return started;
  if (const Status started = start_node(); !started) return started;
  console_.narrate(fmt::format("sgd-launch: experiment {}: files in {}", experiment_.id, shown_dir_));
  coordinator_.submit(experiment_, std::move(directory).value(), own_observer());
  return {};
}

int LocalExperiment::resume(std::int64_t samples) {
  Status begun = prepare();
  if (begun) begun = reopen(samples);
  if (!begun) {
    console_.complain("error", begun.error().message);
    return exit_code::kUsage;
  }
  go();
  return outcome_ ? outcome_->exit_code : exit_code::kFailed;
}

/// What its store has forgotten to write is written first: its end, perhaps.
Status LocalExperiment::reopen(std::int64_t samples) {
  if (std::error_code none; !std::filesystem::exists(experiment_.run_dir + "/state/coordinator.db", none))
    return Error{fmt::format("{} is no experiment of this machine: it has no state/", shown_dir_)};
  read_table();
  if (const Status opened = open_store(); !opened) return opened;
  std::vector<core::RunDefinition> known = coordinator_.experiments();
  if (known.size() != 1) return Error{fmt::format("{}/state knows no experiment", shown_dir_)};
  const std::string folder = std::exchange(experiment_, std::move(known.front())).run_dir;
  // It may have been made behind a link, and is named by its real path.
  if (std::error_code error; std::filesystem::weakly_canonical(experiment_.run_dir, error) != folder)
    return Error{
        fmt::format("this experiment was made in {}, and its trials with it: move it back there", experiment_.run_dir)};
  const auto shot = coordinator_.snapshot(experiment_.id);
  const bool is_over = shot && shot->phase == core::RunPhase::kFinished;
  if (is_over || samples > 0 || coordinator_.experiment(experiment_.id)->has_failed_search()) {
    const Status resumed = coordinator_.resume_experiment(experiment_.id, samples);
    if (!resumed && !outcome_) return resumed;
    if (resumed) outcome_.reset();
    experiment_ = std::move(coordinator_.experiments().front());  // With its samples from now on.
  }
  if (const Status started = start_search(); !started) return started;
  console_.narrate(fmt::format("sgd-launch: experiment {} goes on: {}", experiment_.id, table_.progress()));
  return start_node();
}

/// All that it was told so far: what is told is written before.
void LocalExperiment::read_table() {
  past_.clear();
  (void)each_object(experiment_.run_dir + "/events.jsonl", [this](Json event) { past_.push_back(std::move(event)); });
  for (const Json& event : past_) table_.add(event);
}

Status LocalExperiment::start_search() {
  auto read = core::Experiment::spec_of(experiment_);
  const std::vector<Json> past = std::exchange(past_, {});
  if (!read) return {};  // It ends with that.
  tune::ExperimentSpec spec = std::move(read).value();
  if (spec.search.kind != tune::SearchSpec::Kind::kExec) return {};
  KeptSearch::Handlers handlers;
  handlers.on_line = [this](const std::string& line) { coordinator_.search_said(experiment_.id, line); };
  handlers.on_failed = [this](const std::string& why) { coordinator_.search_failed(experiment_.id, why); };
  handlers.on_restart = [this](const std::string& what) { console_.narrate("sgd-launch: " + what, true); };
  search_ =
      std::make_unique<KeptSearch>(io_, std::move(spec), experiment_.run_dir + "/search.log", std::move(handlers));
  return search_->start(past);
}

/// As many trials as are wanted at a time, or as this machine has room for.
int LocalExperiment::slots() const {
  if (options_.slots) return *options_.slots;
  const job::JobSpec& job = experiment_.job;
  const std::int64_t workers = job.num_workers;
  const std::int64_t cores = process::usable_cpus();
  const std::int64_t room = std::max<std::int64_t>(1, cores / std::max<std::int64_t>(1, workers * job.per_worker.cpus));
  return static_cast<int>(std::min<std::int64_t>(workers * read_or(job.tune, "concurrent", room), core::kNodeUnitsMax));
}

Status LocalExperiment::start_node() {
  const std::string socket = runtime_->file("control.sock");
  if (const Status linked = storage::link_control_socket(experiment_.run_dir, socket); !linked)
    console_.complain("warning", linked.error().message + "; status and stop will not find this experiment");
  core::AgentFacts facts = local_facts(experiment_.job, {0, 1, slots()});
  facts.is_shared = true;
  net::EmbeddedLink link = net::make_embedded_link(io_);
  coordinator_.add_agent(facts.node, std::move(link.coordinator));
  agent::AgentObserver watcher;
  watcher.on_output = [this](const agent::Output& output) {
    agent_->acknowledge_output(output.run, output.bytes().size());
  };
  watcher.on_warning = [this](const std::string& message) { console_.complain("warning", message); };
  watcher.on_run_gone = [this](const RunId&, bool) { end_if_done(); };
  agent_ = std::make_unique<agent::AgentShell>(io_, std::move(facts), runtime_->file("0-"), own_program(),
                                               std::move(link.agent), std::move(watcher));
  return agent_->start();
}

void LocalExperiment::go() {
  wait_signal();
  tick_status();
  if (options_.timeout) {
    timeout_.after(*options_.timeout, [this] {
      request_stop({core::StopRequest::Why::kTimeout, 0, false, std::nullopt});
    });
  }
  if (options_.lifeline) {
    // As if the terminal had been closed. A signal that has ended its other end, too, is no second request.
    lifeline_.emplace(io_, *options_.lifeline, [this] {
      if (signals_seen_ == 0) on_signal(SIGHUP);
    });
  }
  io_.run();
}

coordinator::RunObserver LocalExperiment::observer_of(const core::RunDefinition& run) {
  if (!run.parent) return own_observer();
  coordinator::RunObserver observer;
  const std::string trial = run.id.substr(run.id.rfind('.') + 1);
  observer.on_event = [this, trial](const Json& event) {
    if (read_or(event, "event", "") == "output_dropped")
      console_.narrate(fmt::format("sgd-launch: trial {}: {}", trial, narrate_event(event)), true);
  };
  observer.on_warning = [this, trial](const std::string& message) {
    console_.complain("warning", fmt::format("trial {}: {}", trial, message));
  };
  observer.on_finished = [this](const core::RunOutcome&) { end_if_done(); };
  return observer;
}

coordinator::RunObserver LocalExperiment::own_observer() {
  coordinator::RunObserver observer;
  observer.on_event = [this](const Json& event) {
    table_.add(event);
    if (search_)
      search_->on_event(event);
    else if (!agent_)
      past_.push_back(event);
    const std::string line = table_.narrate(event);
    if (line.empty()) return;
    const std::string what = read_or(event, "event", "");
    const bool is_wrong = what == "metric_missing" || what == "search_failed" || what == "last_line_refused" ||
                          read_or(event, "state", "") == "failed";
    if (is_wrong)
      console_.complain("warning", line);
    else if (!console_.style().is_terminal)
      console_.narrate("sgd-launch: " + line);
  };
  observer.on_warning = [this](const std::string& message) { console_.complain("warning", message); };
  observer.on_finished = [this](const core::RunOutcome& outcome) {
    outcome_ = outcome;
    end_if_done();
  };
  return observer;
}

/// Called by what is at work: the end comes behind it, when everything is committed.
void LocalExperiment::end_if_done() {
  if (!outcome_ || is_ending_) return;
  end_timer_.after(kLookForEnd, [this] {
    if (is_ending_) return;
    if (!agent_->is_idle() || !coordinator_.is_idle()) return end_if_done();
    is_ending_ = true;
    end();
  });
}

void LocalExperiment::end() {
  console_.bars({});
  console_.status("");
  for (const std::string& line : table_.lines(kRowsAtEnd)) console_.result(line);
  console_.when_drained([this] {
    console_.status("");
    if (!outcome_->error.empty()) console_.complain("error", outcome_->error);
    console_.narrate(
        fmt::format("sgd-launch: {} in {:.1f} s, files in {}", table_.progress(), outcome_->wall_s, shown_dir_));
    if (const Json best = json::read_ordered_file(experiment_.run_dir + "/best.json"); best.is_object())
      console_.narrate("sgd-launch: the best one again: " +
                       best_again(best, as_typed(read_or(best, "folder", "")), shown_dir_));
    if (table_.may_go_on(outcome_->state))
      console_.narrate(fmt::format("sgd-launch: to go on from there: sgd-launch tune --resume {}", shown_dir_));
    if (search_) return search_->end([this] { stop_all(); });
    stop_all();
  });
}

void LocalExperiment::stop_all() {
  agent_->stop();
  coordinator_.stop();
  control_.stop();
  signals_.cancel();
  status_timer_.cancel();
  timeout_.cancel();
  stop_watch_.cancel();
  io_.stop();  // Idle control clients are all that could still wait here.
}

void LocalExperiment::wait_signal() {
  signals_.async_wait([this](const boost::system::error_code& error, int signal) {
    if (error) return;
    on_signal(signal);
    wait_signal();
  });
}

void LocalExperiment::on_signal(int signal) {
  const bool at_once = ++signals_seen_ > 1 || signal == SIGQUIT;
  // Whoever asks twice, or when all is over, does not wait for a stdout that nobody reads.
  if (at_once || outcome_) console_.give_up();
  if (outcome_) {
    // What the end still waits for may never come.
    if (!std::exchange(is_hurried_, true)) return;
    return std::exchange(is_ending_, true) ? stop_all() : end();
  }
  if (!at_once)
    console_.narrate(fmt::format("sgd-launch: signal {}: stopping all trials, at most {}; once more to kill",
                                 core::signal_words(signal), format_duration(experiment_.job.stop.grace)));
  request_stop({core::StopRequest::Why::kSignal, signal, at_once, std::nullopt});
}

void LocalExperiment::request_stop(const core::StopRequest& request) {
  coordinator_.request_stop(experiment_.id, request);
  stop_watch_.on_stop(request.grace.value_or(experiment_.job.stop.grace), request.at_once);
  tell_stop_waits();
}

void LocalExperiment::tell_stop_waits() {
  if (stop_watch_.trouble().empty() || !stop_watch_.is_asked() || outcome_ || std::exchange(has_told_wait_, true))
    return;
  console_.narrate(fmt::format("sgd-launch: the stop waits for room in the store, at most {}; another signal ends the "
                               "trials without it",
                               format_duration(experiment_.job.stop.grace)),
                   true);
}

/// Without an outcome: what was the last to happen is in no file.
void LocalExperiment::leave_unstored(const std::string& trouble) {
  if (std::exchange(is_ending_, true)) return;
  if (outcome_) return end();
  console_.give_up();
  console_.bars({});
  console_.status("");
  console_.complain("error",
                    fmt::format("the last events are not stored: {}; the trials are ended, and go on from what "
                                "is stored: sgd-launch tune --resume {}",
                                trouble.empty() ? "the disk does not answer" : trouble, shown_dir_));
  console_.when_drained([this] { stop_all(); });
}

void LocalExperiment::tick_status() {
  const bool is_terminal = console_.style().is_terminal;
  if (!outcome_) look_for_waits();
  if (!outcome_ && is_terminal) {
    console_.bars(table_.lines(kRowsLive));
    console_.status(table_.progress());
  }
  status_timer_.after(is_terminal ? kRedraw : kLookForWaits, [this] { tick_status(); });
}

/// A trial that waits while others are at work is as it should be; where none has a place, why is said.
void LocalExperiment::look_for_waits() {
  for (auto trial = table_.first_unplaced(); trial; trial = table_.first_unplaced()) {
    const auto shot = coordinator_.snapshot(trial_run_name(experiment_.id, *trial), core::Ranks::kLeftOut);
    if (!shot) return;  // It has only been decided on.
    const bool waits = shot->phase == core::RunPhase::kPlacing;
    table_.note_place(*trial, waits);
    if (!waits) continue;
    const std::string wait = table_.all_wait() ? waits_.line(*shot) : "";
    if (!wait.empty()) console_.narrate("sgd-launch: " + wait, true);
    return;
  }
}

/// For its trials, too: they have no socket of their own. One that has ended is what its files say.
Json LocalExperiment::answer(const nlohmann::json& request) {
  const std::string what = read_or(request, "request", "");
  const std::string trial = read_or(request, "trial", "");
  const RunId run = trial.empty() ? experiment_.id : experiment_.id + "." + trial;
  const auto shot = coordinator_.snapshot(run);
  if (!trial.empty() && (!shot || shot->phase == core::RunPhase::kFinished))
    return {{"ok", false}, {"is_over", true}, {"error", "trial " + trial + " is not running"}};
  if (what == "status") {
    if (!shot) return refused_request("state", "the experiment has not started");
    Json status = core::to_json(*shot);
    status["run_dir"] = experiment_.run_dir + (trial.empty() ? "" : "/trials/" + trial);
    return {{"ok", true}, {"status", std::move(status)}};
  }
  if (what == "stop") {
    const auto stop = core::stop_request_of(request);
    if (!stop) return refused_request("request", stop.error().message);
    if (trial.empty())
      request_stop(stop.value());
    else
      coordinator_.request_stop(run, stop.value());
    return {{"ok", true}};
  }
  return refused_request("request", fmt::format("unknown request \"{}\" of an experiment", what));
}

}  // namespace sgd::cli
