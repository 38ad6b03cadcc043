// RemoteRun: signals, a lifeline that has ended, and how the run is asked to stop.

#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/json/lenient.hpp"
#include "launcher/cli/remote_run.hpp"
#include "launcher/core/failure.hpp"
#include "launcher/core/outcome_json.hpp"

namespace sgd::cli {
namespace {

constexpr auto kAnswerLimit = std::chrono::seconds(60);
/// For what is left of the output of a run that is over, and then for its outcome.
constexpr auto kRestLimit = std::chrono::seconds(1);

}  // namespace

void RemoteRun::wait_signal() {
  signals_.async_wait([this](const boost::system::error_code& error, int signal) {
    if (error) return;
    on_signal(signal);
    wait_signal();
  });
}

void RemoteRun::on_signal(int signal) {
  if (signal == SIGUSR1 || signal == SIGUSR2) return pass_signal(signal);
  ++signals_seen_;
  signal_ = signal;
  const bool at_once = signals_seen_ > 1 || signal == SIGQUIT;
  // Whoever asks twice, or when all is over, does not wait for a stdout that nobody reads.
  if (at_once || is_reader_ || is_over_ || exit_code_) console_.give_up();
  if (is_over_ || exit_code_) return;
  if (is_reader_) return end(exit_code::kSignalBase + signal);
  if (run_.empty() || (at_once && !is_open_)) {
    console_.complain("warning", run_.empty()
                                     ? "left before the coordinator had answered: the run may have been submitted"
                                 : table_ ? fmt::format("left; {} goes on: sgd-launch tune --resume {}", run_, run_)
                                          : fmt::format("left; run {} goes on: sgd-launch stop {}", run_, run_));
    return end(exit_code::kSignalBase + signal);
  }
  if (!at_once)
    console_.narrate(fmt::format("sgd-launch: signal {}: stopping the run{}; once more to kill",
                                 core::signal_words(signal), is_training_ ? " with a checkpoint" : ""));
  ask_to_stop({{"why", "signal"}, {"signal", signal}, {"at_once", at_once}});
}

/// Nobody is there any more who could stop the run: what may have been submitted is waited for, and stopped. A signal
/// that has ended the lifeline's other end, too, is no second request.
void RemoteRun::on_lifeline_end() {
  if (signals_seen_ > 0) return;
  if (!run_.empty() || !is_submitted_ || is_reader_) return on_signal(SIGHUP);
  pending_stop_ = Json{{"why", "signal"}, {"signal", SIGHUP}, {"at_once", false}};
  answer_limit_.after(kAnswerLimit, [this] {
    if (run_.empty()) end(exit_code::kSignalBase + SIGHUP);
  });
}

/// One that cannot be passed on now is not kept: what it asks for is wanted at its time.
void RemoteRun::pass_signal(int signal) {
  if (is_over_ || exit_code_) return;
  if (!is_open_ || run_.empty())
    return console_.complain("warning", fmt::format("signal {} is not passed on: {}", core::signal_words(signal),
                                                    run_.empty() ? "the run has not started" : "no coordinator"));
  link_.send({{"type", "request"}, {"id", kSignal}, {"request", "signal"}, {"run", run_}, {"signal", signal}});
}

void RemoteRun::on_signal_passed(const Json& answer) {
  if (!read_or(answer, "ok", false))
    console_.complain("warning", "the signal is not passed on: " + read_or(answer, "error", ""));
}

void RemoteRun::ask_to_stop(const Json& how) {
  if (!is_open_ || run_.empty()) {
    pending_stop_ = how;
    return;
  }
  Json whole = {{"type", "request"}, {"id", kStop}, {"request", "stop"}, {"run", run_}};
  whole.update(how);
  link_.send(whole);
}

/// A run that is over cannot be stopped: what is asked for is the end of this process, which would go on for as long as
/// a slow reader takes. --timeout has not passed then, and ends nothing.
void RemoteRun::on_stop_answer(int id, const Json& answer) {
  if (exit_code_ || is_over_ || signals_seen_ == 0) return;
  if (id == kOutcome) return leave_rest(member(answer, "summary"));
  if (!read_or(answer, "ok", false))
    return console_.complain("warning", "the run is not stopped: " + read_or(answer, "error", ""));
  if (!read_or(answer, "is_over", false)) return;
  answer_limit_.after(kRestLimit, [this] {
    if (exit_code_) return;
    if (is_over_) return console_.give_up();  // Its outcome is known, and waits behind its output.
    link_.send({{"type", "request"}, {"id", kOutcome}, {"request", "status"}, {"run", run_}});
    answer_limit_.after(kRestLimit, [this] {
      if (!exit_code_ && !is_over_) leave_rest({});
    });
  });
}

/// `outcome`: as in summary.json; empty when the coordinator does not say it. What is told comes before output is given
/// up, which closes both streams.
void RemoteRun::leave_rest(const Json& outcome) {
  is_over_ = true;
  console_.status("");
  core::RunOutcome ended = core::outcome_from_json(outcome);
  const bool is_known = outcome.contains("exit_code");
  if (!is_known) ended.exit_code = exit_code::kSignalBase + signal_;
  if (copy_) complete_copy(ended);
  console_.complain("warning",
                    copy_ ? fmt::format("the rest of its output is not shown: it is in {}/logs", copy_->folder())
                          : fmt::format("the rest of its output is not shown: sgd-launch logs {}", run_));
  if (is_known) print_end(ended);
  console_.give_up();
  if (!search_) return end(ended.exit_code);
  search_->end([this, exit_code = ended.exit_code] { end(exit_code); });
}

}  // namespace sgd::cli
