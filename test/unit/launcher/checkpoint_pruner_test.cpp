// Which checkpoints go when others count.

#include "launcher/storage/checkpoint_pruner.hpp"

#include <filesystem>

#include <catch2/catch.hpp>

#include "common/checkpoint/manifest.hpp"
#include "test/unit/common/temporary_folder.hpp"

using namespace sgd;
using storage::superseded;
using Names = std::vector<std::string>;

TEST_CASE("pruner: what is older than the newest that counts goes, what is newer may yet count") {
  const Names names = {"step-000000000100-gen-0001", "step-000000000200-gen-0001", "step-000000000200-gen-0001-2",
                       "step-000000000150-gen-0002", "step-000000000300-gen-0002", "mine"};
  CHECK(superseded(names, {"step-000000000100-gen-0001", "step-000000000150-gen-0002"}) ==
        Names{"step-000000000200-gen-0001", "step-000000000200-gen-0001-2"});
  CHECK(superseded(names, {"step-000000000200-gen-0001"}) == Names{"step-000000000100-gen-0001"});
}

TEST_CASE("pruner: without one that counts nothing goes") {
  CHECK(superseded({"step-000000000100-gen-0001"}, {}).empty());
  CHECK(superseded({"step-000000000100-gen-0001"}, {"elsewhere"}).empty());
}

TEST_CASE("pruner: one that counts and has not come yet makes nothing superfluous") {
  const Names names = {"step-000000000100-gen-0001", "step-000000000200-gen-0001"};
  CHECK(superseded(names, {"step-000000000300-gen-0001"}).empty());
  CHECK(superseded(names, {"step-000000000200-gen-0001", "step-000000000300-gen-0001"}) ==
        Names{"step-000000000100-gen-0001"});
}

TEST_CASE("pruner: half of a checkpoint goes when a later generation writes") {
  const Names names = {".step-000000000100-gen-0001.part", ".step-000000000300-gen-0002.part", ".mine.part",
                       "step-000000000200-gen-0002"};
  CHECK(superseded(names, {"step-000000000200-gen-0002"}) == Names{".step-000000000100-gen-0001.part"});
}

TEST_CASE("pruner: of a hundred thousand none is looked for among all others") {
  constexpr std::int64_t kMany = 100'000;  // By the square of it this takes minutes.
  Names names;
  for (std::int64_t step = 1; step <= kMany; ++step) names.push_back(checkpoint::directory_name(step, 1));
  const Names kept(names.begin() + 2, names.end());
  CHECK(superseded(names, kept) == Names{names[0], names[1]});
}

TEST_CASE("pruner: the last order is carried out before it ends") {
  const test::TemporaryFolder folder;
  const auto is_there = [&](const char* name) { return std::filesystem::exists(folder.path(name)); };
  for (const char* name : {"step-000000000100-gen-0001", "step-000000000200-gen-0001", "step-000000000300-gen-0001"})
    folder.write(std::string(name) + "/model.safetensors", "weights");
  {
    storage::CheckpointPruner pruner;
    pruner.keep(folder.path(""), {"step-000000000100-gen-0001", "step-000000000200-gen-0001"});
    pruner.keep(folder.path(""), {"step-000000000200-gen-0001", "step-000000000300-gen-0001"});
  }
  CHECK_FALSE(is_there("step-000000000100-gen-0001"));
  CHECK(is_there("step-000000000200-gen-0001"));
  CHECK(is_there("step-000000000300-gen-0001"));
}
