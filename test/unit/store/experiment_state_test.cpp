// An experiment's machine that is made of its saved state goes on as the one that it was taken of, whenever that was.

#include <catch2/catch.hpp>

#include "../core/experiment_bench.hpp"
#include "common/exit_codes.hpp"
#include "launcher/storage/event_codec.hpp"
#include "launcher/storage/state_codec.hpp"

namespace sgd::storage {
namespace {

/// Before each event, and after it: a machine made of text is the same, and does the same.
class Twins : public core::ExperimentBench {
 public:
  explicit Twins(int slots = 4) : ExperimentBench(slots) {
    before = [this](const core::CoordinatorEvent& event) { check(event); };
  }
  int checked = 0;

 private:
  static std::vector<StateRow> rows_of(const core::Coordinator& machine) { return encode_state(machine.state()); }
  void check(const core::CoordinatorEvent& event) {
    auto state = decode_state(rows_of(coordinator()));
    REQUIRE(state.ok());
    core::Coordinator twin({}, std::move(state).value());
    auto original = decode_state(rows_of(coordinator()));
    core::Coordinator other({}, std::move(original).value());
    const auto stored = decode_event(encode_event(event));
    REQUIRE(stored.ok());
    core::CoordinatorCommands of_twin;
    core::CoordinatorCommands of_other;
    twin.on({}, stored.value(), of_twin);
    other.on({}, event, of_other);
    REQUIRE(texts(of_twin) == texts(of_other));
    if (last_) REQUIRE(texts_of(*last_) == texts_of(rows_of(coordinator())));
    last_ = rows_of(twin);
    ++checked;
  }
  static std::vector<std::string> texts_of(const std::vector<StateRow>& rows) {
    std::vector<std::string> texts;
    for (const StateRow& row : rows) texts.push_back(row.kind + " " + row.id + " " + row.text);
    return texts;
  }
  static std::vector<std::string> texts(const core::CoordinatorCommands& commands) {
    std::vector<std::string> texts;
    for (const core::CoordinatorCommand& command : commands)
      if (const auto* event = std::get_if<core::coordinator_command::RecordEvent>(&command))
        texts.push_back(event->run + " " + event->event.dump());
    return texts;
  }
  std::optional<std::vector<StateRow>> last_;
};

void live(Twins& twins, int trial, double value) {
  twins.start(trial);
  twins.report(trial, 1, value);
  twins.save(trial, 1);
}

/// As another version of the program would have stored it.
std::string of_another_version(std::string text) {
  const std::string known = "\"asha\"";
  for (std::size_t at = text.find(known); at != std::string::npos; at = text.find(known))
    text.replace(at, 6, "\"bohb\"");
  return text;
}

constexpr const char* kAnotherVersion = "its job was submitted to another version of sgd-launch, and this one refuses";

}  // namespace

TEST_CASE("experiment's state: one that this version does not understand ends its trials and fails, and nothing else") {
  Twins twins;
  twins.begin({{"scheduler", {{"type", "asha"}}}, {"concurrent", 2}});
  core::RunDefinition other = core::ExperimentBench::definition(nlohmann::json::object());
  other.id = "other";
  other.run_dir = "/other";
  other.base->given.erase("tune");
  other.job = *job::load_given(std::exchange(other.base, std::nullopt)->given, "/", {}).job;
  twins.tell(core::coordinator_event::Submitted{other});
  live(twins, 0, 0.5);
  std::vector<StateRow> rows = encode_state(twins.coordinator().state());
  for (StateRow& row : rows) row.text = of_another_version(row.text);
  auto state = decode_state(rows);
  REQUIRE(state.ok());
  core::Coordinator machine({}, std::move(state).value());
  core::CoordinatorCommands commands;
  machine.on({}, core::coordinator_event::Restarted{}, commands);
  const auto experiment = machine.snapshot({}, "x");
  REQUIRE(experiment);
  CHECK(machine.snapshot({}, "x.0000")->phase == core::RunPhase::kStopping);
  CHECK(machine.snapshot({}, "other")->phase == twins.coordinator().snapshot({}, "other")->phase);
  // Its node is gone with all that was there: the trials end, and the experiment with them.
  machine.on({}, core::coordinator_event::StopRequested{"x", {core::StopRequest::Why::kCancelled, 0, true, {}}},
             commands);
  const auto has = [&commands](const std::string& name) {
    return std::any_of(commands.begin(), commands.end(), [&](const core::CoordinatorCommand& command) {
      const auto* event = std::get_if<core::coordinator_command::RecordEvent>(&command);
      return event != nullptr && event->run == "x" && event->event.at("event") == name;
    });
  };
  CHECK(has("experiment_unreadable"));
  CHECK_FALSE(has("trial_decided"));
  cluster::NodeState anew;
  anew.node = "n";
  anew.incarnation = 99;
  anew.slots = 4;
  anew.is_new_link = true;
  machine.on({}, core::coordinator_event::FromAgent{"n", anew}, commands);
  const core::RunOutcome* outcome = nullptr;
  for (const core::CoordinatorCommand& command : commands)
    if (const auto* finished = std::get_if<core::coordinator_command::FinishRun>(&command))
      if (finished->run == "x") outcome = &finished->outcome;
  REQUIRE(outcome != nullptr);
  CHECK(outcome->state == "failed");
  CHECK(outcome->exit_code == exit_code::kFailed);
  CHECK(outcome->error.starts_with(kAnotherVersion));
  CHECK_FALSE(machine.snapshot({}, "other")->phase == core::RunPhase::kFinished);
  CHECK(decode_state(encode_state(machine.state())).ok());
}

TEST_CASE("experiment's state: a stored submission that this version does not understand fails by itself") {
  const core::CoordinatorEvent submitted =
      core::coordinator_event::Submitted{core::ExperimentBench::definition({{"scheduler", {{"type", "asha"}}}})};
  const auto stored = decode_event(of_another_version(encode_event(submitted)));
  REQUIRE(stored.ok());
  core::Coordinator machine;
  core::CoordinatorCommands commands;
  machine.replay({}, stored.value(), commands);
  const auto& finished = std::get<core::coordinator_command::FinishRun>(commands.back());
  CHECK(finished.run == "x");
  CHECK(finished.outcome.error.starts_with(kAnotherVersion));
  CHECK_FALSE(machine.state().experiments_.at("x").why_not_resumed(8).empty());
}

TEST_CASE("experiment's state: trials, their ends, the best one") {
  Twins twins;
  twins.begin();
  for (const int trial : {0, 1, 2, 3}) {
    live(twins, trial, 0.1 * trial);
    if (trial == 2)
      twins.exit(trial, 0, 9);
    else
      twins.exit(trial);
    twins.clear(trial);
  }
  CHECK(twins.checked > 20);
  CHECK(twins.outcome_of("x")->state == "succeeded");
}

TEST_CASE("experiment's state: schedulers, pauses, stops and what goes on after them") {
  Twins twins(1);
  twins.begin({{"samples", 3},
               {"concurrent", 1},
               {"scheduler", {{"type", "asha"}, {"reduction_factor", 3}, {"mode", "promote"}}}});
  for (const int trial : {0, 1, 2}) {
    live(twins, trial, trial == 1 ? 0.9 : 0.5);
    twins.exit(trial, worker_exit::kStopped);
    twins.clear(trial);
  }
  twins.start(1);
  core::StopRequest stop;
  stop.why = core::StopRequest::Why::kSignal;
  stop.signal = 15;
  twins.tell(core::coordinator_event::StopRequested{"x", stop});
  twins.exit(1, worker_exit::kStopped);
  for (const int trial : {0, 1, 2}) twins.clear(trial);
  CHECK(twins.outcome_of("x")->state == "interrupted");
  twins.tell(core::coordinator_event::ExperimentResumed{"x", 0});
  twins.start(1);
  twins.report(1, 3, 0.95);
  CHECK(twins.trial(1).best == 0.95);
}

TEST_CASE("experiment's state: a search program's trials") {
  Twins twins;
  twins.begin({{"samples", 3}, {"search", {{"type", "exec"}, {"command", {"search"}}}}});
  CHECK(twins.events("trials_wanted").size() == 1);
  const auto say = [&twins](const std::string& line) { twins.tell(core::coordinator_event::SearchSaid{"x", line}); };
  say(R"({"type":"trial","trial":1,"parameters":{"training.optimizer.lr":0.5}})");
  live(twins, 1, 0.5);
  say(R"({"type":"kill","trial":1})");
  twins.exit(1, worker_exit::kStopped);
  twins.clear(1);
  CHECK(twins.trial(1).outcome == tune::Outcome::kCancelled);
  say(R"({"type":"trial","trial":0,"parameters":{"training.optimizer.lr":0.4}})");
  live(twins, 0, 0.9);
  twins.finish(0);
  CHECK_FALSE(twins.experiment().trials_.contains(1));
  say(R"({"type":"kill","trial":1})");  // It has been given, and has ended.
  CHECK(twins.experiment().search_error_.empty());
  say(R"({"type":"no_more"})");
  CHECK(twins.outcome_of("x")->state == "succeeded");
}

TEST_CASE("experiment's state: what one trial does changes no other one's row") {
  core::ExperimentBench bench;
  bench.begin({{"samples", 4}, {"concurrent", 4}});
  for (const int trial : {0, 1, 2, 3}) bench.start(trial);
  const auto rows = [&bench] {
    std::map<std::string, std::string> texts;
    for (const StateRow& row : encode_state(bench.coordinator().state())) texts[row.kind + " " + row.id] = row.text;
    return texts;
  };
  const auto before = rows();
  bench.report(2, 1, 0.5);
  std::set<std::string> changed;
  for (const auto& [name, text] : rows())
    if (!before.contains(name) || before.at(name) != text) changed.insert(name);
  CHECK(changed.contains("trial x.000000002"));
  CHECK_FALSE(changed.contains("trial x.000000001"));
  const auto whole = encode_state(bench.coordinator().state());
  auto state = decode_state(whole);
  REQUIRE(state.ok());
  CHECK(state.value().experiments_.at("x").state().trials_.size() == 4);
  std::vector<StateRow> torn;
  std::copy_if(whole.begin(), whole.end(), std::back_inserter(torn),
               [](const StateRow& row) { return row.kind != "experiment"; });
  CHECK(decode_state(torn).error().message == "experiment x is missing, and its trials are there");
}

}  // namespace sgd::storage
