#include "launcher/cli/other_node.hpp"

#include <algorithm>
#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/json/lenient.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/process/signal_names.hpp"

namespace sgd::cli {
namespace {

constexpr Duration kAskLimit = std::chrono::seconds(15);
constexpr Duration kLookAtRun = std::chrono::milliseconds(200);
constexpr Duration kLeaveLimit = std::chrono::seconds(60);
constexpr Duration kLookAtOutput = std::chrono::milliseconds(5);

/// Of a row of `ps`: its outcome is known, or about to be.
bool is_run_over(const nlohmann::ordered_json& run) {
  const std::string state = read_or(run, "state", "");
  return state == "clearing" || state == "finished" || (state != "live" && run.contains("exit_code"));
}

}  // namespace

int OtherNode::take_part() {
  (void)std::signal(SIGPIPE, SIG_IGN);
  ClusterLine line = launcher_.line();
  if (launcher_.output_socket().empty()) {
    const int code = follow(line);
    print_ending();
    return code;
  }
  Console console(line.io(), detect_style(launcher_.options().no_color, launcher_.options().quiet));
  OwnOutputPlace place{launcher_.output_socket(), line_style(launcher_.options(), job_, console),
                       launcher_.workers_here()};
  auto output = OwnOutput::listen(line.io(), console, std::move(place));
  if (!output) return refuse(exit_code::kFailed, output.error().message);
  launcher_.set_console(&console);
  const int code = follow(line);
  show_rest(line, console, *output.value());
  print_ending();
  launcher_.set_console(nullptr);
  return code;
}

void OtherNode::print_ending() const {
  if (!ending_.empty()) launcher_.print(ending_, !has_succeeded_);
}

/// What ranks here have said last is on its way when the run has ended. Where it was ended by force, what is here is
/// shown.
void OtherNode::show_rest(ClusterLine& line, Console& console, OwnOutput& output) {
  bool is_whole = !is_settled_;
  if (is_settled_)
    output.finish([&is_whole] { is_whole = true; });
  else
    output.flush();
  while (!is_whole || !console.drained()) {
    if (const auto signal = line.take_signal(); signal && !is_user_signal(*signal)) console.give_up();
    line.wait(kLookAtOutput);
  }
}

int OtherNode::follow(ClusterLine& line) {
  for (;;) {
    if (const auto signal = line.take_signal())
      if (const auto ended = on_signal(line, *signal)) return *ended;
    if (const auto refusal = launcher_.children().refusal()) return refused(*refusal);
    if (const auto ended = follow_run(line)) return *ended;
    line.wait(run_.empty() ? NodeLauncher::kLook : kLookAtRun);
  }
}

int OtherNode::refused(const rendezvous::DaemonChildren::Refusal& refusal) const {
  if (refusal.exit_code != exit_code::kUnreachable) return refuse(exit_code::kFailed, refusal.words);
  return refuse(
      exit_code::kUnreachable,
      fmt::format("node 0 at {} does not take this launcher: {}. Two launchers have one --node-rank: give each "
                  "its own",
                  to_text(launcher_.plan().head), refusal.words));
}

std::optional<int> OtherNode::follow_run(ClusterLine& line) {
  const Json question =
      run_.empty() ? Json{{"request", "ps"}, {"all", true}} : Json{{"request", "status"}, {"run", run_}};
  const auto answer = line.ask(question, was_there_ ? kAskLimit : NodeLauncher::kDialLimit);
  if (!answer) return on_lost(answer.error().message);
  if (!std::exchange(was_there_, true))
    launcher_.print(fmt::format("{} has reached {}", launcher_.node(), to_text(launcher_.plan().head)));
  lost_at_ = {};
  if (run_.empty()) return look_for_run(answer.value());
  if (read_or(answer.value(), "kind", "") == "run") {
    launcher_.print(fmt::format("node 0 at {} was started again, and does not know run {}: this node takes part in its "
                                "next one",
                                to_text(launcher_.plan().head), std::exchange(run_, {})),
                    true);
    return std::nullopt;
  }
  if (!read_or(answer.value(), "is_settled", false))
    return std::nullopt;  // What was said here is on its way to node 0.
  const Json& summary = member(answer.value(), "summary");
  is_settled_ = true;
  ending_ = fmt::format("run {}: {}", run_, read_or(summary, "state", "has ended"));
  has_succeeded_ = read_or(summary, "state", "") == "succeeded";
  return read_or(summary, "exit_code", exit_code::kFailed);
}

std::optional<int> OtherNode::look_for_run(const Json& answer) {
  if (!read_or(answer, "ok", false)) {
    launcher_.print_waiting("node 0 does not say which runs there are", ": " + read_or(answer, "error", ""));
    return std::nullopt;
  }
  const Json& runs = member(answer, "runs");
  const auto live = std::find_if_not(runs.begin(), runs.end(), is_run_over);
  if (!has_joined_) {
    if (!runs.empty() && live == runs.end()) {
      wait_for_run("the run at node 0 has ended: waiting for the next one");
      return std::nullopt;
    }
    if (const Status started = launcher_.start_agent(); !started)
      return refuse(exit_code::kFailed, started.error().message);
    has_joined_ = true;
  }
  if (!runs.empty()) run_ = read_or(live == runs.end() ? runs.front() : *live, "run", "");
  launcher_.note_agent(!run_.empty());
  if (run_.empty()) {
    wait_for_run("waiting for the other nodes");
    return std::nullopt;
  }
  const int workers = launcher_.workers_here();
  launcher_.print(fmt::format("run {}: {} worker{} here, {}results at node 0", run_, workers, workers == 1 ? "" : "s",
                              launcher_.options().output_at_first ? "output and " : ""));
  return std::nullopt;
}

void OtherNode::wait_for_run(const std::string& what) {
  if (launcher_.waited() < NodeLauncher::kQuiet) return;
  const std::string words = launcher_.children().last_words("agent");
  const bool is_refused = words.find("refused: ") != std::string::npos;
  const bool is_told = is_refused || launcher_.waited() >= NodeLauncher::kSayAgain;
  launcher_.print_waiting(is_refused ? "node 0 does not take this launcher yet" : what,
                          is_told && !words.empty() ? fmt::format("; the agent here says: {}", words) : "");
}

std::optional<int> OtherNode::on_lost(const std::string& why) {
  const std::string head = to_text(launcher_.plan().head);
  const bool is_stranger = why.find("authority") != std::string::npos;
  const std::string reason = is_stranger ? why + " (it has another secret, or another --rdzv-id)" : why;
  if (is_stranger) stranger_ = reason;
  const TimePoint now = process::monotonic_now();
  if (!has_joined_) was_there_ = false;  // It was there for a run before this launcher's.
  if (was_there_) {
    if (lost_at_ == TimePoint{}) lost_at_ = now;
    if (now - lost_at_ < NodeLauncher::kHeadLostLimit) return std::nullopt;
    const char* rest = run_.empty() ? "; no run had started, and the launcher on that machine has said why it ended"
                                    : ": what ran here is ended";
    return refuse(exit_code::kFailed, fmt::format("node 0 at {} is gone ({}){}", head, reason, rest));
  }
  const Duration limit = launcher_.plan().join_limit;
  if (launcher_.waited() >= limit)
    return refuse(exit_code::kNotPlaced, fmt::format("node 0 was not reached at {} within {}: {}", head,
                                                     format_duration(limit), stranger_.empty() ? reason : stranger_));
  if (launcher_.waited() > NodeLauncher::kDialLimit)
    launcher_.print_waiting(fmt::format("waiting for node 0 at {}: {}", head, reason), launcher_.so_far());
  return std::nullopt;
}

/// The first one is for all where all are needed, else for this machine; the second one is obeyed at once.
std::optional<int> OtherNode::on_signal(ClusterLine& line, int signal) {
  if (is_user_signal(signal)) {
    pass_signal(line, signal);
    return std::nullopt;
  }
  if (++signals_ > 1 || run_.empty()) return exit_code::kSignalBase + signal;
  if (launcher_.plan().least < launcher_.plan().most) return leave(line, signal);
  launcher_.print(fmt::format("signal {}: stopping the run on all nodes; once more to leave at once",
                              process::signal_name(signal)));
  (void)line.ask({{"request", "stop"}, {"run", run_}, {"why", "signal"}, {"signal", signal}, {"at_once", false}},
                 kAskLimit);  // Ignoring: who does not answer is seen as lost.
  return std::nullopt;
}

/// To the ranks on all nodes, as on one machine.
void OtherNode::pass_signal(ClusterLine& line, int signal) {
  if (run_.empty()) return launcher_.print_not_passed(signal, "the run has not started");
  const auto answer = line.ask({{"request", "signal"}, {"run", run_}, {"signal", signal}}, kAskLimit);
  if (!answer) return launcher_.print_not_passed(signal, answer.error().message);
  if (!read_or(answer.value(), "ok", false)) launcher_.print_not_passed(signal, read_or(answer.value(), "error", ""));
}

int OtherNode::leave(ClusterLine& line, int signal) {
  launcher_.print(fmt::format("signal {}: this node leaves, the run goes on without it; once more to leave at once",
                              process::signal_name(signal)));
  launcher_.children().terminate("agent");
  const TimePoint deadline = process::monotonic_now() + kLeaveLimit;
  while (launcher_.children().pid("agent") != 0 && process::monotonic_now() < deadline) {
    if (const auto more = line.take_signal(); more && !is_user_signal(*more)) break;
    line.wait(NodeLauncher::kLook);
  }
  is_settled_ = launcher_.children().pid("agent") == 0;
  return exit_code::kSignalBase + signal;
}

}  // namespace sgd::cli
