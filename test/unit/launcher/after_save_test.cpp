// Which checkpoints still have their turn with a job's program.

#include "launcher/callbacks/after_save.hpp"

#include <catch2/catch.hpp>

#include "test/unit/common/temporary_folder.hpp"

using namespace sgd;
using callbacks::SaveQueue;
using Paths = std::vector<std::string>;

TEST_CASE("after save: one at a time, in their order") {
  SaveQueue queue;
  CHECK(queue.is_empty());
  CHECK_FALSE(queue.begin());
  CHECK_FALSE(queue.add({"a", 1, 1}));
  CHECK_FALSE(queue.add({"b", 2, 2}));
  CHECK(queue.begin()->path == "a");
  CHECK_FALSE(queue.begin());
  CHECK(queue.paths() == Paths{"a", "b"});
  CHECK(queue.end()->path == "a");
  CHECK(queue.paths() == Paths{"b"});
  CHECK(queue.begin()->path == "b");
  CHECK_FALSE(queue.is_empty());
  (void)queue.end();
  CHECK(queue.is_empty());
}

TEST_CASE("after save: of too many the oldest that waits is left out") {
  SaveQueue queue;
  (void)queue.add({"under way", 0, 0});
  (void)queue.begin();
  for (std::size_t i = 0; i < SaveQueue::kWaitingMax; ++i) CHECK_FALSE(queue.add({std::to_string(i), 0, 0}));
  CHECK(queue.add({"new", 0, 0})->path == "0");
  CHECK(queue.paths().size() == SaveQueue::kWaitingMax + 1);
  CHECK(queue.paths().back() == "new");
  CHECK(queue.drop().size() == SaveQueue::kWaitingMax);
  CHECK(queue.paths() == Paths{"under way"});
}

TEST_CASE("after save: the next life of a run makes up for what is there and has not had its turn") {
  const test::TemporaryFolder folder;
  for (const char* name : {"a", "b", "d"}) folder.write(std::string("checkpoints/") + name + "/manifest.json", "");
  folder.write("events.jsonl", R"({"event":"checkpoint_saved","path":"checkpoints/a","step":1,"epoch":1}
{"event":"after_save","path":"checkpoints/a","state":"failed"}
{"event":"checkpoint_saved","path":"checkpoints/b","step":2,"epoch":1}
{"event":"checkpoint_saved","path":"checkpoints/c","step":3,"epoch":1}
{"event":"checkpoint_saved","path":"checkpoints/d","step":4,"epoch":2}
{"event":"checkpoint_sav)");
  const auto left = callbacks::pending_checkpoints(folder.path(""));
  REQUIRE(left.size() == 2);
  CHECK(left[0].path == "checkpoints/b");
  CHECK(left[1].step == 4);
  CHECK(left[1].epoch == 2);
  CHECK(callbacks::pending_checkpoints(folder.path("none")).empty());
}
