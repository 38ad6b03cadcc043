// What a rank is told by its environment, and which commands are a Python script.

#include <catch2/catch.hpp>

#include "common/job/python_command.hpp"
#include "launcher/core/core_allocation.hpp"
#include "launcher/core/rank_environment.hpp"

namespace sgd::core {
namespace {

using Words = std::vector<std::string>;

cluster::DesiredRun run_of(nlohmann::json process, nlohmann::json more = nlohmann::json::object()) {
  cluster::DesiredRun run;
  run.run = RunId("r-1");
  run.generation = 3;
  run.world_size = 4;
  run.master_address = "10.0.0.1";
  run.master_port = 4242;
  run.restart_count = 2;
  run.run_dir = "/runs/r-1";
  run.job = nlohmann::json{{"command", {"true"}},
                           {"process", std::move(process)},
                           {"per_worker", {{"cpus", 1}}},
                           {"recovery", {{"max_failures", 5}}}};
  run.job.edit().update(more);
  return run;
}

RankIdentity identity_of(Rank rank, int local_rank) {
  RankIdentity identity;
  identity.rank = rank;
  identity.local_rank = local_rank;
  identity.local_world_size = 2;
  identity.error_file = "/e.json";
  return identity;
}

TEST_CASE("rank environment: torchrun's variables, and Ray Train's NODE_RANK") {
  cluster::DesiredRun run = run_of(nlohmann::json::object());
  run.node_rank = 1;
  const keeper::Environment env = rank_environment(run, identity_of(3, 1), "/lib/python");
  for (const auto& [name, value] :
       std::map<std::string, std::string>{{"RANK", "3"},
                                          {"LOCAL_RANK", "1"},
                                          {"WORLD_SIZE", "4"},
                                          {"LOCAL_WORLD_SIZE", "2"},
                                          {"GROUP_RANK", "1"},
                                          {"NODE_RANK", "1"},
                                          {"ROLE_NAME", "default"},
                                          {"MASTER_ADDR", "10.0.0.1"},
                                          {"MASTER_PORT", "4242"},
                                          {"TORCHELASTIC_RESTART_COUNT", "2"},
                                          {"TORCHELASTIC_MAX_RESTARTS", "5"},
                                          {"TORCHELASTIC_RUN_ID", "r-1"},
                                          {"TORCHELASTIC_ERROR_FILE", "/e.json"},
                                          {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT"}}) {
    INFO(name);
    CHECK(env.set.at(name) == value);
  }
  CHECK(env.appended.at("PYTHONPATH") == "/lib/python");
}

TEST_CASE("rank environment: a training rank is told the link and who it is, and nothing of torchrun") {
  cluster::DesiredRun run = run_of({});
  run.job = nlohmann::json{{"training", nlohmann::json::object()}, {"env", {{"LEVEL", "high"}}}};
  const keeper::Environment env = rank_environment(run, identity_of(3, 1), "/lib/python");
  CHECK(env.set.contains("SGD_TOKEN"));
  CHECK(env.set.at("LEVEL") == "high");
  CHECK_FALSE(env.set.contains("RANK"));
  CHECK(env.defaults.empty());
  CHECK(env.appended.empty());
}

TEST_CASE("rank environment: what the user has set stays, and one worker has all threads") {
  const auto defaults = [](int local_world_size, nlohmann::json more) {
    return common_environment(run_of({}, std::move(more)), local_world_size, "").defaults;
  };
  CHECK(defaults(2, {{"env", {}}}).at("OMP_NUM_THREADS") == "1");
  CHECK_FALSE(defaults(1, {{"env", {}}}).contains("OMP_NUM_THREADS"));
  CHECK(defaults(1, {{"per_worker", {{"cpus", 3}}}}).at("OMP_NUM_THREADS") == "3");
  CHECK_FALSE(defaults(2, {{"env", {{"OMP_NUM_THREADS", "7"}}}}).contains("OMP_NUM_THREADS"));
  CHECK(defaults(2, {{"env", {}}}).at("TORCH_NCCL_ASYNC_ERROR_HANDLING") == "1");
}

TEST_CASE("rank environment: what the job asks for") {
  const auto env = [](nlohmann::json process) {
    return rank_environment(run_of(std::move(process), {{"env", {{"LEVEL", "high"}}}}), identity_of(3, 1), "").set;
  };
  const auto set = env({{"role", "trainer"},
                        {"rendezvous_id", "exp"},
                        {"master_addr", "h"},
                        {"master_port", 29500},
                        {"signals", {"SIGTERM"}},
                        {"virtual_local_rank", true}});
  CHECK(set.at("ROLE_NAME") == "trainer");
  CHECK(set.at("TORCHELASTIC_RUN_ID") == "exp");
  CHECK(set.at("MASTER_ADDR") == "h");
  CHECK(set.at("MASTER_PORT") == "29500");
  CHECK(set.at("TORCHELASTIC_SIGNALS_TO_HANDLE") == "SIGTERM");
  CHECK(set.at("LOCAL_RANK") == "0");
  CHECK(set.at("CUDA_VISIBLE_DEVICES") == "1");
  CHECK(set.at("LEVEL") == "high");
}

TEST_CASE("rank environment: LOCAL_RANK fits what CUDA_VISIBLE_DEVICES names") {
  using Names = std::vector<std::string>;
  struct Row {
    std::string what;
    bool is_virtual;
    std::optional<Names> visible;
    Names own;
    std::string local_rank;
    std::optional<std::string> devices;
  };
  for (const Row& row : {
           Row{"none are dealt out", false, {}, {}, "1", {}},
           Row{"all of the run's", false, Names{"4", "5"}, {"5"}, "1", "4,5"},
           Row{"its own", false, Names{"GPU-b"}, {"GPU-b"}, "0", "GPU-b"},
           Row{"no GPU", false, Names{}, {}, "1", ""},
           Row{"virtual, none known", true, {}, {}, "0", "1"},
           Row{"virtual, those of the launcher", true, Names{"4", "5"}, {}, "0", "5"},
           Row{"virtual, its own", true, Names{"7"}, {"7"}, "0", "7"},
       }) {
    CAPTURE(row.what);
    RankIdentity identity = identity_of(3, 1);
    identity.visible_gpus = row.visible;
    identity.gpus = row.own;
    const auto set = rank_environment(run_of({{"virtual_local_rank", row.is_virtual}}), identity, "").set;
    CHECK(set.at("LOCAL_RANK") == row.local_rank);
    CHECK(set.contains("CUDA_VISIBLE_DEVICES") == row.devices.has_value());
    if (row.devices) CHECK(set.at("CUDA_VISIBLE_DEVICES") == *row.devices);
  }
}

TEST_CASE("rank environment: CUDA counts GPUs as the node that has numbered them") {
  using Names = std::vector<std::string>;
  const auto order = [](bool are_by_bus, std::optional<Names> visible, nlohmann::json env = nlohmann::json::object()) {
    RankIdentity identity = identity_of(3, 1);
    identity.visible_gpus = std::move(visible);
    identity.are_gpus_by_bus = are_by_bus;
    const auto set = rank_environment(run_of({}, {{"env", std::move(env)}}), identity, "").set;
    const auto found = set.find("CUDA_DEVICE_ORDER");
    return found == set.end() ? std::string() : found->second;
  };
  CHECK(order(true, Names{"0", "1"}) == "PCI_BUS_ID");
  CHECK(order(true, Names{"0"}, {{"CUDA_DEVICE_ORDER", "FASTEST_FIRST"}}) == "FASTEST_FIRST");
  CHECK(order(true, Names{"MIG-a", "GPU-b"}).empty());
  CHECK(order(true, Names{}).empty());
  CHECK(order(true, std::nullopt).empty());
  CHECK(order(false, Names{"0", "1"}).empty());
}

TEST_CASE("rank environment: TF_CONFIG where there is more than one worker") {
  const auto told = [](int world_size, std::vector<std::string> endpoints) {
    cluster::DesiredRun run = run_of({{"backend", "tensorflow"}});
    run.world_size = world_size;
    run.endpoints = std::move(endpoints);
    return rank_environment(run, identity_of(1, 1), "").set;
  };
  CHECK(told(2, {"10.0.0.1:7", "[::1]:8"}).at("TF_CONFIG") ==
        R"({"cluster":{"worker":["10.0.0.1:7","[::1]:8"]},"task":{"index":1,"type":"worker"}})");
  CHECK_FALSE(told(1, {"10.0.0.1:7"}).contains("TF_CONFIG"));
}

TEST_CASE("rank environment: Horovod's names, with nodes of several sizes") {
  const auto told = [](int node_rank, int local_rank) {
    cluster::DesiredRun run = run_of({{"backend", "horovod"}});
    run.node_rank = node_rank;
    run.ranks_by_node = {2, 1, 3};
    RankIdentity identity = identity_of(3, local_rank);
    identity.node = "n";
    return rank_environment(run, identity, "").set;
  };
  struct Row {
    int node;
    int local_rank;
    std::string cross_rank;
    std::string cross_size;
  };
  for (const Row& row :
       std::vector<Row>{{0, 0, "0", "3"}, {0, 1, "0", "2"}, {1, 0, "1", "3"}, {2, 1, "1", "2"}, {2, 2, "0", "1"}}) {
    const auto env = told(row.node, row.local_rank);
    CHECK(env.at("HOROVOD_CROSS_RANK") == row.cross_rank);
    CHECK(env.at("HOROVOD_CROSS_SIZE") == row.cross_size);
  }
  const auto env = told(2, 0);
  for (const auto& [name, value] : std::map<std::string, std::string>{{"HOROVOD_HOSTNAME", "n"},
                                                                      {"HOROVOD_RANK", "3"},
                                                                      {"HOROVOD_SIZE", "4"},
                                                                      {"HOROVOD_LOCAL_SIZE", "2"},
                                                                      {"HOROVOD_CONTROLLER", "gloo"},
                                                                      {"HOROVOD_CPU_OPERATIONS", "gloo"},
                                                                      {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "10.0.0.1"},
                                                                      {"HOROVOD_GLOO_RENDEZVOUS_PORT", "4242"}}) {
    INFO(name);
    CHECK(env.at(name) == value);
  }
}

TEST_CASE("command of a rank: its local rank in the words, and where it runs") {
  const nlohmann::json job = {{"command", {"p", "--n=${local_rank}", "${local_rank}-${local_rank}", "${rank}"}}};
  CHECK(command_of_rank(job, 7) == Words{"p", "--n=7", "7-7", "${rank}"});
  CHECK(workdir_of(run_of({}), false).empty());
  CHECK(workdir_of(run_of({}), true) == "/runs/r-1");
  CHECK(workdir_of(run_of({}, {{"workdir", "/w"}}), true) == "/w");
}

TEST_CASE("python command: scripts and modules, and what is neither") {
  const auto parts = [](const Words& command) {
    const auto python = job::python_command(command);
    return python ? std::pair(python->interpreter, python->script) : std::pair<Words, Words>();
  };
  CHECK(parts({"python3", "-u", "a.py", "-x"}) == std::pair(Words{"python3", "-u"}, Words{"a.py", "-x"}));
  CHECK(parts({"/v/bin/python3.12", "-X", "dev", "-Wd", "-m", "m", "1"}) ==
        std::pair(Words{"/v/bin/python3.12", "-X", "dev", "-Wd"}, Words{"-m", "m", "1"}));
  for (const Words& other :
       {Words{"bash", "a.py"}, Words{"python3", "-c", "1"}, Words{"python3"}, Words{"python3", "-m"},
        Words{"python3", "-X"}, Words{"python3", "-"}, Words{"python3-config", "a.py"}, Words{}})
    CHECK_FALSE(job::python_command(other));
  CHECK(job::by_way_of("/s.py", *job::python_command({"python3", "-u", "a.py"}), {"--x"}) ==
        Words{"python3", "-u", "/s.py", "--x", "a.py"});
}

TEST_CASE("core allocation: bound to nothing, to cores, to a NUMA node") {
  const std::vector<std::vector<int>> nodes = {{0, 1}, {2, 3}};
  const auto bound = [&](const char* how, const std::vector<std::vector<int>>& known) {
    std::vector<RankShare> shares = {{{0}, {}}, {{1}, {}}, {{2}, {}}, {{3}, {}}};
    bind_cores(how, known, shares);
    std::vector<std::vector<int>> cores;
    for (const RankShare& share : shares) cores.push_back(share.cores);
    return cores;
  };
  using Cores = std::vector<std::vector<int>>;
  CHECK(bound("auto", nodes) == Cores{{0}, {1}, {2}, {3}});
  CHECK(bound("none", nodes) == Cores{{}, {}, {}, {}});
  CHECK(bound("numa", nodes) == Cores{{0, 1}, {0, 1}, {2, 3}, {2, 3}});
  CHECK(bound("numa", {}) == Cores{{}, {}, {}, {}});
}

}  // namespace
}  // namespace sgd::core
