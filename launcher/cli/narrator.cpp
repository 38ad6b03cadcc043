#include "launcher/cli/narrator.hpp"

#include <cmath>

#include <fmt/format.h>

namespace sgd::cli {
namespace {

std::string value_text(const nlohmann::ordered_json& value) {
  if (value.is_null()) return "nan";
  if (value.is_number_float()) return fmt::format("{:.4f}", value.get<double>());
  return value.dump();
}

void append(std::string& line, const nlohmann::ordered_json& metrics, const char* key) {
  if (metrics.contains(key)) line += fmt::format("  {} {}", key, value_text(metrics.at(key)));
}

std::string duration_text(double seconds) {
  if (seconds < 100) return fmt::format("{:.2f} s", seconds);
  const auto whole = static_cast<std::int64_t>(seconds);
  if (whole < 3600) return fmt::format("{} min {:02d} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02d} min", whole / 3600, whole % 3600 / 60);
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::min(seconds, 359999.0));
  if (whole >= 3600) return fmt::format("{}:{:02d}:{:02d}", whole / 3600, whole % 3600 / 60, whole % 60);
  return fmt::format("{:02d}:{:02d}", whole / 60, whole % 60);
}

std::string log_path(const core::Failure& cause, Generation generation, const std::string& run_dir) {
  if (cause.rank < 0) return fmt::format("{}/logs/", run_dir);
  return fmt::format("{}/logs/gen-{:04d}/rank-{:04d}.log", run_dir, generation, cause.rank);
}

std::string milliseconds(const nlohmann::ordered_json& event, const char* key) {
  return fmt::format("{:.0f}", event.value(key, 0.0) * 1e3);
}

/// "recovered from signal 9 (SIGKILL) on rank 1 in 41 ms: notice 1, clear 6, start 14, restore 8, first step 12; ..."
std::string recovery_line(const nlohmann::ordered_json& event) {
  const bool is_training = !event.value("source", "").empty();
  std::string line = fmt::format("recovered from {} on {} in {} ms: notice {}, clear {}", event.value("from", ""),
                                 event.value("subject", ""), milliseconds(event, "total_s"),
                                 milliseconds(event, "notice_s"), milliseconds(event, "clear_s"));
  if (event.value("wait_s", 0.0) >= 1e-3) line += ", wait " + milliseconds(event, "wait_s");
  line += ", start " + milliseconds(event, "start_s");
  if (!is_training) return line;
  line += fmt::format(", restore {}, first step {}; resumed at step {} from {}", milliseconds(event, "restore_s"),
                      milliseconds(event, "first_step_s"), event.value("step", 0), event.value("source", ""));
  if (event.contains("redone")) line += fmt::format(", {} steps redone", event.value("redone", 0));
  if (!event.value("bit_exact", true)) line += fmt::format(", with {} workers now", event.value("world_size", 0));
  return line;
}

/// Failures and what was done about them.
std::string narrate_recovery(const nlohmann::ordered_json& event) {
  const std::string name = event.value("event", "");
  if (name == "failure" && event.value("restart", false))
    return fmt::format("failure: {} (node {}, generation {}): starting again", event.value("message", ""),
                       event.value("node", ""), event.value("generation", 0));
  if (name == "recovered") return recovery_line(event);
  if (name == "backoff")
    return fmt::format("waiting {:g} s, attempt {}: {}", event.value("delay_s", 0.0), event.value("attempt", 0),
                       event.value("reason", ""));
  if (name == "resized")
    return fmt::format("resized from {} to {} workers: {}", event.value("from", 0), event.value("to", 0),
                       event.value("reason", ""));
  if (name == "node_lost") return fmt::format("node {} lost: {}", event.value("node", ""), event.value("reason", ""));
  return {};
}

}  // namespace

std::string short_number(double value) {
  if (!std::isfinite(value)) return "nan";
  if (value >= 1e6) return fmt::format("{:.1f}M", value / 1e6);
  if (value >= 1e3) return fmt::format("{:.1f}k", value / 1e3);
  return fmt::format("{:.1f}", value);
}

std::string EpochLines::add(const nlohmann::ordered_json& metrics) {
  if (metrics.value("phase", "") == "train") {
    train_ = metrics;
    return {};
  }
  const double epoch = metrics.contains("epoch") ? metrics.at("epoch").get<double>() : 0;
  std::string line = fmt::format("epoch {}/{}", static_cast<int>(epoch), epochs_);
  append(line, train_, "train_loss");
  append(line, metrics, "val_loss");
  append(line, metrics, "val_accuracy");
  if (train_.contains("samples_per_s") && train_.at("samples_per_s").is_number())
    line += fmt::format("  {} samples/s", short_number(train_.at("samples_per_s").get<double>()));
  train_ = {};
  return line;
}

std::string narrate_event(const nlohmann::ordered_json& event, const std::string& run_dir) {
  const std::string name = event.value("event", "");
  if (name == "checkpoint_saved")
    return fmt::format(
        "checkpoint saved: {}/{} ({}B, stall {:.0f} ms, write {:.0f} ms{})", run_dir, event.value("path", ""),
        short_number(event.value("bytes", 0.0)), event.value("stall_s", 0.0) * 1e3, event.value("write_s", 0.0) * 1e3,
        event.contains("skipped") ? fmt::format(", {} due meanwhile left out", event.value("skipped", 0)) : "");
  if (name == "checkpoint_rejected")
    return fmt::format("checkpoint rejected: {}: {}", event.value("path", ""), event.value("reason", ""));
  if (name == "straggler")
    return fmt::format(
        "warning: rank {} on {} holds up the others: a step takes it {:.3g} ms without waiting, the others {:.3g} ms",
        event.value("rank", 0), event.value("node", ""), event.value("own_ms", 0.0), event.value("others_ms", 0.0));
  return narrate_recovery(event);
}

std::string status_line(const core::RunSnapshot& shot, std::int64_t steps_total, std::int64_t steps_before) {
  std::string line;
  if (shot.epochs == 0) {
    return fmt::format("{}  {} workers  {}", core::name(shot.phase), shot.world_size, clock_text(shot.wall_s));
  }
  if (shot.phase != core::RunPhase::kRunning) {
    line = fmt::format("{}  {}/{} workers ready", core::name(shot.phase), shot.ready, shot.world_size);
    if (!shot.reason.empty()) line += "  " + shot.reason;
    return line;
  }
  line = steps_total > 0 ? fmt::format("step {}/{}", shot.step, steps_total) : fmt::format("step {}", shot.step);
  line += fmt::format("  epoch {}/{}  loss {:.3f}  {} samples/s  {}/{} workers", shot.epoch, shot.epochs, shot.loss,
                      short_number(shot.samples_per_s), shot.ready, shot.num_workers);
  if (shot.failures > 0) line += fmt::format("  failures {}", shot.failures);
  const std::int64_t made = shot.step - steps_before;
  if (made > 0 && steps_total > shot.step)
    line +=
        "  eta " + clock_text(shot.wall_s * static_cast<double>(steps_total - shot.step) / static_cast<double>(made));
  return line;
}

std::string success_line(const core::RunOutcome& outcome, const std::string& run_dir) {
  std::string line = fmt::format("{} in {}", outcome.state, duration_text(outcome.wall_s));
  if (outcome.steps > 0) line += fmt::format(": {} epochs, {} steps", outcome.epochs, outcome.steps);
  if (!outcome.error.empty()) line += ", " + outcome.error;
  if (!outcome.checkpoint.empty()) line += fmt::format("; newest checkpoint {}/{}", run_dir, outcome.checkpoint);
  return line;
}

std::string failure_block(const core::RunOutcome& outcome, const std::string& run_dir, const std::string& run,
                          bool color) {
  std::string text = color ? "\x1b[31msgd-launch: run failed:\x1b[0m " : "sgd-launch: run failed: ";
  text += outcome.error + "\n";
  if (!outcome.cause) return text;
  const core::Failure& cause = *outcome.cause;
  text += fmt::format("  where:   {}, node {}", cause.subject, cause.node);
  if (cause.pid > 0) text += fmt::format(", pid {}", cause.pid);
  text += fmt::format(", generation {}\n", outcome.generation);
  if (!cause.tail.empty()) {
    text += fmt::format("  last lines of {}:\n", cause.subject);
    for (const std::string& line : cause.tail) text += "    | " + line + "\n";
  }
  text += cause.is_final ? "  retried: no, this cause is final: it would fail again the same way\n" : "  retried: no\n";
  text +=
      fmt::format("  after:   {} epochs, {} steps, {}", outcome.epochs, outcome.steps, duration_text(outcome.wall_s));
  text += outcome.checkpoint.empty() ? ", no checkpoint yet\n"
                                     : fmt::format(", newest checkpoint {}/{}\n", run_dir, outcome.checkpoint);
  text += fmt::format("  log:     {}\n", log_path(cause, outcome.generation, run_dir));
  text += cause.rank >= 0 ? fmt::format("  next:    sgd-launch logs --rank {} {}\n", cause.rank, run)
                          : fmt::format("  next:    sgd-launch logs {}\n", run);
  return text;
}

}  // namespace sgd::cli
