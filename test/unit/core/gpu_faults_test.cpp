// GPUs that a run does without: who names them, how they are counted, and where its ranks go then.
#include "launcher/core/gpu_faults.hpp"

#include <csignal>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "common/exit_codes.hpp"
#include "launcher/core/agent.hpp"
#include "launcher/core/gpu_failure.hpp"
#include "test/unit/core/coordinator_bench.hpp"

using namespace sgd;
using core::CoordinatorBench;
using core::GpuNames;

namespace {

constexpr const char* kEcc = "cuda:0 has failed: CUDA error: uncorrectable ECC error encountered";

/// Whose nodes have GPUs, and number their facts themselves.
class GpuBench : public CoordinatorBench {
 public:
  void add_node(const NodeId& node, int gpus) {
    cluster::NodeState state;
    state.node = node;
    state.incarnation = 1;
    state.slots = 8;
    state.gpus = gpus;
    state.is_new_link = true;
    from(node, state);
  }
  void say(const NodeId& node, const RunId& run, cluster::FactBody body, Generation generation) {
    fact(node, run, ++told_[node], std::move(body), generation);
  }

 private:
  std::map<NodeId, std::int64_t> told_;
};

core::RunDefinition run_of(const RunId& id, int workers, int exclude_after) {
  core::RunDefinition run;
  run.id = id;
  run.run_dir = "/" + id;
  run.job.num_workers = workers;
  run.job.per_worker.gpus = 1;
  run.job.recovery.max_failures = job::kUnlimited;
  run.job.recovery.exclude_after = exclude_after;
  run.job.recovery.backoff.attempts = 2;
  run.job.training.emplace();
  run.job.resolved = nlohmann::json{{"training", nlohmann::json::object()}};
  return run;
}

/// A run of which this plays the agents: each of its ranks has a GPU.
class Play {
 public:
  Play(GpuBench& bench, RunId run) : bench_(bench), run_(std::move(run)) {}

  void submit(int workers, int exclude_after = 2) {
    bench_.on(core::coordinator_event::Submitted{run_of(run_, workers, exclude_after)});
  }
  /// All ranks of the newest generation have these, and make a step.
  void train(const std::vector<std::pair<NodeId, std::string>>& places) {
    for (std::size_t rank = 0; rank < places.size(); ++rank) {
      const auto number = static_cast<Rank>(rank);
      say(places[rank].first, cluster::WorkerStarted{number, 100 + number, {places[rank].second}});
      say(places[rank].first, cluster::WorkerReady{number, {}});
      say(places[rank].first, cluster::WorkerFirstStep{number, ++step_});
    }
  }
  void fail(const NodeId& node, Rank rank, const std::string& gpu) {
    cluster::WorkerExited exited;
    exited.rank = rank;
    exited.exit_code = worker_exit::kEnvironment;
    exited.message = kEcc;
    exited.gpu = gpu;
    say(node, exited);
  }
  void clear(const NodeId& node) { bench_.say(node, run_, cluster::Cleared{}, state().desired_generation_); }
  void say(const NodeId& node, cluster::FactBody body) { bench_.say(node, run_, std::move(body), state().generation_); }
  [[nodiscard]] const core::RunState& state() const { return bench_.coordinator().state().runs_.at(run_).state(); }
  /// That its ranks on `node` must not get, by what the last event has told it.
  [[nodiscard]] GpuNames left_out(const NodeId& node) const { return bench_.wanted(node, run_).value().left_out_gpus; }

 private:
  GpuBench& bench_;
  RunId run_;
  std::int64_t step_ = 0;
};

std::vector<std::string> events(const CoordinatorBench& bench, const std::string& name) {
  std::vector<std::string> found;
  for (const auto& command : bench.commands())
    if (const auto* record = std::get_if<core::coordinator_command::RecordEvent>(&command))
      if (record->event.at("event") == name) found.push_back(record->event.dump());
  return found;
}

}  // namespace

TEST_CASE("a GPU is named by its agent, where its rank ends by an error of the device") {
  struct Row {
    const char* what;
    GpuNames own;
    bool is_training;
    bool is_own_end;
    std::string message;
    RankError error;
    std::vector<std::string> tail;
    std::string named;
  };
  const RankError ecc{"torch.AcceleratorError", "CUDA error: uncorrectable ECC error encountered\nmore", {}, 1};
  for (const Row& row : {
           Row{"training", {"GPU-a"}, true, true, kEcc, {}, {}, "GPU-a"},
           Row{"training takes the first of several", {"4", "5"}, true, true, kEcc, {}, {}, "4"},
           Row{"a command's error", {"4"}, false, true, "", ecc, {}, "4"},
           Row{"a command with several could mean any", {"4", "5"}, false, true, "", ecc, {}, ""},
           Row{"without an error, by its last lines",
               {"4"},
               false,
               true,
               "",
               {},
               {"terminate called", "  what():  CUDA error: uncorrectable ECC error encountered"},
               "4"},
           Row{"an error is what it says, whatever it has printed",
               {"4"},
               false,
               true,
               "",
               {"ValueError", "bad", {}, 1},
               {"CUDA error: uncorrectable ECC error encountered"},
               ""},
           Row{"killed", {"4"}, false, false, "", ecc, {}, ""},
           Row{"none of its own", {}, true, true, kEcc, {}, {}, ""},
           Row{"named by nobody but itself", {"4"}, false, true, "GPU-b of rank 1 is bad", {}, {}, ""},
           Row{"a kernel that reads what is not its own",
               {"4"},
               true,
               true,
               "CUDA error: an illegal memory access was encountered",
               {},
               {},
               ""},
           Row{"memory that is full", {"4"}, true, true, "CUDA error: out of memory", {}, {}, ""},
           Row{"a label that is no class", {"4"}, true, true, "CUDA error: device-side assert triggered", {}, {}, ""},
       }) {
    CAPTURE(row.what);
    CHECK(core::failed_gpu(row.own, row.is_training, {row.is_own_end, row.message, &row.error, &row.tail}) ==
          row.named);
  }
}

TEST_CASE("a GPU is named for what proves that it is broken or gone, and for nothing else") {
  const std::string seen = "CUDA sees 0 of the 2 GPUs that this process is to see (CUDA_VISIBLE_DEVICES=\"3,4\"); ";
  for (const auto& [said, named] : {
           std::pair(std::string("CUDA error: CUDA-capable device(s) is/are busy or unavailable"), ""),
           std::pair(std::string("CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error"), ""),
           std::pair(std::string("CUDA error: uncorrectable NVLink error detected during the execution"), "4"),
           std::pair(seen + "NVML says of device 4, this worker's: GPU is lost", "4"),
           std::pair(seen + "device 3 has gone, as NVML says: it is another worker's", ""),
       }) {
    CAPTURE(said);
    const std::vector<std::string> tail{"sgd-worker: " + said};
    CHECK(core::failed_gpu({"4"}, true, {true, said, nullptr, nullptr}) == named);
    CHECK(core::failed_gpu({"4"}, true, {true, "", nullptr, &tail}) == named);
  }
}

TEST_CASE("restarts are counted by node and GPU") {
  core::GpuFaults faults;
  CHECK(core::note_fault(faults, "a", "0") == 1);
  CHECK(core::note_fault(faults, "b", "0") == 1);
  CHECK(core::note_fault(faults, "a", "1") == 1);
  CHECK(core::words_of_left_out(faults, 2).empty());
  CHECK(core::note_fault(faults, "a", "1") == 2);
  CHECK(core::left_out_of(faults, "a", 2) == GpuNames{"1"});
  CHECK(core::left_out_of(faults, "b", 2).empty());
  CHECK(core::left_out_of(faults, "a", 0).empty());
  CHECK(core::left_out(faults, 0).empty());
  CHECK(core::words_of_left_out(faults, 2) == "GPU 1 of a is left out after 2 restarts");
  CHECK(core::left_out(faults, 1).size() == 3);
  for (int gpu = 2; gpu < 8; ++gpu) (void)core::note_fault(faults, "a", fmt::format("{}", gpu));
  CHECK(
      core::words_of_left_out(faults, 1) ==
      "GPU 0 of a is left out after 1 restart, GPU 1 of a is left out after 2 restarts, GPU 2 of a is left out after 1 "
      "restart, GPU 3 of a is left out after 1 restart, and 5 more");
}

TEST_CASE("a node that makes GPUs up has a bounded number of them counted") {
  core::GpuFaults faults;
  for (std::size_t gpu = 0; gpu < core::kFaultyGpusMax; ++gpu)
    (void)core::note_fault(faults, "a", fmt::format("{}", gpu));
  CHECK(core::note_fault(faults, "b", "0") == 0);
  CHECK_FALSE(faults.contains("b"));
  CHECK(core::note_fault(faults, "a", "0") == 2);
}

TEST_CASE("the cause of two restarts is left out of the run: its ranks are told, and go on elsewhere") {
  GpuBench bench;
  bench.add_node("a", 2);
  Play run(bench, "run");
  run.submit(1);
  run.train({{"a", "GPU-0"}});
  run.fail("a", 0, "GPU-0");
  CHECK(events(bench, "gpu_excluded").empty());
  run.clear("a");
  CHECK(run.left_out("a").empty());
  run.train({{"a", "GPU-0"}});
  run.fail("a", 0, "GPU-0");
  CHECK(events(bench, "gpu_excluded") ==
        std::vector<std::string>{R"({"event":"gpu_excluded","generation":2,"node":"a","device":"GPU-0","count":2})"});
  CHECK(events(bench, "failure").front().find(R"("device":"GPU-0")") != std::string::npos);
  run.clear("a");
  CHECK(run.state().phase_ == core::RunPhase::kStarting);
  CHECK(run.left_out("a") == GpuNames{"GPU-0"});
  const auto shot = bench.coordinator().snapshot({}, "run");
  CHECK(core::to_json(*shot).at("gpus_left_out").dump() == R"([{"node":"a","device":"GPU-0","restarts":2}])");
  // Where its own end is not the GPU's, nothing is counted.
  run.train({{"a", "GPU-1"}});
  run.fail("a", 0, "");
  run.clear("a");
  CHECK(core::left_out(run.state().gpu_faults_, 1).size() == 1);
}

TEST_CASE("exclude_after 0 leaves no GPU out, 1 does it at once") {
  for (const int after : {0, 1}) {
    GpuBench bench;
    bench.add_node("a", 2);
    Play run(bench, "run");
    run.submit(1, after);
    run.train({{"a", "GPU-0"}});
    run.fail("a", 0, "GPU-0");
    CHECK(events(bench, "gpu_excluded").size() == static_cast<std::size_t>(after));
    run.clear("a");
    CHECK(run.left_out("a").size() == static_cast<std::size_t>(after));
  }
}

TEST_CASE("a run for which no other GPU is there waits, and ends with 7 and their names") {
  GpuBench bench;
  bench.add_node("a", 1);
  Play run(bench, "run");
  run.submit(1);
  for (int restart = 0; restart < 2; ++restart) {
    run.train({{"a", "GPU-0"}});
    run.fail("a", 0, "GPU-0");
    run.clear("a");
  }
  REQUIRE(run.state().phase_ == core::RunPhase::kWaiting);
  CHECK(events(bench, "backoff").front().find("GPU GPU-0 of a is left out after 2 restarts") != std::string::npos);
  CHECK(bench.coordinator().snapshot({}, "run")->reason ==
        "1 worker of 1 gpu wanted, room for 0 on 1 node (a 0 of 1 gpus free besides 1 left out, 1 wanted)");
  SECTION("another node has one") {
    bench.add_node("b", 1);
    CHECK(run.state().phase_ == core::RunPhase::kStarting);
    CHECK(run.left_out("b").empty());
  }
  SECTION("none comes") {
    using namespace std::chrono_literals;
    bench.wait(3s);
    REQUIRE(run.state().phase_ == core::RunPhase::kClearing);
    run.clear("a");
    REQUIRE(bench.outcome().has_value());
    CHECK(bench.outcome()->exit_code == exit_code::kExhausted);
    CHECK(bench.outcome()->error ==
          "no capacity after 2 attempts: 1 slot wanted, 0 available; GPU GPU-0 of a is left out after 2 restarts");
  }
}

TEST_CASE("another run keeps using it, and what that one holds is none of what is free") {
  GpuBench bench;
  bench.add_node("a", 2);
  Play run(bench, "run");
  Play other(bench, "other");
  run.submit(1, 1);
  run.train({{"a", "GPU-0"}});
  run.fail("a", 0, "GPU-0");
  run.clear("a");
  CHECK(run.left_out("a") == GpuNames{"GPU-0"});
  run.train({{"a", "GPU-1"}});
  other.submit(1);
  CHECK(other.left_out("a").empty());
  SECTION("its ranks are known to have it") {
    other.train({{"a", "GPU-0"}});
    run.fail("a", 0, "");
    run.clear("a");
    CHECK(run.state().phase_ == core::RunPhase::kStarting);
  }
  SECTION("its ranks may have any") {
    run.fail("a", 0, "");
    run.clear("a");
    CHECK(run.state().phase_ == core::RunPhase::kWaiting);
    other.train({{"a", "GPU-0"}});
    CHECK(run.state().phase_ == core::RunPhase::kStarting);
  }
}

TEST_CASE("while a run waits its node knows what it does without, and gives that to another run first") {
  GpuBench bench;
  bench.add_node("a", 2);
  Play run(bench, "run");
  run.submit(1, 1);
  run.train({{"a", "GPU-1"}});
  run.fail("a", 0, "GPU-1");
  const auto wanted = bench.wanted("a", "run");
  REQUIRE(wanted);
  CHECK(wanted->want == cluster::Want::kClear);
  CHECK(wanted->left_out_gpus == GpuNames{"GPU-1"});
  core::CoreAllocation allocation({0, 1}, {"GPU-0", "GPU-1"}, true);
  allocation.leave_out("run", wanted->left_out_gpus);
  core::RankNeed need;
  need.gpus = 1;
  CHECK(allocation.allocate("other", 1, need, 2).front().gpus == GpuNames{"GPU-1"});
  CHECK(allocation.allocate("run", 1, need, 2).front().gpus == GpuNames{"GPU-0"});
}

TEST_CASE("a rank that has failed in place on a GPU that is left out may do so again on others") {
  core::RetryBudget budget(run_of("run", 1, 2).job);
  core::Failure failure;
  failure.kind = core::FailureKind::kExitCode;
  failure.rank = 0;
  failure.exit_code = worker_exit::kEnvironment;
  const core::EndedGeneration ended{true, false, 7};
  CHECK(budget.on_failure(failure, ended).restart);
  CHECK(budget.on_failure(failure, ended).restart);
  budget.on_other_gpu();
  CHECK(budget.on_failure(failure, ended).restart);
  CHECK(budget.on_failure(failure, ended).restart);
  CHECK_FALSE(budget.on_failure(failure, ended).restart);
}

namespace {

/// An agent with two GPUs, and one rank of training on it.
class OneRank {
 public:
  OneRank() : agent_(facts(), core::Secrets({1, 2, 3, 4})) { on(core::agent_event::Connected{}); }

  void on(const core::AgentEvent& event) {
    core::AgentCommands out;
    agent_.on(now_ += std::chrono::milliseconds(1), event, out);
    for (const core::AgentCommand& command : out) {
      const auto* up = std::get_if<core::agent_command::TellCoordinator>(&command);
      const auto* fact = up == nullptr ? nullptr : std::get_if<cluster::Fact>(&up->message);
      if (fact != nullptr) said_.push_back(*fact);
      const auto* told = std::get_if<core::agent_command::TellKeeper>(&command);
      const auto* spawn = told == nullptr ? nullptr : std::get_if<keeper::Spawn>(&told->message);
      if (spawn != nullptr) environment_ = spawn->environment.set;
    }
  }
  void start(Generation generation, const GpuNames& left_out) {
    cluster::DesiredRun desired;
    desired.run = "run";
    desired.generation = generation;
    desired.uid = generation;
    desired.want = cluster::Want::kRun;
    desired.ranks = {{0, 0}};
    desired.world_size = 1;
    desired.left_out_gpus = left_out;
    desired.job = nlohmann::json{
        {"per_worker", {{"cpus", 1}, {"gpus", 1}}}, {"fork_server", false}, {"training", {{"epochs", 1}}}};
    on(core::agent_event::FromCoordinator{desired});
    on(core::agent_event::KeeperStarted{"run", "link"});
    on(core::agent_event::FromKeeper{"run", keeper::Spawned{generation, 0, 100}});
  }
  void end(Generation generation, const std::string& message) {
    on(core::agent_event::FromWorker{1, 100, link::Hello{environment_.at("SGD_TOKEN"), 100, link::kProtocol, ""},
                                     "run"});
    on(core::agent_event::FromWorker{1, 100, link::Failed{message, ""}});
    keeper::Exited exited;
    exited.generation = generation;
    exited.exit_code = worker_exit::kEnvironment;
    on(core::agent_event::FromKeeper{"run", exited});
    on(core::agent_event::LinkClosed{1});
  }
  template <class Body>
  [[nodiscard]] Body last() const {
    for (auto fact = said_.rbegin(); fact != said_.rend(); ++fact)
      if (const auto* body = std::get_if<Body>(&fact->body)) return *body;
    return {};
  }
  [[nodiscard]] const std::string& seen() const { return environment_.at("CUDA_VISIBLE_DEVICES"); }

 private:
  static core::AgentFacts facts() {
    core::AgentFacts facts;
    facts.node = "a";
    facts.incarnation = 7;
    facts.slots = 2;
    facts.allowed_cores = {0, 1};
    facts.worker_program = "sgd-worker";
    facts.gpus = {"GPU-0", "GPU-1"};
    return facts;
  }
  core::Agent agent_;
  TimePoint now_{};
  std::vector<cluster::Fact> said_;
  std::map<std::string, std::string> environment_;
};

}  // namespace

TEST_CASE("an agent says which GPUs a rank has, which one has failed under it, and gives it none that is left out") {
  OneRank node;
  node.start(1, {});
  CHECK(node.seen() == "GPU-0");
  CHECK(node.last<cluster::WorkerStarted>().gpus == GpuNames{"GPU-0"});
  SECTION("an error of the device") {
    node.end(1, "GPU-1 has failed: CUDA error: uncorrectable ECC error encountered");
    CHECK(node.last<cluster::WorkerExited>().gpu == "GPU-0");  // It cannot name another rank's.
  }
  SECTION("another error") {
    node.end(1, "No space left on device");
    CHECK(node.last<cluster::WorkerExited>().gpu.empty());
  }
  OneRank other;
  other.start(1, {"GPU-0"});
  CHECK(other.seen() == "GPU-1");
  CHECK(other.last<cluster::WorkerStarted>().gpus == GpuNames{"GPU-1"});
}
