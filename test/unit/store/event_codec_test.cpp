#include "launcher/storage/event_codec.hpp"

#include <cmath>
#include <vector>

#include <catch2/catch.hpp>

#include "common/job/load.hpp"
#include "common/messages/codec.hpp"
#include "launcher/core/coordinator.hpp"
#include "launcher/storage/state_codec.hpp"

using namespace sgd;
using namespace std::chrono_literals;
using core::CoordinatorEvent;

namespace {

job::JobSpec job_of(const char* text) {
  auto loaded = job::load_resolved(nlohmann::json::parse(text));
  REQUIRE(loaded.job.has_value());
  return *loaded.job;
}

core::RunDefinition definition() {
  core::RunDefinition run;
  run.id = "job-20261121-101500-4f2a";
  run.parent = "search";
  run.job = job_of(R"({"name": "job", "num_workers": 3, "recovery": {"max_failures": 7}, "training": {"batch_size": 8,
                       "loss": "mse", "model": {"type": "linear"}, "dataset": {"type": "linear"}}})");
  run.run_dir = "/runs/job \"quoted\"\n\xc3\xbc";
  run.placement_timeout = 1500ms;
  run.priority = -3;
  run.owner = "somebody";
  run.may_be_root = true;
  run.is_of_admin = true;
  run.request_id = "request-1";
  core::RunPast past;
  past.generation = 4;
  past.checkpoints = {"/a", "/b"};
  past.written = link::ReportKey{3, "train", 17, 2};
  past.reports = 12;
  past.epochs = 2;
  past.steps = 1234567890123;
  past.failures = 5;
  past.wall_s = 12.5;
  past.shape = {{0, 1}, {2}};
  past.is_same_job = true;
  past.scores = {{1200, 1.0 / 3}, {2400, 0.25}};
  past.metrics = {{"train", {{"zeta", 1.0 / 3}, {"alpha", 2}}}, {"validate", nullptr}};
  run.past = past;
  return run;
}

/// One of each, and more than one where fields may be absent.
std::vector<CoordinatorEvent> samples() {
  using namespace core::coordinator_event;
  core::RunDefinition bare;
  bare.id = "bare";
  bare.job = job_of(R"({"name": "bare", "command": ["true"]})");
  const link::Report report{{1, "train", 2, 3}, 40, {{"train_loss", 0.1}, {"grad", std::nan("")}}};
  const core::StopRequest full{core::StopRequest::Why::kSignal, 15, true, 2500ms};
  return {
      Submitted{definition()},
      Submitted{bare},
      FromAgent{"a", cluster::NodeState{"a", 18446744073709551615ULL, "10.0.0.1", 4, 8, true, {{"run", 3}}}},
      FromAgent{"a", cluster::Fact{7, 5, "run", 2, cluster::Report{1, report}}},
      FromAgent{"a", cluster::Fact{7, 6, "run", 2,
                                   cluster::WorkerExited{1,
                                                         99,
                                                         -1,
                                                         9,
                                                         true,
                                                         false,
                                                         "m",
                                                         {"x", "y"},
                                                         R"({"a": 1})",
                                                         3,
                                                         0.25,
                                                         {"E", "bad", {"f"}, 1.5},
                                                         {},
                                                         "GPU-a"}}},
      FromAgent{"a", cluster::Fact{7, 8, "run", 2, cluster::ExchangePut{1, "key", {{"a", 1}}}}},
      FromAgent{"a", cluster::Progress{"run", 2, 1, {}}},
      FromAgent{"a", cluster::Beat{}},
      AgentClosed{"a"},
      FromAgent{"a", cluster::Fact{7, 9, "run", 2, cluster::PortReserved{65535}}},
      StopRequested{"run", full},
      StopRequested{"run", {core::StopRequest::Why::kTimeout, 0, false, {}}},
      StopRequested{"run", {core::StopRequest::Why::kCancelled, 0, false, {}}},
      NodeSilent{"a", 5.125},
      NodeOrdered{"a", {core::NodeOrder::Kind::kDrain, -1}},
      NodeOrdered{"a", {core::NodeOrder::Kind::kUndrain, -1}},
      NodeOrdered{"a", {core::NodeOrder::Kind::kRemove, -1}},
      NodeOrdered{"a", {core::NodeOrder::Kind::kSetSlots, 7}},
      RunForgotten{"run"},
      NodesKnown{{{"a", {"a", 18446744073709551615ULL, "10.0.0.1", 4, 8, true, {}}, 77, true, {}},
                  {"b", {"b", 2, "", 0, 0, false, {}}, 0, false, TimePoint(5s)}},
                 {{"a", true, 3, {TimePoint(1s), TimePoint(2s)}, TimePoint(9s)}, {"b", false, {}, {}, {}}}},
      NodesKnown{},
      ExperimentResumed{"run", 16},
      ExperimentResumed{"run", 0},
      SearchSaid{"run", R"({"no_more": true})"},
      SearchFailed{"run", "it has ended with exit code 3"},
      FromAgent{"a", cluster::Fact{7, 10, "run", 2, cluster::WorkerStarted{1, 99, {"0", "GPU-a"}}}},
      FromAgent{"a", cluster::Fact{7, 11, "run", 2, cluster::RanksRaised{{{1, {"E", "bad", {"f"}, 1.5}, "GPU-a"}}}}},
      FromAgent{"a", cluster::Fact{7, 12, "run", 2, cluster::OutputDropped{1, 5, 60, "log file l: No space left"}}},
      CheckpointStored{"run", "checkpoints/step-000000000010-gen-0001"},
      Restarted{},
      Tick{},
  };
}

std::string words(std::string_view text) {
  const auto event = storage::decode_event(text);
  return event ? "" : event.error().message;
}

}  // namespace

TEST_CASE("event codec: every event comes back as it was") {
  std::vector<bool> seen(std::variant_size_v<CoordinatorEvent>);
  for (const CoordinatorEvent& event : samples()) {
    seen[event.index()] = true;
    const std::string text = storage::encode_event(event);
    INFO(text);
    CHECK(text.find('\n') == std::string::npos);
    const auto back = storage::decode_event(text);
    REQUIRE(back.ok());
    CHECK(back.value().index() == event.index());
    CHECK(storage::encode_event(back.value()) == text);
  }
  for (std::size_t index = 0; index < seen.size(); ++index) {
    INFO("alternative " << index << " has no sample");
    CHECK(seen[index]);
  }
}

TEST_CASE("event codec: a run's definition is whole") {
  const auto text = storage::encode_event(core::coordinator_event::Submitted{definition()});
  const auto event = storage::decode_event(text);
  REQUIRE(event.ok());
  const core::RunDefinition& run = std::get<core::coordinator_event::Submitted>(event.value()).run;
  const core::RunDefinition was = definition();
  CHECK(run.id == was.id);
  CHECK(run.parent == was.parent);
  CHECK(run.run_dir == was.run_dir);
  CHECK(run.placement_timeout == was.placement_timeout);
  CHECK(run.request_id == was.request_id);
  CHECK(run.priority == -3);
  CHECK(run.owner == "somebody");
  CHECK(run.may_be_root);
  CHECK(run.is_of_admin);
  CHECK(run.job.resolved == was.job.resolved);
  CHECK(run.job.num_workers == 3);
  CHECK(run.job.recovery.max_failures == 7);
  CHECK(run.job.training.has_value());
  REQUIRE(run.past.has_value());
  CHECK(run.past->generation == 4);
  CHECK(run.past->checkpoints == was.past->checkpoints);
  REQUIRE(run.past->written.has_value());
  CHECK(run.past->written->batch == 17);
  CHECK(run.past->steps == 1234567890123);
  CHECK(run.past->scores == was.past->scores);
  CHECK(run.past->metrics.dump() == was.past->metrics.dump());  // With the order of its keys.
}

TEST_CASE("state codec: of a run that has finished comes back the little that is kept") {
  core::Coordinator machine;
  core::CoordinatorCommands commands;
  core::RunDefinition run = definition();
  run.past.reset();
  machine.on(TimePoint{}, core::coordinator_event::Submitted{run}, commands);
  machine.on(TimePoint{}, core::coordinator_event::StopRequested{run.id, {}}, commands);
  const auto state = [&](const core::CoordinatorState& of) -> const core::RunState& {
    return of.runs_.at(run.id).state();
  };
  REQUIRE(state(machine.state()).phase_ == core::RunPhase::kFinished);
  const auto rows = storage::encode_state(machine.state());
  const auto back = storage::decode_state(rows);
  REQUIRE(back.ok());
  const core::RunDefinition& kept = state(back.value()).definition_;
  CHECK(kept.owner == run.owner);
  CHECK(kept.job.name == run.job.name);
  CHECK(kept.job.num_workers == 3);
  CHECK(kept.job.training->epochs == run.job.training->epochs);
  CHECK(kept.job.resolved->is_null());
  const auto again = storage::encode_state(back.value());
  REQUIRE(again.size() == rows.size());
  for (std::size_t row = 0; row < rows.size(); ++row) CHECK(again[row].text == rows[row].text);
}

TEST_CASE("state codec: a coordinator that is started again knows which GPU a run does without") {
  core::Coordinator machine;
  core::CoordinatorCommands commands;
  cluster::NodeState state{"a", 7, "10.0.0.1", 4, 8, true, {}};
  state.gpus = 2;
  const auto from = [&](core::Coordinator& to, cluster::FromAgent message) {
    commands.clear();
    to.on(TimePoint{}, core::coordinator_event::FromAgent{"a", std::move(message)}, commands);
  };
  from(machine, state);
  core::RunDefinition run;
  run.id = "run";
  run.run_dir = "/run";
  run.job = job_of(R"({"name": "job", "num_workers": 1, "per_worker": {"gpus": 1},
                       "recovery": {"max_failures": 7, "exclude_after": 1}, "training": {"batch_size": 8,
                       "loss": "mse", "model": {"type": "linear"}, "dataset": {"type": "linear"}}})");
  CHECK(run.job.recovery.exclude_after == 1);
  machine.on(TimePoint{}, core::coordinator_event::Submitted{run}, commands);
  const auto of_run = [&](const core::Coordinator& of) { return of.state().runs_.at("run").state(); };
  std::int64_t sequence = 0;
  const auto fact = [&](cluster::FactBody body, Generation generation, GenerationUid uid) {
    return cluster::Fact{7, ++sequence, "run", generation, std::move(body), uid};
  };
  const GenerationUid uid = of_run(machine).generation_uid_;
  from(machine, fact(cluster::WorkerStarted{0, 99, {"GPU-a"}}, 1, uid));
  from(machine, fact(cluster::WorkerFirstStep{0, 1}, 1, uid));
  cluster::WorkerExited exited;
  exited.exit_code = 70;
  exited.gpu = "GPU-a";
  from(machine, fact(exited, 1, uid));
  const auto rows = storage::encode_state(machine.state());
  auto back = storage::decode_state(rows);
  REQUIRE(back.ok());
  core::Coordinator again({}, std::move(back).value());
  CHECK(of_run(again).gpu_faults_ == core::GpuFaults{{"a", {{"GPU-a", 1}}}});
  CHECK(of_run(again).ranks_.at(0).gpus == std::vector<std::string>{"GPU-a"});
  from(again, fact(cluster::Cleared{}, 2, of_run(again).desired_uid_));
  std::vector<std::string> left_out;
  for (const auto& command : commands)
    if (const auto* send = std::get_if<core::coordinator_command::SendToAgent>(&command))
      if (const auto* desired = std::get_if<cluster::DesiredRun>(&send->message)) left_out = desired->left_out_gpus;
  CHECK(left_out == std::vector<std::string>{"GPU-a"});
}

TEST_CASE("event codec: numbers that JSON has no word for, and the fields of others") {
  const auto samples_of = samples();
  const auto report = storage::decode_event(storage::encode_event(samples_of[3]));
  REQUIRE(report.ok());
  const auto& fact = std::get<cluster::Fact>(std::get<core::coordinator_event::FromAgent>(report.value()).message);
  const auto& metrics = std::get<cluster::Report>(fact.body).report.metrics;
  CHECK(std::isnan(metrics.at("grad").get<double>()));
  CHECK(metrics.at("train_loss").get<double>() == 0.1);
  const auto stop = storage::decode_event(storage::encode_event(samples_of[10]));
  const auto& request = std::get<core::coordinator_event::StopRequested>(stop.value()).request;
  CHECK(request.why == core::StopRequest::Why::kSignal);
  CHECK(request.signal == 15);
  CHECK(request.at_once);
  CHECK(request.grace == Duration(2500ms));
}

TEST_CASE("event codec: what it does not know it refuses") {
  CHECK(words("nonsense") == "message is not JSON");
  CHECK(words(R"({"type":"tick"})") == "\"v\" is missing");
  CHECK(words(R"({"v":2,"type":"tick"})") == "version 2 of events; this sgd-launch knows 1");
  CHECK(words(R"({"v":1})") == "\"type\" is missing");
  CHECK(words(R"({"v":1,"type":"tock"})") == "unknown type \"tock\"");
  CHECK(words(R"({"v":1,"type":"agent_closed"})") == "agent_closed: \"node\" is missing");
  CHECK(words(R"({"v":1,"type":"agent_closed","node":5})").find("must be a string") != std::string::npos);
  CHECK(words(R"({"v":1,"type":"from_agent","node":"a","message":{"type":"new"}})").find("unknown type") !=
        std::string::npos);
  CHECK(words(R"({"v":1,"type":"stop_requested","run":"r","request":{"signal":0,"at_once":false,"why":"mood"}})") ==
        "stop_requested: \"why\" has the unknown value \"mood\"");
  auto event = nlohmann::json::parse(storage::encode_event(core::coordinator_event::Submitted{definition()}));
  event["run"]["job"]["num_workers"] = 0;
  CHECK(words(event.dump()).find("the job of run job-20261121-101500-4f2a is refused") != std::string::npos);
  for (const char* key : {"id", "job", "run_dir", "placement_timeout_ns", "priority", "owner", "request_id"}) {
    auto less = event;
    less["run"].erase(key);
    CHECK(words(less.dump()).find(key) != std::string::npos);
  }
}
