#include "launcher/cli/narrator.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <ctime>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "common/json/lenient.hpp"
#include "launcher/cli/terminal_text.hpp"
#include "launcher/core/peer_loss.hpp"

namespace sgd::cli {
namespace {

std::string metric_text(const nlohmann::ordered_json& value) {
  if (value.is_null()) return "nan";
  if (!value.is_number_float()) return dump_text(value);
  const double number = value.get<double>();  // tidy: allow lenient_json: it is a number
  const bool has_usual_size = number == 0 || (std::abs(number) >= 1e-3 && std::abs(number) < 1e6);
  return has_usual_size ? fmt::format("{:.4f}", number) : fmt::format("{:.4g}", number);
}

/// A terminal of the usual width shows a line of results whole.
constexpr std::size_t kColumns = 80;

/// The numbers whose names begin with `prefix`, as many as leave `room` columns free.
void append_numbers(std::string& line, const nlohmann::ordered_json& metrics, const std::string& prefix,
                    std::size_t room) {
  for (const auto& [name, value] : metrics.items()) {
    const bool is_wanted = name.starts_with(prefix) || name == "loss" || name == "accuracy";
    if (!is_wanted || !(value.is_number() || value.is_null())) continue;
    const std::string text = fmt::format("  {} {}", name, metric_text(value));
    if (line.size() + text.size() + room <= kColumns) line += text;
  }
}

/// "  lr 0.05  12.4k samples/s".
std::string rates_text(const nlohmann::ordered_json& train) {
  std::string text;
  if (member(train, "lr").is_number()) text += fmt::format("  lr {:.4g}", read_or(train, "lr", 0.0));
  if (member(train, "samples_per_s").is_number())
    text += fmt::format("  {} samples/s", short_number(read_or(train, "samples_per_s", 0.0)));
  return text;
}

/// "12,500".
std::string grouped(std::int64_t number) {
  const std::string digits = fmt::format("{}", number);
  std::string text;
  for (std::size_t at = 0; at < digits.size(); ++at) {
    if (at > 0 && (digits.size() - at) % 3 == 0) text += ',';
    text += digits[at];
  }
  return text;
}

std::string counted(std::int64_t number, const char* what) {
  return fmt::format("{} {}{}", grouped(number), what, number == 1 ? "" : "s");
}

std::string duration_text(double seconds) {
  if (seconds < 1) return fmt::format("{:.2f} s", seconds);
  if (seconds < 100) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::int64_t>(seconds);
  if (whole < 3600) return fmt::format("{} min {:02d} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02d} min", whole / 3600, whole % 3600 / 60);
}

std::string clock_text(double seconds) {
  constexpr double kLongest = 359'999'999;  // 99999:59:59: what is left at first may be beyond any number.
  const auto whole = static_cast<std::int64_t>(std::min(seconds, kLongest));
  if (whole >= 3600) return fmt::format("{}:{:02d}:{:02d}", whole / 3600, whole % 3600 / 60, whole % 60);
  return fmt::format("{:02d}:{:02d}", whole / 60, whole % 60);
}

/// "1, 2, 5 and 7 others".
std::string few(const nlohmann::ordered_json& ranks) {
  constexpr std::size_t kShown = 8;
  std::string text;
  for (std::size_t at = 0; at < std::min(ranks.size(), kShown); ++at)
    text += (at == 0 ? "" : ", ") + dump_text(ranks[at]);
  return ranks.size() > kShown ? text + fmt::format(" and {} others", ranks.size() - kShown) : text;
}

/// "n1 (2), n2 (1)": how many workers each has.
std::string workers_by_node(const nlohmann::ordered_json& nodes) {
  std::string text;
  for (const auto& [node, workers] : nodes.items())
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", node, dump_text(workers));
  return text;
}

std::string log_path(const core::Failure& cause, Generation generation, const std::string& run_dir) {
  if (cause.rank < 0) return fmt::format("{}/logs/", run_dir);
  return fmt::format("{}/logs/gen-{:04d}/rank-{:04d}.log", run_dir, generation, cause.rank);
}

std::string milliseconds(const nlohmann::ordered_json& event, const char* key) {
  return fmt::format("{:.0f}", read_or(event, key, 0.0) * 1e3);
}

/// "recovered from signal 9 (SIGKILL) on rank 1 in 41 ms: notice 1, clear 6, start 14, restore 8, first step 12; ..."
std::string recovery_line(const nlohmann::ordered_json& event) {
  const bool is_training = !read_or(event, "source", "").empty();
  std::string line = fmt::format("recovered from {} on {} in {} ms: notice {}, clear {}", read_or(event, "from", ""),
                                 read_or(event, "subject", ""), milliseconds(event, "total_s"),
                                 milliseconds(event, "notice_s"), milliseconds(event, "clear_s"));
  if (read_or(event, "wait_s", 0.0) >= 1e-3) line += ", wait " + milliseconds(event, "wait_s");
  line += ", start " + milliseconds(event, "start_s");
  if (!is_training) return line;
  line += fmt::format(", restore {}, first step {}; resumed at step {} from {}", milliseconds(event, "restore_s"),
                      milliseconds(event, "first_step_s"), read_or(event, "step", std::int64_t{0}),
                      read_or(event, "source", ""));
  if (event.contains("redone")) line += fmt::format(", {} steps redone", read_or(event, "redone", std::int64_t{0}));
  if (!read_or(event, "bit_exact", true)) line += fmt::format(", with {} workers now", read_or(event, "world_size", 0));
  return line;
}

std::string last_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

/// Failures and what was done about them.
std::string narrate_recovery(const nlohmann::ordered_json& event) {
  const std::string name = read_or(event, "event", "");
  if (name == "failure" && read_or(event, "restart", false))
    return fmt::format("failure: {} (node {}, generation {}): starting again", read_or(event, "message", ""),
                       read_or(event, "node", ""), read_or(event, "generation", 0));
  if (name == "recovered") return recovery_line(event);
  if (name == "restarted")
    return fmt::format("started again after {} ms, since {} has failed ({}): notice {}, clear {}, wait {}, start {}",
                       milliseconds(event, "total_s"), read_or(event, "subject", ""), read_or(event, "from", ""),
                       milliseconds(event, "notice_s"), milliseconds(event, "clear_s"), milliseconds(event, "wait_s"),
                       milliseconds(event, "start_s"));
  if (name == "backoff")
    return fmt::format("waiting {:g} s, attempt {}: {}", read_or(event, "delay_s", 0.0), read_or(event, "attempt", 0),
                       read_or(event, "reason", ""));
  if (name == "asking_again")
    return fmt::format("only busy nodes are left: asking {} once more, which could not start it",
                       read_or(event, "nodes", ""));
  if (name == "resized")
    return fmt::format("resized from {} to {} workers: {}", read_or(event, "from", 0), read_or(event, "to", 0),
                       read_or(event, "reason", ""));
  if (name == "moved")
    return fmt::format("moved from {} to {}: {}", workers_by_node(member(event, "from")),
                       workers_by_node(member(event, "to")), read_or(event, "reason", ""));
  if (name == "node_lost")
    return fmt::format("node {} lost: {}", read_or(event, "node", ""), read_or(event, "reason", ""));
  return {};
}

/// Of a file that is gone nobody has counted the lines.
std::string narrate_dropped(const nlohmann::ordered_json& event) {
  const auto lines = read_or(event, "lines", std::int64_t{0});
  const std::string bytes = counted(read_or(event, "bytes", std::int64_t{0}), "byte");
  return fmt::format(
      "warning: rank {} on {}: {} of output dropped: {}", read_or(event, "rank", 0), read_or(event, "node", ""),
      lines == 0 ? bytes : fmt::format("{} ({})", counted(lines, "line"), bytes), read_or(event, "reason", ""));
}

/// "2026-11-23 14:03:07 +0100".
std::string wall_time(double unix_s) {
  const auto whole = static_cast<std::time_t>(unix_s);
  std::tm parts{};
  char text[64] = {};
  if (::localtime_r(&whole, &parts) == nullptr) return {};
  return {text, std::strftime(text, sizeof text, "%F %T %z", &parts)};
}

/// "yes, after 2 earlier failures; not after this one".
std::string retries_text(const core::RunOutcome& outcome) {
  if (outcome.cause->is_final) return "no, this cause is final: it would fail again the same way";
  if (outcome.failures < 2) return "no";
  return fmt::format("yes, after {}; not after this one", counted(outcome.failures - 1, "earlier failure"));
}

/// Each line of `said` behind a margin.
void append_quoted(std::string& text, std::string_view said) {
  while (!said.empty()) {
    const std::size_t end = std::min(said.find('\n'), said.size());
    text += fmt::format("    | {}\n", said.substr(0, end));
    said.remove_prefix(std::min(end + 1, said.size()));
  }
}

/// The frames that it died in with the whole message, and its last lines unless the block has their words already.
void append_said(std::string& text, const core::Failure& cause) {
  const std::string error = core::words(cause.error);
  const bool is_long = cause.error.message.find('\n') != std::string::npos;
  const bool is_quoted = !cause.error.frames.empty() || is_long;
  if (is_quoted) {
    text += fmt::format("  raised in {}:\n", cause.subject);
    for (const std::string& line : cause.error.frames) append_quoted(text, line);
    append_quoted(text, core::whole_words(cause.error));
  }
  const auto has_error = [&](const std::string& line) { return line.find(error) != std::string::npos; };
  const bool is_raised = is_quoted && std::any_of(cause.tail.begin(), cause.tail.end(), has_error);
  const bool is_headline =
      cause.tail.size() == 1 && !cause.message.empty() && cause.tail.front().find(cause.message) != std::string::npos;
  if (cause.tail.empty() || is_raised || is_headline) return;
  text += fmt::format("  last lines of {}:\n", cause.subject);
  for (const std::string& line : cause.tail) text += "    | " + line + "\n";
}

/// Of a full disk nothing more is in the log.
std::string next_of(const core::Failure& cause, const std::string& run) {
  const std::string words = core::words(cause);
  for (const int code : {ENOSPC, EDQUOT})
    if (words.find(std::generic_category().message(code)) != std::string::npos)
      return "free space there, then sgd-launch resume " + run;
  if (cause.rank < 0) return "sgd-launch logs " + run;
  return fmt::format("sgd-launch logs --rank {} {}", cause.rank, run);
}

}  // namespace

std::string short_number(double value) {
  if (!std::isfinite(value)) return "nan";
  if (value >= 1e6) return fmt::format("{:.1f}M", value / 1e6);
  if (value >= 1e3) return fmt::format("{:.1f}k", value / 1e3);
  return fmt::format("{:.1f}", value);
}

std::string progress_text(int epochs, std::int64_t steps) {
  std::string text = epochs > 0 ? counted(epochs, "epoch") : "";
  if (steps > 0) text += (text.empty() ? "" : ", ") + counted(steps, "step");
  return text;
}

std::string epoch_line(const nlohmann::ordered_json& metrics, int epochs) {
  const int epoch = read_or(metrics, "epoch", 0);
  const bool is_train = read_or(metrics, "phase", "") == "train";
  // A command has no epochs: what it reports is its callbacks' and the files'.
  if (is_train && (epochs == 0 || read_or(metrics, "batch", std::int64_t{0}) != 0)) return {};
  // A loop of the user's own may report more often than the job has epochs.
  std::string line = epoch > epochs ? fmt::format("report {}", epoch) : fmt::format("epoch {}/{}", epoch, epochs);
  if (!is_train) {
    append_numbers(line, metrics, "val_", 0);
    return line;
  }
  const std::string rates = rates_text(metrics);
  append_numbers(line, metrics, "train_", rates.size());
  return line + rates;
}

std::string narrate_event(const nlohmann::ordered_json& event) {
  const std::string name = read_or(event, "event", "");
  if (name == "checkpoint_saved")
    return fmt::format(
        "saved {}: {}B, stall {:.0f} ms, write {:.0f} ms{}", last_name(read_or(event, "path", "")),
        short_number(read_or(event, "bytes", 0.0)), read_or(event, "stall_s", 0.0) * 1e3,
        read_or(event, "write_s", 0.0) * 1e3,
        event.contains("skipped") ? fmt::format("; {} due meanwhile were left out", read_or(event, "skipped", 0)) : "");
  if (name == "run_begun_from")
    return fmt::format("begins with step {} of {}", read_or(event, "step", std::int64_t{0}),
                       read_or(event, "from", ""));
  if (name == "checkpoint_rejected")
    return fmt::format("checkpoint rejected: {}: {}", read_or(event, "path", ""), read_or(event, "reason", ""));
  if (name == "straggler")
    return fmt::format(
        "warning: rank {} on {} holds up the others: its steps take {:.3g} ms without waiting, those of the others "
        "{:.3g} ms",
        read_or(event, "rank", 0), read_or(event, "node", ""), read_or(event, "own_ms", 0.0),
        read_or(event, "others_ms", 0.0));
  if (name == "gpu_excluded")
    return fmt::format("GPU {} of {} was the cause of {}: it is left out of this run", read_or(event, "device", ""),
                       read_or(event, "node", ""), counted(read_or(event, "count", 0), "restart"));
  if (name == "reports_missing")
    return fmt::format("warning: rank {}: {}; lines of metrics are missing", read_or(event, "rank", 0),
                       read_or(event, "message", ""));
  if (name == "report_mismatch")
    return fmt::format("warning: the {} report of epoch {} has \"{}\" on some ranks, and not on rank {}",
                       read_or(event, "phase", ""), read_or(event, "epoch", 0), read_or(event, "key", ""),
                       few(member(event, "ranks")));
  if (name == "output_dropped") return narrate_dropped(event);
  if (name == "last_line_refused")
    return "warning: what rank 0 printed last is no line of metrics: " + read_or(event, "why", "");
  if (name == "metric_missing")
    return fmt::format(
        "warning: no report has a number \"{}\" so far: no checkpoint is kept as the best (checkpoint.keep.best)",
        read_or(event, "metric", ""));
  return narrate_recovery(event);
}

std::string narrate_lost(const nlohmann::ordered_json& event, std::optional<Rank> rank, std::optional<int> generation) {
  const bool is_meant = read_or(event, "event", "") == "output_dropped" &&
                        (!rank || read_or(event, "rank", 0) == *rank) &&
                        (!generation || read_or(event, "generation", 0) == *generation);
  return is_meant ? narrate_event(event) : std::string();
}

bool is_trouble(const nlohmann::ordered_json& event) {
  static constexpr std::array kTroubles = {
      "failure",         "backoff",         "node_lost",      "checkpoint_rejected", "straggler",
      "report_mismatch", "reports_missing", "metric_missing", "last_line_refused",   "output_dropped"};
  const std::string name = read_or(event, "event", "");
  return std::find(kTroubles.begin(), kTroubles.end(), name) != kTroubles.end();
}

std::string status_line(const core::RunSnapshot& shot, std::int64_t steps_total, std::int64_t steps_before) {
  std::string line;
  if (shot.epochs == 0 || shot.phase != core::RunPhase::kRunning) {
    const char* phase = core::name(shot.phase);
    line = shot.epochs == 0 ? fmt::format("{}  {} worker{}  {}", phase, shot.world_size,
                                          shot.world_size == 1 ? "" : "s", clock_text(shot.wall_s))
                            : fmt::format("{}  {}/{} workers ready", phase, shot.ready, shot.world_size);
    if (!shot.reason.empty()) line += "  " + shot.reason;
    return line;
  }
  line = steps_total > 0 ? fmt::format("step {}/{}", shot.step, steps_total) : fmt::format("step {}", shot.step);
  line += fmt::format("  epoch {}/{}", shot.epoch, shot.epochs);
  if (shot.activity == "validate") line += "  validating";
  if (shot.activity == "saving") line += "  saving";
  // What a narrow terminal leaves out is last.
  const bool has_rate = shot.samples_per_s > 0;  // Before that nobody has measured anything.
  if (has_rate || shot.loss != 0) line += fmt::format("  loss {:.3f}", shot.loss);
  if (shot.failures > 0) line += fmt::format("  failures {}", shot.failures);
  const std::int64_t made = shot.step - steps_before;
  if (has_rate && made > 0 && steps_total > shot.step)
    line +=
        "  eta " + clock_text(shot.wall_s * static_cast<double>(steps_total - shot.step) / static_cast<double>(made));
  if (has_rate) line += fmt::format("  {} samples/s", short_number(shot.samples_per_s));
  line += fmt::format("  {}/{} workers", shot.ready, shot.num_workers);
  return line;
}

std::string end_block(const core::RunOutcome& outcome, const std::string& run_dir, const std::string& run,
                      const nlohmann::json& job) {
  const bool is_training = job.contains("training");
  const bool is_done = outcome.state == "succeeded";
  const bool only_measures = read_or(member(job, "training"), "validate_only", false);  // Its steps are another run's.
  std::string text = is_done ? (only_measures ? "measured in " : "finished in ")
                             : (outcome.error.empty() ? outcome.state : outcome.error) + " after ";
  text += duration_text(outcome.wall_s);
  if (const std::string progress = progress_text(outcome.epochs, outcome.steps); !progress.empty() && !only_measures)
    text += fmt::format(" ({})", progress);
  const nlohmann::ordered_json& validated = member(outcome.metrics, "validate");
  const nlohmann::ordered_json& trained = member(outcome.metrics, "train");
  if (validated.contains("val_loss"))
    text += ", val_loss " + metric_text(member(validated, "val_loss"));
  else if (trained.contains("train_loss"))
    text += ", train_loss " + metric_text(member(trained, "train_loss"));
  if (is_done && !outcome.error.empty()) text += ", " + outcome.error;
  if (only_measures) return text;
  // A command keeps what it has made itself, unless its job names an interval.
  const bool should_have_saved = is_training || member(member(job, "checkpoint"), "every").is_object();
  if (!outcome.checkpoint.empty())
    text += is_training ? fmt::format("\n  model: {}/{}/model.safetensors", run_dir, outcome.checkpoint)
                        : fmt::format("\n  checkpoint: {}/{}", run_dir, outcome.checkpoint);
  else if (outcome.steps > 0 && should_have_saved)
    text += "\n  model: not kept, no checkpoint was saved";
  if (!is_done && !outcome.checkpoint.empty()) text += "\n  next:  sgd-launch resume " + run;
  return text;
}

std::string failure_block(const core::RunOutcome& outcome, const std::string& run_dir, const std::string& run,
                          bool color, double failed_at_s) {
  const std::string head = color ? "\x1b[31msgd-launch: run failed:\x1b[0m " : "sgd-launch: run failed: ";
  std::string text = outcome.error + "\n";
  std::string after = "  after:   " + duration_text(outcome.wall_s);
  if (const std::string progress = progress_text(outcome.epochs, outcome.steps); !progress.empty())
    after += ", " + progress;
  if (!outcome.checkpoint.empty())
    after += fmt::format(", newest checkpoint {}/{}", run_dir, outcome.checkpoint);
  else if (outcome.steps > 0)
    after += ", no checkpoint yet";
  after += "\n";
  if (!outcome.cause && outcome.steps > 0)
    text += after + fmt::format("  next:    sgd-launch resume {}   goes on from there\n", run);
  if (!outcome.cause) return head + for_terminal(text, Steering::kNone);
  const core::Failure& cause = *outcome.cause;
  text += "  where:   " + cause.subject;
  if (cause.subject != "node " + cause.node) text += ", node " + cause.node;
  if (cause.pid > 0) text += fmt::format(", pid {}", cause.pid);
  text += fmt::format(", generation {}\n", outcome.generation);
  const double at_s = cause.error.at_s > 0 ? cause.error.at_s : failed_at_s;
  if (at_s > 0) text += fmt::format("  when:    {}\n", wall_time(at_s));
  append_said(text, cause);
  text += fmt::format("  retried: {}\n", retries_text(outcome));
  text += after;
  text += fmt::format("  log:     {}\n", log_path(cause, outcome.generation, run_dir));
  text += fmt::format("  next:    {}\n", next_of(cause, run));
  return head + for_terminal(text, Steering::kNone);
}

}  // namespace sgd::cli
