#include "launcher/core/claims.hpp"

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
  for (const std::string& path :
       {name, std::string(), std::string("/"), std::string("checkpoints"), std::string("/etc/passwd"),
        std::string("../other/checkpoints/x"), "/runs/a/" + name + "/x"}) {
    INFO(path);
    CHECK_FALSE(core::why_not(link::CheckpointRejected{path, "torn"}).empty());
  }
}

TEST_CASE("facts about anything else claim nothing of checkpoints") {
  CHECK(core::why_not(cluster::Fact{1, 1, "run", 3, cluster::WorkerStarted{0, 100}}).empty());
  CHECK_FALSE(core::why_not(cluster::Fact{1, 1, "run", 3, cluster::CheckpointSaved{{"/etc", 1, 1, 1}}}).empty());
}
