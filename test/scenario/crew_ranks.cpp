// The ranks that Crew plays.

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "test/scenario/crew.hpp"

namespace sgd::test {
namespace {

link::Ready ready_of(const Words& words) {
  link::Ready ready;
  ready.step = words.number("step", 0);
  ready.source = words.value("source", "fresh");
  ready.redone = words.number("redone", -1);
  ready.restore_s = to_seconds(words.duration("restore", Duration{0}));
  return ready;
}

link::Report report_of(const Words& words) {
  link::Report report;
  report.key.epoch = words.number("epoch", 1);
  report.key.phase = words.value("phase", "train");
  report.step = words.number("step", 10);
  report.metrics = {{"epoch", report.key.epoch},
                    {"num_samples", words.number("samples", 5)},
                    {report.key.phase == "train" ? "train_loss" : "val_loss", std::stod(words.value("loss", "1"))}};
  if (const std::string own = words.value("own_ms", ""); !own.empty())
    report.metrics.update({{"batch_count", 100}, {"step_ms", {{"own", std::stod(own)}}}});
  return report;
}

std::string folder_of(const Words& words, Generation generation) {
  return fmt::format("checkpoints/step-{:012d}-gen-{:04d}", words.number("step", 10),
                     words.number("gen", static_cast<int>(generation)));
}

link::CheckpointSaved checkpoint_of(const Words& words, Generation generation) {
  link::CheckpointSaved saved;
  saved.path = folder_of(words, generation);
  saved.step = words.number("step", 10);
  saved.epoch = words.number("epoch", 1);
  saved.bytes = 1000;
  return saved;
}

}  // namespace

void Crew::rank(const NodeId& node, Rank rank, const std::string& what, const Words& words) {
  Process* process = newest(rank, node);
  const Generation generation = process != nullptr ? process->generation : 1;
  const auto connection =
      static_cast<core::ConnectionId>(words.number("link", static_cast<int>(link_of(generation, rank))));
  const auto say = [&](link::FromWorker message) { from_rank(node, connection, std::move(message)); };
  if (process != nullptr && words.number("step", 0) > 0) process->heartbeat.step = words.number("step", 0);
  if (what == "hello") {
    const std::string token = words.value("token", process != nullptr ? process->token : "");
    const int pid = words.number("pid", pid_of(generation, rank));
    world_.agent_event(
        node, core::agent_event::FromWorker{connection, pid, link::Hello{token, pid, link::kProtocol, "test"}, "run"});
  }
  if (what == "ready") say(ready_of(words));
  if (what == "first-step") say(link::FirstStep{words.number("step", 1)});
  if (what == "exchange") say(link::ExchangePut{words.at(4), words.at(5)});
  if (what == "stoppable") say(link::Stoppable{});
  if (what == "failed") say(link::Failed{words.at(4), ""});
  if (what == "report") say(report_of(words));
  if (what == "checkpoint") say(checkpoint_of(words, generation));
  if (what == "cannot-save") say(link::CheckpointFailed{words.number("step", 10), words.value("reason", "disk full")});
  if (what == "rejects")
    say(link::CheckpointRejected{"/runs/run/" + folder_of(words, generation), words.value("reason", "damaged")});
  if (what == "fetches") say(link::Fetch{"/runs/run/" + folder_of(words, generation)});
  if (what == "heartbeat" && process != nullptr) {
    process->heartbeat.phase = words.value("phase", process->heartbeat.phase);
    process->heartbeat.fetched = words.number("fetched", 0);
    beat(*process);
  }
  if (what == "closed") world_.agent_event(node, core::agent_event::LinkClosed{connection});
}

void Crew::spool(const NodeId& node, const std::string& what, const Words& words) {
  const std::string path = "/runs/run/" + folder_of(words, 1);
  if (what == "fetching")
    world_.agent_event(node, core::agent_event::FetchAdvanced{"run", path, words.number("bytes", 0)});
  if (what == "fetched")
    world_.agent_event(node, core::agent_event::CheckpointFetched{"run", path, words.value("error", ""),
                                                                  words.number("missing", 0) != 0});
}

void Crew::all_ranks(const std::string& what, const Words& words) {
  for (const Rank number : live_ranks()) rank(newest(number)->node, number, what, words);
}

void Crew::train(const Words& words) {
  obey("");
  all_ranks("hello", Words(""));
  all_ranks("ready", words);
  all_ranks("first-step", Words("step=" + std::to_string(words.number("step", 0) + 1)));
}

void Crew::end(Rank rank, int exit_code, int signal) {
  const Process* process = newest(rank);
  SGD_ASSERT(process != nullptr);
  const NodeId node = process->node;
  const core::ConnectionId connection = link_of(process->generation, rank);
  say_exit(node, process->generation, rank, exit_code, signal);
  world_.agent_event(node, core::agent_event::LinkClosed{connection});
}

void Crew::end_all(int exit_code) {
  for (const Rank rank : live_ranks()) end(rank, exit_code, 0);
}

void Crew::pulse(Rank rank, const std::string& what) {
  Process* process = newest(rank);
  SGD_ASSERT(process != nullptr);
  process->is_frozen = what == "freezes";
  process->is_stalled = what == "stalls" || what == "waits";
  process->heartbeat.waiting = what == "waits";
}

// ---- heartbeats ----

std::optional<TimePoint> Crew::next_wakeup() const {
  for (const auto& [key, process] : processes_)
    if (process.is_assigned && !process.is_frozen) return beat_at_;
  return std::nullopt;
}

void Crew::on_time(TimePoint now) {
  if (now < beat_at_) return;
  while (beat_at_ <= now) beat_at_ += kHeartbeat;
  for (auto& [key, process] : processes_)
    if (process.is_assigned && !process.is_frozen) beat(process);
}

void Crew::beat(Process& process) {
  if (!process.is_stalled) ++process.heartbeat.samples;
  if (process.heartbeat.phase.empty()) process.heartbeat.phase = "train";
  from_rank(process.node, link_of(process.generation, process.rank), process.heartbeat);
}

void Crew::from_rank(const NodeId& node, core::ConnectionId connection, link::FromWorker message) {
  world_.agent_event(node, core::agent_event::FromWorker{connection, 0, std::move(message)});
}

}  // namespace sgd::test
