// RemoteRun: signals, a lifeline that has ended, and how the run is asked to stop.

#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/json/lenient.hpp"
#include "launcher/cli/remote_run.hpp"
#include "launcher/core/failure.hpp"

namespace sgd::cli {
namespace {

constexpr auto kAnswerLimit = std::chrono::seconds(60);

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

}  // namespace sgd::cli
