// `sgd-launch status [RUN]`: what a run is doing, from its launcher; of one that has ended, from its summary.

#include <algorithm>
#include <cmath>
#include <filesystem>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/json/json_file.hpp"
#include "common/json/lenient.hpp"
#include "common/json/shallow.hpp"
#include "launcher/cli/local_node.hpp"
#include "launcher/cli/narrator.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/terminal_text.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/storage/run_history.hpp"

namespace sgd::cli {
namespace {

using Json = nlohmann::ordered_json;

/// Texts of ranks and peers.
std::string plain_text(const std::string& text) {
  return for_terminal(text, Steering::kNone);
}

/// So many the job wants; of a run that is not on this machine, so many as it has made.
int epochs_of(const std::string& run_dir, const Json& summary) {
  const Json job = json::read_ordered_file(run_dir + "/job.json");
  const int made = read_or(summary, "epochs", 0);
  return std::max(read_or(member(job, "training"), "epochs", made), made);
}

/// "  87 %, 20480 MiB, 61 C", with "-" for what is not known; empty: nothing is known of it.
std::string gpu_text(const Json& gpu) {
  if (!gpu.is_object()) return {};
  const auto part = [&gpu](const char* key, const char* unit) {
    return member(gpu, key).is_number() ? fmt::format("{:.0f} {}", read_or(gpu, key, 0.0), unit) : std::string("-");
  };
  return fmt::format("  {}, {}, {}", part("busy_percent", "%"), part("memory_mib", "MiB"), part("celsius", "C"));
}

/// Without what nobody has measured yet.
std::string live_progress(const Json& status) {
  std::string text = fmt::format("epoch {}/{}, step {}{}", read_or(status, "epoch", 0), read_or(status, "epochs", 0),
                                 read_or(status, "step", std::int64_t{0}),
                                 read_or(status, "activity", "") == "validate" ? ", validating" : "");
  const double rate = read_or(status, "samples_per_s", 0.0);
  const double loss = read_or(status, "loss", std::nan(""));  // null: it is not finite.
  if (rate > 0 || loss != 0) text += fmt::format(", loss {:.4f}", loss);
  if (rate > 0) text += fmt::format(", {} samples/s", short_number(rate));
  return text;
}

void print_live(const Json& status) {
  fmt::print("run        {}\nstate      {}", read_or(status, "run", ""), read_or(status, "state", ""));
  const std::string reason = read_or(status, "reason", "");
  fmt::print("{}\nworkers    {} of {}, generation {}\n", reason.empty() ? "" : " (" + plain_text(reason) + ")",
             read_or(status, "world_size", 0), read_or(status, "num_workers", 0), read_or(status, "generation", 0));
  if (read_or(status, "epochs", 0) > 0) fmt::print("progress   {}\n", live_progress(status));
  fmt::print("failures   {}\n", read_or(status, "failures", 0));
  for (const Json& gpu : member(status, "gpus_left_out"))
    fmt::print("left out   GPU {} of {}, after {} restart{}\n", plain_text(read_or(gpu, "device", "")),
               read_or(gpu, "node", ""), read_or(gpu, "restarts", 0), read_or(gpu, "restarts", 0) == 1 ? "" : "s");
  fmt::print("folder     {}\n", read_or(status, "run_dir", ""));
  const Json& ranks = member(status, "ranks");
  const bool has_gpus =
      std::any_of(ranks.begin(), ranks.end(), [](const Json& rank) { return member(rank, "gpu").is_object(); });
  fmt::print("{:>6} {:<12} {:>8} {:<9} {:>10} {:>10}{}\n", "rank", "node", "pid", "state", "step", "heartbeat",
             has_gpus ? "  gpu" : "");
  for (const Json& rank : ranks) {
    const double age_s = read_or(rank, "heartbeat_age_s", -1.0);
    const std::string age = age_s >= 0 ? fmt::format("{:.1f}s", age_s) : "-";
    fmt::print("{:>6} {:<12} {:>8} {:<9} {:>10} {:>10}{}\n", read_or(rank, "rank", 0), read_or(rank, "node", ""),
               read_or(rank, "pid", 0), read_or(rank, "state", ""), read_or(rank, "step", std::int64_t{0}), age,
               gpu_text(member(rank, "gpu")));
  }
}

/// What starts an ended run again; empty: nothing is left to do, or it would fail again in the same way.
std::string next_step(const std::string& run_dir, const std::string& run, const Json& summary) {
  const bool is_final = read_or(member(summary, "cause"), "is_final", false);
  const bool is_experiment =
      member(summary, "tune").is_object() || member(json::read_ordered_file(run_dir + "/job.json"), "tune").is_object();
  const std::string state = read_or(summary, "state", "");
  // Of one that an earlier version has ended it is known only that a stop, or a kill, leaves something to do.
  const bool is_done = state == "succeeded" || state == "failed" || state == "not_placed";
  const bool may_go_on = is_experiment ? read_or(member(summary, "tune"), "may_go_on", !is_done)
                                       : state != "succeeded" && !read_or(summary, "checkpoint", "").empty();
  if (!may_go_on || is_final) return {};
  return (is_experiment ? "sgd-launch tune --resume " : "sgd-launch resume ") + run;
}

/// `run`: how people would name it to a verb.
void print_ended(const std::string& run_dir, const std::string& run, const Json& summary) {
  const std::string state = read_or(summary, "state", "unknown");
  fmt::print("run        {}\nstate      {}", read_or(summary, "run", ""), state);
  const int exit_code = read_or(summary, "exit_code", -1);
  fmt::print("{}\n", exit_code < 0 ? "" : fmt::format(" (exit code {})", exit_code));
  const std::string error = read_or(summary, "error", "");
  if (!error.empty()) fmt::print("error      {}\n", plain_text(error));
  const std::string made = progress_text(read_or(summary, "epochs", 0), read_or(summary, "steps", std::int64_t{0}));
  const int failures = read_or(summary, "failures", 0);
  fmt::print("progress   {}{:.2f} s, {} failure{}\n", made.empty() ? "" : made + " in ",
             read_or(summary, "wall_s", 0.0), failures, failures == 1 ? "" : "s");
  const int epochs = epochs_of(run_dir, summary);
  for (const char* phase : {"train", "validate"})
    if (const Json& last = member(member(summary, "metrics"), phase); last.is_object())
      if (const std::string line = epoch_line(last, epochs); !line.empty())
        fmt::print("metrics    {}\n", plain_text(line));
  const std::string checkpoint = read_or(summary, "checkpoint", "");
  // Those of an experiment's trials are absolute.
  if (!checkpoint.empty()) fmt::print("checkpoint {}\n", (std::filesystem::path(run_dir) / checkpoint).string());
  fmt::print("folder     {}\n", run_dir);
  if (const std::string next = next_step(run_dir, run, summary); !next.empty()) fmt::print("next       {}\n", next);
}

/// How it ended is in events.jsonl, also where there was no room for the summary any more.
void add_end(Json& lost, const storage::RunHistory& history) {
  if (!history.finished.is_object()) return;
  lost["state"] = read_or(history.finished, "state", "unknown");
  lost["exit_code"] = member(history.finished, "exit_code");
  const std::string failure = read_or(history.failure, "message", "");
  const std::string why = history.succeeded ? "" : failure;
  const std::string left = "its launcher left no summary.json: the disk was full, or it was killed at its end";
  lost["error"] = why.empty() ? left : fmt::format("{}; {}", why, left);
}

/// Status of a run whose launcher does not answer: its summary, or without one what the other files tell.
Json read_ended(const std::string& run_dir) {
  const std::string path = run_dir + "/summary.json";
  const Result<std::string> text = json::text_of_file(path);
  Json summary = text ? parse_shallow<Json>(text.value()) : Json();
  if (summary.is_object()) return summary;
  Json lost = {{"schema_version", 1},
               {"run", run_dir.substr(run_dir.rfind('/') + 1)},
               {"state", "lost"},
               {"exit_code", nullptr},
               {"error", text ? path + " is damaged: it is not a JSON object"
                              : "its launcher left no summary: it was killed, or the disk was full"},
               {"checkpoint", nullptr}};
  const auto history = storage::read_history(run_dir, checkpoint::Proof::kSizes);
  if (!history) return lost;
  const core::RunPast& past = history.value().past;
  lost["run"] = history.value().id;
  lost["generation"] = past.generation;
  lost["epochs"] = past.epochs;
  lost["epochs_done"] = past.epochs;
  lost["job_epochs"] = epochs_of(run_dir, lost);
  lost["steps"] = past.steps;
  lost["failures"] = past.failures;
  lost["wall_s"] = past.wall_s;
  lost["metrics"] = past.metrics.is_object() ? past.metrics : Json::object();
  if (!text) add_end(lost, history.value());
  if (!past.checkpoints.empty()) lost["checkpoint"] = past.checkpoints.front().substr(run_dir.size() + 1);
  return lost;
}

}  // namespace

int status_verb(const std::vector<std::string>& arguments) {
  bool as_json = false;
  const NamedRun run = name_run(
      {"status", "[--json] [RUN]", "sgd-launch status", {flag({"--json"}, "one JSON object", as_json)}, {}}, arguments);
  if (!run.is_named) return run.exit_code;
  const auto answer = ask(run, {{"request", "status"}});
  if (!answer) return refuse(exit_code::kUnreachable, answer.error().message);
  const bool is_answered = answer.value() && read_or(*answer.value(), "ok", false);
  if (run.cluster && !is_answered) return refuse(exit_code::kNotFound, read_or(*answer.value(), "error", ""));
  const bool is_live = is_answered && answer.value()->contains("status");
  const Json status = is_live       ? member(*answer.value(), "status")
                      : run.cluster ? member(*answer.value(), "summary")
                                    : read_ended(run.directory);
  const std::string folder = run.cluster ? read_or(*answer.value(), "run_dir", "") : run.directory;
  if (as_json)
    fmt::print("{}\n", dump_text(status, 2));
  else if (is_live)
    print_live(status);
  else
    print_ended(folder, run.cluster ? read_or(status, "run", "") : as_typed(folder), status);
  return exit_code::kSucceeded;
}

}  // namespace sgd::cli
