#include "launcher/core/claims.hpp"

#include <functional>

#include <fmt/format.h>
#include <catch2/catch.hpp>

using namespace sgd;

TEST_CASE("a checkpoint is one of the generation that speaks, by a name that leads nowhere else") {
  struct Row {
    const char* what;
    link::CheckpointSaved saved;
    bool can_be;
  };
  const std::vector<Row> rows = {
      {"as a worker names it", {"checkpoints/step-000000000012-gen-0003", 12, 1, 100}, true},
      {"the second of its step", {"checkpoints/step-000000000012-gen-0003-2", 12, 1, 100}, true},
      {"above the run", {"../../../etc", 12, 1, 100}, false},
      {"an absolute path", {"/etc", 12, 1, 100}, false},
      {"a NUL", {std::string("checkpoints/a\0b", 15), 12, 1, 100}, false},
      {"below a checkpoint", {"checkpoints/step-000000000012-gen-0003/x", 12, 1, 100}, false},
      {"of another generation", {"checkpoints/step-000000000012-gen-0004", 12, 1, 100}, false},
      {"of another step", {"checkpoints/step-000000000012-gen-0003", 13, 1, 100}, false},
      {"of less than nothing", {"checkpoints/step-000000000012-gen-0003", 12, 1, -1}, false},
      {"of an epoch before all", {"checkpoints/step-000000000012-gen-0003", 12, -1, 100}, false},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    CHECK(core::why_not(row.saved, 3).empty() == row.can_be);
  }
}

TEST_CASE("a rejected checkpoint is named by the absolute path that it was given by") {
  const std::string name = "checkpoints/step-000000000012-gen-0003";
  CHECK(core::why_not(link::CheckpointRejected{"/runs/a/" + name, "torn"}).empty());
  const std::string taken = "taken/0001/step-000000000012-gen-0003";
  CHECK(core::why_not(link::CheckpointRejected{"/runs/a/" + taken, "torn"}).empty());
  for (const std::string& path :
       {name, std::string(), std::string("/"), std::string("checkpoints"), std::string("/etc/passwd"),
        std::string("../other/checkpoints/x"), "/runs/a/" + name + "/x"}) {
    INFO(path);
    CHECK_FALSE(core::why_not(link::CheckpointRejected{path, "torn"}).empty());
  }
}

TEST_CASE("what a node says that it has can be added up, and its names are short") {
  cluster::NodeState fits;
  fits.slots = fits.cpus = fits.gpus = core::kNodeUnitsMax;
  fits.memory_bytes = core::kNodeMemoryMax;
  fits.address = fits.version = std::string(core::kNodeTextMax, 'x');
  fits.labels = {{std::string(core::kNodeTextMax, 'x'), std::string(core::kNodeTextMax, 'x')}};
  for (std::size_t run = 0; run < core::kNodeRunsMax; ++run)
    fits.runs.push_back({fmt::format("run-{}", run), 1, 16, 0});
  CHECK(core::why_not(fits).empty());
  struct Row {
    const char* what;
    std::function<void(cluster::NodeState&)> change;
  };
  const std::vector<Row> rows = {
      {"slots", [](auto& state) { state.slots = INT32_MAX; }},
      {"less than no slots", [](auto& state) { state.slots = -1; }},
      {"cores", [](auto& state) { ++state.cpus; }},
      {"GPUs", [](auto& state) { state.gpus = -1; }},
      {"memory", [](auto& state) { ++state.memory_bytes; }},
      {"acknowledged", [](auto& state) { state.acknowledged = INT64_MAX; }},
      {"address", [](auto& state) { state.address += 'x'; }},
      {"version", [](auto& state) { state.version += 'x'; }},
      {"labels",
       [](auto& state) {
         for (std::size_t i = 0; i < core::kNodeLabelsMax; ++i) state.labels[fmt::format("{}", i)] = "x";
       }},
      {"a label's value", [](auto& state) { state.labels.begin()->second += 'x'; }},
      {"runs",
       [](auto& state) {
         state.runs.push_back({"run", 1, 0, 0});
       }},
      {"a run's name", [](auto& state) { state.runs.back().run = "../x"; }},
      {"ranks of one run", [](auto& state) { state.runs.back().workers = -1; }},
      {"ranks of all runs", [](auto& state) { ++state.runs.back().workers; }},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    cluster::NodeState state = fits;
    row.change(state);
    CHECK_FALSE(core::why_not(state).empty());
  }
}

TEST_CASE("names of GPUs have a length, and a rank a number of them") {
  const std::string longest(core::kGpuNameMax, 'x');
  const auto fits = [](cluster::FactBody body) {
    return core::why_not(cluster::Fact{1, 1, "run", 3, std::move(body)}).empty();
  };
  std::vector<std::string> gpus(core::kRankGpusMax, longest);
  CHECK(fits(cluster::WorkerStarted{0, 100, gpus}));
  gpus.push_back("0");
  CHECK_FALSE(fits(cluster::WorkerStarted{0, 100, gpus}));
  CHECK_FALSE(fits(cluster::WorkerStarted{0, 100, {longest + "x"}}));
  cluster::WorkerExited exited;
  exited.gpu = longest;
  CHECK(fits(exited));
  exited.others.push_back({1, {}, longest + "x"});
  CHECK_FALSE(fits(exited));
  CHECK_FALSE(fits(cluster::RanksRaised{exited.others}));
}

TEST_CASE("nobody can lose less than nothing") {
  const auto fits = [](std::int64_t lines, std::int64_t bytes) {
    return core::why_not(cluster::Fact{1, 1, "run", 3, cluster::OutputDropped{0, lines, bytes, "full"}}).empty();
  };
  CHECK(fits(0, 5));
  CHECK_FALSE(fits(-1, 5));
  CHECK_FALSE(fits(1, -5));
}

TEST_CASE("facts about anything else claim nothing of checkpoints") {
  CHECK(core::why_not(cluster::Fact{1, 1, "run", 3, cluster::WorkerStarted{0, 100}}).empty());
  CHECK_FALSE(core::why_not(cluster::Fact{1, 1, "run", 3, cluster::CheckpointSaved{{"/etc", 1, 1, 1}}}).empty());
}
