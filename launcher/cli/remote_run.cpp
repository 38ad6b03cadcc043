#include "launcher/cli/remote_run.hpp"

#include <poll.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "common/base/bytes.hpp"
#include "common/exit_codes.hpp"
#include "common/json/lenient.hpp"
#include "launcher/cli/cluster_client.hpp"
#include "launcher/cli/plain_verb.hpp"
#include "launcher/cli/planned_steps.hpp"
#include "launcher/cli/tune_views.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/cli/whole_fields.hpp"
#include "launcher/core/outcome_json.hpp"
#include "launcher/core/secrets.hpp"
#include "launcher/process/caught_signals.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/process/random_seed.hpp"

namespace sgd::cli {
namespace {

constexpr std::size_t kTrialRows = 24;
constexpr auto kRemoteStatusInterval = std::chrono::milliseconds(500);
constexpr int kRemoteTicksPerPlainLine = 10;  // Without a terminal: a line every 5 s.
constexpr int kUploads = 3;
constexpr auto kUnreadCopyLimit = std::chrono::seconds(10);

bool is_log(const std::string& file) {
  return file.starts_with("logs/");
}

}  // namespace

RemoteRun::RemoteRun(const RunOptions& options, net::Address coordinator, std::shared_ptr<const net::TlsContext> tls)
    : options_(options),
      coordinator_(std::move(coordinator)),
      console_(io_, detect_style(options.no_color, options.quiet)),
      link_(io_, coordinator_, core::Random(process::random_seed()), std::move(tls)),
      signals_(io_),
      status_timer_(io_),
      timeout_(io_),
      answer_limit_(io_) {
  process::catch_signals(signals_, {SIGINT, SIGTERM, SIGHUP, SIGQUIT});
}

int RemoteRun::submit(Json request, bool detach) {
  detach_ = detach;
  signals_.add(SIGUSR1);
  signals_.add(SIGUSR2);
  follow_ = {{"events", true}, {"metrics", true}, {"logs", !own_place_}};
  const Json job = member(request, "job");
  is_training_ = job.contains("training");
  epochs_ = is_training_ ? read_or(member(job, "training"), "epochs", 0) : 0;
  request["request_id"] = core::Secrets(process::random_seed()).next();
  request_ = std::move(request);
  if (!find_files()) return exit_code::kUsage;
  if (request_.contains("base")) table_.emplace(kTrialRows);
  if (const auto loaded = job::load_resolved(job); loaded.job) {
    steps_planned_ = planned_steps(*loaded.job);
    printer_.emplace(console_, *loaded.job, options_.is_json);
    if (options_.show_prefix || options_.has_time || options_.is_json)
      lines_.emplace(line_style(options_, *loaded.job, console_));
    if (const Status listens = listen_for_own(*loaded.job); !listens)
      return refuse(exit_code::kFailed, listens.error().message);
  }
  return go();
}

void RemoteRun::show_own(std::string socket, int workers_here) {
  own_place_ = OwnOutputPlace{std::move(socket), {}, workers_here};
}

int RemoteRun::join(Seen seen) {
  follow_ = {{"events", true}};
  request_ = {{"job", std::move(seen.job)}};
  run_ = std::move(seen.run);
  file_of("events.jsonl").got = seen.bytes;
  past_ = std::move(seen.events);
  table_.emplace(kTrialRows);
  for (const Json& event : past_) table_->add(event);
  return go();
}

void RemoteRun::search_with(tune::ExperimentSpec spec, std::string name) {
  RemoteSearch::Handlers handlers;
  handlers.ask = [this](const Json& what) {
    if (!is_open_ || run_.empty()) return;  // It comes again.
    Json whole = {{"type", "request"}, {"id", kSearch}, {"request", "search"}, {"run", run_}};
    whole.update(what);
    link_.send(whole);
  };
  handlers.narrate = [this](const std::string& line, bool is_trouble) {
    console_.narrate("sgd-launch: " + line, is_trouble);
  };
  search_.emplace(io_, std::move(spec), std::move(name), std::move(handlers));
}

void RemoteRun::on_searched(const Json& answer) {
  const std::string kind = read_or(answer, "kind", "");
  if (read_or(answer, "ok", false) || kind == "later") return;
  search_->on_refused(kind);
  console_.complain("warning", "the search program is not heard: " + read_or(answer, "error", ""));
}

Status RemoteRun::listen_for_own(const job::JobSpec& job) {
  if (!own_place_) return {};
  own_place_->style = line_style(options_, job, console_);
  auto own = OwnOutput::listen(io_, console_, *own_place_);
  if (!own) return own.error();
  own_ = std::move(own).value();
  return {};
}

/// What the job brings, as it is now. False: it cannot be brought, which is said. A run that goes on has its own.
bool RemoteRun::find_files() {
  if (read_or(request_, "request", "") == "resume") return true;
  std::vector<std::string> paths;
  for (const Json& path : member(member(request_, "job"), "files"))
    if (path.is_string()) paths.push_back(path.get_ref<const std::string&>());
  if (paths.empty()) return true;
  Diagnostics diagnostics;
  shipping::FoundFiles found =
      shipping::find_files(paths, options_.job_file.empty() ? "job" : options_.job_file, diagnostics);
  print(diagnostics);
  if (diagnostics.has_errors()) return false;
  FileUpload::Handlers handlers;
  handlers.send = [this](const Json& message, std::string_view bytes) { link_.send(message, bytes); };
  handlers.on_done = [this](std::size_t files, std::int64_t bytes) {
    if (files > 0)
      console_.narrate(fmt::format("sgd-launch: {} file{} ({}) brought to the coordinator", files,
                                   files == 1 ? "" : "s", format_bytes(bytes)));
    send_submission();
  };
  handlers.on_failed = [this](const std::string& error, bool is_users) {
    console_.complain("error", error);
    end(is_users ? exit_code::kUsage : exit_code::kUnreachable);
  };
  request_["files"] = found.sha256;
  upload_.emplace(io_, std::move(found), std::move(handlers));
  return true;
}

int RemoteRun::read(Json follow) {
  is_reader_ = true;
  follow_ = std::move(follow);
  return go();
}

int RemoteRun::go() {
  (void)std::signal(SIGPIPE, SIG_IGN);
  wait_signal();
  link_.start({[this] { on_open(); }, [this](const Json& message) { on_message(message); },
               [this](const std::string& bytes) { on_part(bytes); },
               [this](const std::string& reason) { on_lost(reason); }});
  if (options_.lifeline) lifeline_.emplace(io_, *options_.lifeline, [this] { on_lifeline_end(); });
  if (options_.timeout) {
    timeout_.after(*options_.timeout, [this] { ask_to_stop({{"why", "timeout"}}); });
  }
  io_.run();
  return exit_code_.value_or(exit_code::kFailed);
}

void RemoteRun::on_open() {
  if (was_open_) console_.narrate(fmt::format("sgd-launch: coordinator {} is back", to_text(coordinator_)));
  is_open_ = was_open_ = true;
  if (is_reader_) return follow();
  if (!run_.empty()) return on_submitted({{"ok", true}, {"run", run_}});
  if (upload_ && !upload_->is_done()) return upload_->begin();
  send_submission();
}

void RemoteRun::send_submission() {
  Json whole = {{"type", "request"}, {"id", kSubmit}, {"request", "submit"}};
  whole.update(request_);
  is_submitted_ = true;
  // Where a certificate says who this is, this is not heard.
  if (const char* user = std::getenv("USER"); user != nullptr) whole["owner"] = user;
  link_.send(whole);
}

void RemoteRun::on_lost(const std::string& reason) {
  if (!was_open_) {
    console_.complain("error", no_coordinator(coordinator_, reason));
    return end(exit_code::kUnreachable);
  }
  if (!std::exchange(is_open_, false)) return;
  console_.status("");
  console_.complain("warning", fmt::format("coordinator {} is lost ({}){}, waiting for it", to_text(coordinator_),
                                           reason, is_reader_ || run_.empty() ? "" : "; the run goes on"));
}

void RemoteRun::on_message(const Json& message) {
  const std::string type = read_or(message, "type", "");
  const int id = read_or(message, "id", 0);
  if (upload_ && upload_->on(message)) return;
  if (type == "answer" && id == kSubmit) return on_submitted(message);
  if (type == "answer" && id == kFollow) return on_followed(message);
  if (type == "answer" && id == kStatus) return on_status(message);
  if (type == "answer" && id == kTrialStatus) return on_trial_status(message);
  if (type == "answer" && (id == kStop || id == kOutcome)) return on_stop_answer(id, message);
  if (type == "answer" && id == kSignal) return on_signal_passed(message);
  if (type == "answer" && id == kSearch) return on_searched(message);
  if (type == "part") {
    part_file_ = read_or(message, "file", "");
    part_offset_ = read_or(message, "offset", std::uint64_t{0});
  } else if (type == "end") {
    on_end(member(message, "outcome"));
  }
}

void RemoteRun::on_submitted(const Json& answer) {
  if (!read_or(answer, "ok", false)) {
    // Something was given up meanwhile, to make room.
    if (upload_ && read_or(answer, "kind", "") == "files" && ++uploads_ < kUploads) return upload_->begin();
    for (const Json& line : member(answer, "errors"))
      if (line.is_string()) console_.block(line.get_ref<const std::string&>() + "\n");
    if (answer.contains("error")) console_.complain("error", read_or(answer, "error", ""));
    return end(read_or(answer, "kind", "") == "job" ? exit_code::kUsage : exit_code::kUnreachable);
  }
  const bool is_new = !std::exchange(is_joined_, true);
  // What it had written in the life before is not told again.
  const Json& offsets = member(answer, "offsets");
  for (const auto& [file, bytes] : offsets.items())
    file_of(file).got = read_or(offsets, file.c_str(), std::uint64_t{0});
  run_ = read_or(answer, "run", "");
  if (detach_) {
    console_.result(run_);
    return end(exit_code::kSucceeded);
  }
  const int workers = read_or(member(request_, "job"), "num_workers", 0);
  if (is_new && copy_)
    if (const Status begun = copy_->begin(named()); !begun) console_.complain("warning", begun.error().message);
  if (is_new && !past_.empty())
    console_.narrate(
        fmt::format("sgd-launch: experiment {} goes on at {}: {}", run_, to_text(coordinator_), table_->progress()));
  else if (is_new)
    console_.narrate(fmt::format("sgd-launch: run {}: {} worker{} on the cluster at {}", run_, workers,
                                 workers == 1 ? "" : "s", to_text(coordinator_)));
  follow();
  const std::vector<Json> past = std::exchange(past_, {});
  if (search_ && is_new) search_->start(run_, past);
  if (search_ && !is_new) search_->resend();
  if (pending_stop_) ask_to_stop(*std::exchange(pending_stop_, std::nullopt));
  if (is_new) tick_status();
}

void RemoteRun::follow() {
  Json offsets = Json::object();
  for (auto& [file, state] : files_) {
    // What came and was not printed comes again.
    state.got -= state.partial.size() + state.log.held();
    state.partial.clear();
    state.log.forget_held();
    offsets[file] = state.got;
  }
  Json whole = {{"type", "follow"}, {"id", kFollow}, {"run", run_}, {"offsets", std::move(offsets)}};
  for (const auto& [key, value] : follow_.items())
    if (key != "run" || run_.empty()) whole[key] = value;
  link_.send(whole);
}

void RemoteRun::on_followed(const Json& answer) {
  if (!read_or(answer, "ok", false)) {
    console_.complain("error", read_or(answer, "error", ""));
    return end(exit_code::kNotFound);
  }
  run_ = read_or(answer, "run", run_);
  shown_dir_ = read_or(answer, "run_dir", "");
  if (on_run_dir) on_run_dir(shown_dir_);
}

// ---- what it prints ----

RemoteRun::File& RemoteRun::file_of(const std::string& name) {
  const auto [place, is_new] = files_.try_emplace(name);
  if (is_new && is_log(name) && lines_)
    place->second.log = LogLines::bare_lines();
  else if (is_new && is_log(name) && options_.show_prefix)
    place->second.log = LogLines(fmt::format("{}: ", rank_of_log(name)));
  return place->second;
}

void RemoteRun::on_part(const std::string& bytes) {
  File& file = file_of(part_file_);
  if (part_offset_ != file.got) return;  // Of a follow before.
  if (copy_)
    if (const Status kept = copy_->add(part_file_, part_offset_, bytes); !kept)
      console_.complain("warning", "the copy of the run is not whole: " + kept.error().message);
  file.got += bytes.size();
  if (is_log(part_file_)) return print_log(part_file_, file.log.add(bytes));
  file.partial += bytes;
  const std::size_t end = file.partial.rfind('\n');
  if (end == std::string::npos) return acknowledge(part_file_);
  const std::string lines = file.partial.substr(0, end + 1);
  file.partial.erase(0, end + 1);
  print_json_lines(part_file_, lines);
  acknowledge(part_file_);
}

/// Acknowledged when it is written: a terminal that stands still holds the stream up, and nothing is lost.
void RemoteRun::print_log(const std::string& file, std::string lines) {
  if (lines.empty()) return acknowledge(file);
  std::string text =
      lines_ ? lines_->shown(process::monotonic_now(), process::unix_seconds(), file, lines) : std::move(lines);
  console_.output(std::move(text), [this, file] { acknowledge(file); });
}

void RemoteRun::print_json_lines(const std::string& file, const std::string& lines) {
  for (std::size_t begin = 0, end = 0; begin < lines.size(); begin = end) {
    end = lines.find('\n', begin) + 1;
    print_json_line(file, lines.substr(begin, end - begin));
  }
}

void RemoteRun::print_json_line(const std::string& file, const std::string& line) {
  const bool reads_logs = read_or(follow_, "logs", false);
  if (is_reader_ && !reads_logs) return console_.result(line.substr(0, line.size() - 1));
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) return;
  if (is_reader_) {
    const auto choice = [this](const char* key) {
      return follow_.contains(key) ? std::optional(read_or(follow_, key, 0)) : std::nullopt;
    };
    const std::string text = narrate_lost(json, choice("rank"), choice("generation"));
    if (!text.empty()) console_.narrate("sgd-launch: " + text, true);
  } else if (table_) {
    if (file == "events.jsonl") print_trial_event(json);
  } else if (file == "metrics.jsonl") {
    const std::string text = options_.is_json ? dump_text(json) : epoch_line(json, epochs_);
    if (!text.empty()) console_.result(text);
    if (printer_) printer_->print(json);
  } else {
    if (lines_) lines_->on_event(json);
    const std::string text = narrate_event(json);
    if (!text.empty()) console_.narrate("sgd-launch: " + text, is_trouble(json));
  }
}

void RemoteRun::print_trial_event(const Json& event) {
  table_->add(event);
  if (search_) search_->on_event(event);
  const std::string line = table_->narrate(event);
  if (line.empty()) return;
  const std::string what = read_or(event, "event", "");
  const bool is_wrong = what == "metric_missing" || what == "search_failed" || what == "last_line_refused" ||
                        read_or(event, "state", "") == "failed";
  if (is_wrong)
    console_.complain("warning", line);
  else
    console_.narrate("sgd-launch: " + line);
}

void RemoteRun::acknowledge(const std::string& file) {
  const File& state = files_[file];
  link_.send({{"type", "got"}, {"id", kFollow}, {"file", file}, {"offset", state.got}});
}

void RemoteRun::on_status(const Json& answer) {
  if (!read_or(answer, "ok", false) || !answer.contains("status") || exit_code_) return;
  const core::RunSnapshot shot = core::snapshot_from_json(member(answer, "status"));
  const std::string line = table_ ? table_->progress() : status_line(shot, steps_planned_);
  console_.status(whole_fields(line));
  has_begun_ = has_begun_ || shot.phase != core::RunPhase::kPlacing;
  if (!table_) tell_wait(shot);
  // What a command says tells how it goes.
  if (console_.style().is_terminal || !is_training_ || !has_begun_) return;
  if (++status_ticks_ % kRemoteTicksPerPlainLine != 0) return;
  if (std::exchange(told_, line) != line) console_.narrate("sgd-launch: " + line);
}

void RemoteRun::tell_wait(const core::RunSnapshot& shot) {
  if (const std::string wait = waits_.line(shot); !wait.empty()) console_.narrate("sgd-launch: " + wait, true);
}

/// Of the first trial that may wait for one: those behind it in the queue wait as long.
void RemoteRun::ask_for_place() {
  const auto trial = table_ ? table_->first_unplaced() : std::nullopt;
  if (!trial) return;
  link_.send({{"type", "request"}, {"id", kTrialStatus}, {"request", "status"}, {"run", trial_run_name(run_, *trial)}});
}

void RemoteRun::on_trial_status(const Json& answer) {
  if (!read_or(answer, "ok", false) || !answer.contains("status") || exit_code_ || !table_) return;
  const core::RunSnapshot shot = core::snapshot_from_json(member(answer, "status"));
  const auto trial = table_->first_unplaced();
  if (!trial || shot.run != trial_run_name(run_, *trial)) return;  // It has said something meanwhile.
  const bool waits = shot.phase == core::RunPhase::kPlacing;
  table_->note_place(*trial, waits);
  if (!waits) return ask_for_place();
  if (table_->all_wait()) tell_wait(shot);
}

void RemoteRun::on_end(const Json& outcome_json) {
  if (is_over_) return;  // It was told, or left.
  const core::RunOutcome outcome = core::outcome_from_json(outcome_json);
  for (auto& [file, state] : files_)
    if (is_log(file))
      print_log(file, state.log.rest());
    else if (!state.partial.empty())
      print_json_lines(file, std::exchange(state.partial, {}) + "\n");
  if (is_reader_) return end(exit_code::kSucceeded);
  console_.status("");
  if (printer_) printer_->end();
  if (table_)
    for (const std::string& line : table_->lines(kTrialRows)) console_.result(line);
  is_over_ = true;
  if (!own_) return report_end(outcome);
  own_->finish([this, outcome] { report_end(outcome); });
}

void RemoteRun::report_end(const core::RunOutcome& ended) {
  console_.when_drained([this, outcome = ended]() mutable {
    if (copy_) complete_copy(outcome);
    print_end(outcome);
    if (!search_) return end(outcome.exit_code);
    search_->end([this, exit_code = outcome.exit_code] { end(exit_code); });
  });
}

NamedRun RemoteRun::named() const {
  NamedRun run;
  run.is_named = true;
  run.cluster = coordinator_;
  run.run = run_;
  return run;
}

/// A run whose copy was asked for has succeeded when that is whole, too.
void RemoteRun::complete_copy(core::RunOutcome& outcome) {
  signals_.clear();  // This waits beside the loop, and may wait long: from here a signal ends this process.
  // When nobody is there any more who would read it, only what comes soon is kept.
  const auto is_given_up = [this, begin = std::chrono::steady_clock::now()] {
    pollfd lifeline{options_.lifeline.value_or(-1), POLLIN, 0};
    return std::chrono::steady_clock::now() - begin > kUnreadCopyLimit && ::poll(&lifeline, 1, 0) > 0;
  };
  const Status whole = copy_->end(named(), outcome, is_given_up);
  if (whole) return;
  console_.complain("error",
                    fmt::format("the copy of the run in {} is not whole: {}", copy_->folder(), whole.error().message));
  if (outcome.exit_code == exit_code::kSucceeded) outcome.exit_code = exit_code::kFailed;
}

void RemoteRun::print_end(const core::RunOutcome& outcome) {
  const bool is_failure = outcome.state == "failed" || outcome.state == "not_placed" || outcome.state.empty();
  if (table_) {
    if (!outcome.error.empty()) console_.complain("error", outcome.error);
    console_.narrate(
        fmt::format("sgd-launch: {} in {:.1f} s, files in {}", table_->progress(), outcome.wall_s, shown_dir_));
    if (table_->best())
      console_.narrate(fmt::format("sgd-launch: the best one again: sgd-launch tune best --job {}", run_));
    if (table_->may_go_on(outcome.state))
      console_.narrate(fmt::format("sgd-launch: to go on from there: sgd-launch tune --resume {}", run_));
    return;
  }
  const std::string folder = copy_ ? copy_->folder() : shown_dir_;
  if (is_failure)
    console_.block(failure_block(outcome, folder, run_, console_.style().color));
  else
    console_.narrate("sgd-launch: " + end_block(outcome, folder, run_, member(request_, "job")),
                     outcome.state != "succeeded");
  std::error_code ignored;  // Not there, or not to be seen.
  if (!outcome.checkpoint.empty() && !std::filesystem::exists(folder, ignored))
    console_.narrate(
        fmt::format("  it is on the coordinator's machine; to get it: sgd-launch checkpoints get {} .", run_));
}

// ---- time, the end ----

void RemoteRun::tick_status() {
  const bool is_told = console_.style().is_terminal || is_training_;
  if (exit_code_ || (!is_told && has_begun_ && !table_)) return;
  if (is_told || !table_) link_.send({{"type", "request"}, {"id", kStatus}, {"request", "status"}, {"run", run_}});
  ask_for_place();
  status_timer_.after(kRemoteStatusInterval, [this] { tick_status(); });
}

void RemoteRun::end(int exit_code) {
  exit_code_ = exit_code;
  if (copy_ && run_.empty()) copy_->discard();
  console_.when_drained([this] { io_.stop(); });
}

}  // namespace sgd::cli
