// Trials that take another one's state, which is reported before it is saved: the copy is held until it is stored.

#include <catch2/catch.hpp>

#include "common/exit_codes.hpp"
#include "experiment_bench.hpp"

namespace sgd::core {
namespace {

constexpr Duration kCopyLimit = CoordinatorSettings{}.copy_limit;

nlohmann::json copying(int samples = 2) {
  return {{"samples", samples},
          {"concurrent", samples},
          {"max_failures", 1},
          {"scheduler", {{"type", "pbt"}, {"quantile", 0.5}, {"interval_epochs", 1}}}};
}

/// Of a trial that was to copy, 1 where nothing else is said; 0 is the better one.
class CopyBench : public ExperimentBench {
 public:
  explicit CopyBench(const nlohmann::json& tune = copying()) {
    begin(tune);
    for (int trial = 0; trial < tune.at("samples").get<int>(); ++trial) start(trial);
  }
  /// 0 has reported epoch 2 and not saved it yet, 1 is to copy that. `saved`: epoch 1 of 0.
  void compare(bool saved = true) {
    if (saved) save(0, 1);
    report(0, 1, 0.8);
    report(0, 2, 0.9);
    report(1, 1, 0.1);
    REQUIRE(cloned().empty());
  }
  void leave(int trial) {
    exit(trial, worker_exit::kStopped);
    clear(trial);
  }
  [[nodiscard]] std::vector<nlohmann::ordered_json> cloned() const { return events("trial_cloned"); }
  /// What was to be copied so far.
  [[nodiscard]] std::vector<std::string> sources() const {
    std::vector<std::string> paths;
    for (const CoordinatorCommand& command : all())
      if (const auto* take = std::get_if<coordinator_command::TakeCheckpoint>(&command)) paths.push_back(take->from);
    return paths;
  }
  [[nodiscard]] std::string saved(int trial, int epoch) const {
    return "/x/trials/000" + std::to_string(trial) + "/" + path_of(trial, epoch);
  }
};

}  // namespace

TEST_CASE("copies: a copy waits for the state that was compared, and its trial goes on meanwhile") {
  CopyBench bench;
  bench.compare();
  CHECK(bench.phase_of(1) == RunPhase::kRunning);
  bench.report(1, 2, 0.99);  // Of a state that it gives up.
  bench.save(0, 2);
  CHECK(bench.sources() == std::vector<std::string>{bench.saved(0, 2)});
  REQUIRE(bench.cloned().size() == 1);
  CHECK(bench.cloned().front().at("iteration") == 2);
  CHECK(bench.cloned().front().at("donor") == 0);
  bench.leave(1);
  CHECK(bench.trial(1).phase == TrialPhase::kRunning);
  CHECK(bench.trial(1).best == 0.1);
  bench.start(1);
  bench.report(1, 3, 0.95);
  CHECK(bench.trial(1).iteration == 3);
  CHECK(bench.trial(1).best == 0.95);
}

TEST_CASE("copies: a newer state does, and the copy is as far as that") {
  CopyBench bench;
  bench.compare();
  bench.report(0, 3, 0.9);
  bench.save(0, 3);  // Nothing was saved at 2.
  CHECK(bench.sources() == std::vector<std::string>{bench.saved(0, 3)});
  CHECK(bench.cloned().front().at("iteration") == 3);
}

TEST_CASE("copies: after a limit the copy is of what there is, and goes on counting from there; limit copy_limit") {
  CopyBench bench;
  bench.compare();
  bench.later(kCopyLimit - 1ms);
  CHECK(bench.cloned().empty());
  REQUIRE(bench.coordinator().next_wakeup());
  bench.later(1ms);
  CHECK(bench.sources() == std::vector<std::string>{bench.saved(0, 1)});
  CHECK(bench.cloned().front().at("iteration") == 1);
  bench.leave(1);
  bench.start(1);
  bench.report(1, 2, 0.1);  // It does epoch 2 itself, and is compared by it.
  CHECK(bench.events("trial_decided").back().at("trial") == 1);
  CHECK(bench.events("trial_decided").back().at("iteration") == 2);
}

TEST_CASE("copies: reports of a command go on being counted where its copy was") {
  ExperimentBench bench;
  bench.tell(coordinator_event::Submitted{ExperimentBench::command_definition(copying())});
  for (const int trial : {0, 1}) bench.start(trial);
  bench.save(0, 1);
  for (const int round : {1, 2, 3}) bench.report(0, round, 0.9);
  bench.report(1, 1, 0.1);
  CHECK(bench.trial(1).reports == 1);
  bench.later(kCopyLimit);
  REQUIRE(bench.events("trial_cloned").size() == 1);
  CHECK(bench.events("trial_cloned").front().at("iteration") == 1);
  CHECK(bench.trial(1).reports == 1);
}

TEST_CASE("copies: of a long life the newest reports are known by their steps; limit kReportStepsMax") {
  CopyBench bench;
  bench.save(0, 1);
  const int epochs = static_cast<int>(kReportStepsMax) + 10;
  for (int epoch = 1; epoch <= epochs; ++epoch) bench.report(0, epoch, 0.9);
  CHECK(bench.trial(0).steps.size() == kReportStepsMax);
  CHECK(bench.trial(0).steps.rbegin()->second == epochs);
  bench.report(1, 1, 0.1);
  bench.later(kCopyLimit);
  // Of what is older it is only known that it is before all of them.
  CHECK(bench.cloned().front().at("iteration") == epochs - static_cast<int>(kReportStepsMax));
}

TEST_CASE("copies: where nothing can be copied any more the trial is what it was") {
  CopyBench bench;
  bench.compare(false);
  const tune::Values values = bench.trial(1).values;
  bench.report(1, 2, 0.2);
  bench.finish(0);  // It has never saved.
  REQUIRE(bench.cloned().size() == 1);
  CHECK(bench.cloned().front().at("checkpoint").is_null());
  CHECK(bench.cloned().front().at("iteration") == 1);
  bench.leave(1);
  CHECK(bench.trial(1).phase == TrialPhase::kRunning);
  CHECK(bench.trial(1).values == values);
  CHECK(bench.trial(1).iteration == 2);  // What it has said meanwhile counts.
}

TEST_CASE("copies: a trial that comes to its own end before its copy is made goes on with that") {
  CopyBench bench;
  bench.compare();
  bench.finish(1);
  REQUIRE(bench.outcome_of(bench.id(1))->state == "succeeded");
  CHECK(bench.trial(1).phase == TrialPhase::kPausing);
  bench.save(0, 2);
  REQUIRE(bench.sources() == std::vector<std::string>{bench.saved(0, 2)});
  REQUIRE(bench.is_at_work(1));
  const auto wanted = bench.wanted("n", "x.0001");
  REQUIRE(wanted);
  CHECK(wanted->generation > 1);
  CHECK(wanted->resume_from == std::vector<std::string>{"/x/trials/0001/taken/0001/step-000000000020-gen-0001"});
  bench.start(1);
  bench.report(1, 3, 0.95);
  CHECK(bench.trial(1).best == 0.95);
}

TEST_CASE("copies: a trial that comes to its own end has ended when there is nothing to copy") {
  CopyBench bench;
  bench.compare(false);
  bench.report(1, 2, 0.2);
  bench.finish(1);
  bench.finish(0);
  CHECK(bench.trial(1).phase == TrialPhase::kEnded);
  CHECK(bench.trial(1).outcome == tune::Outcome::kCompleted);
  CHECK(bench.trial(1).best == 0.2);
  CHECK(bench.outcome_of("x")->state == "succeeded");
}

TEST_CASE("copies: a trial that fails before its copy is made goes on with that, and has one failure less") {
  CopyBench bench;
  bench.compare();
  bench.exit(1, 0, 9);
  bench.clear(1);
  CHECK(bench.trial(1).failures == 1);
  CHECK_FALSE(bench.is_at_work(1));
  bench.save(0, 2);
  CHECK(bench.is_at_work(1));
  CHECK(bench.trial(1).origin == "/x/trials/0001/taken/0001/step-000000000020-gen-0001");
}

TEST_CASE("copies: an experiment that is stopped while a copy is held makes it when it goes on") {
  CopyBench bench;
  bench.compare();
  const std::string from = bench.saved(0, 2);
  bench.tell(coordinator_event::StopRequested{"x", {StopRequest::Why::kSignal, 2, false, {}}});
  bench.save(0, 2);
  for (const int trial : {0, 1}) bench.leave(trial);
  REQUIRE(bench.outcome_of("x")->state == "interrupted");
  CHECK(bench.sources().empty());
  CHECK_FALSE(bench.coordinator().next_wakeup());
  bench.tell(coordinator_event::ExperimentResumed{"x", 0});
  CHECK(bench.sources() == std::vector<std::string>{from});
  CHECK(bench.trial(1).phase == TrialPhase::kRunning);
  const auto wanted = bench.wanted("n", "x.0001");
  REQUIRE(wanted);
  CHECK(wanted->resume_from == std::vector<std::string>{"/x/trials/0001/taken/0001/step-000000000020-gen-0001"});
}

TEST_CASE("copies: after the coordinator's restart a copy is waited for anew") {
  CopyBench bench;
  bench.compare();
  bench.later(kCopyLimit - 1s);
  bench.tell(coordinator_event::Restarted{});
  bench.later(kCopyLimit - 1s);
  CHECK(bench.cloned().empty());
  bench.later(1s);
  CHECK(bench.cloned().size() == 1);
}

TEST_CASE("copies: what is to be copied may be what its owner is to copy itself") {
  for (int seed = 0; seed < 32; ++seed) {
    nlohmann::json tune = copying(4);
    tune["seed"] = seed;
    CopyBench bench(tune);
    for (const int trial : {0, 1, 2, 3}) bench.save(trial, 1);
    for (const int trial : {0, 1, 2, 3}) bench.report(trial, 1, 0.8 - 0.1 * trial);
    if (bench.events("trial_decided").back().at("donor") != 1) continue;  // 1 is a clone of 0 by then.
    const std::string taken = "/x/trials/0001/taken/0001/step-000000000010-gen-0001";
    CHECK(bench.sources() == std::vector<std::string>{bench.saved(0, 1), bench.saved(0, 1), taken});
    return;
  }
  FAIL("no seed has made trial 3 copy trial 1");
}

TEST_CASE("copies: a state that is given up is copied before that by who waits for it") {
  CopyBench bench(copying(3));
  bench.save(1, 1);
  bench.report(1, 2, 0.5);  // Which is not saved.
  bench.report(0, 1, 0.1);
  bench.report(2, 1, 0.9);
  bench.report(1, 3, 0.05);  // Whom 0 is to copy is to copy 2.
  REQUIRE(bench.experiment().copies_.size() == 2);
  bench.save(2, 1);
  CHECK(bench.sources() == std::vector<std::string>{bench.saved(1, 1), bench.saved(2, 1)});
}

}  // namespace sgd::core
