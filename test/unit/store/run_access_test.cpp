// Which nodes may touch a run's files: what its folder keeps of that.

#include "launcher/coordinator/run_access.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "state_folder.hpp"

using namespace sgd;

TEST_CASE("a run's record of nodes: a torn end harms no other line, and what is none counts for nobody") {
  test::StateFolder folder;
  const std::string run_dir = folder.run("run");
  std::filesystem::create_directories(run_dir);
  const auto flush = [](coordinator::RunAccess& access) {
    std::string troubles;
    access.flush([&](const RunId&, const std::function<Status()>& write) {
      const Status written = write();
      if (!written) troubles += written.error().message;
    });
    return troubles;
  };
  coordinator::RunAccess first;
  first.admit("run", run_dir, "n1");
  first.admit("run", run_dir, "n1");
  CHECK(first.may_touch("run", run_dir, "n1"));
  CHECK(flush(first).empty());
  std::ofstream(run_dir + "/nodes.jsonl", std::ios::app) << R"({"node":"n)";
  coordinator::RunAccess second;
  CHECK(second.nodes_of("run", run_dir) == std::set<NodeId>{"n1"});
  second.admit("run", run_dir, "n2");
  second.admit("run", run_dir, "n3");
  CHECK(flush(second).empty());
  CHECK(flush(second).empty());
  std::ofstream(run_dir + "/nodes.jsonl", std::ios::app) << R"([1])"
                                                         << "\n"
                                                         << R"({"node":3})"
                                                         << "\n";
  coordinator::RunAccess third;
  CHECK(third.nodes_of("run", run_dir) == std::set<NodeId>{"n1", "n2", "n3"});
  third.admit("gone", folder.run("gone"), "n1");
  CHECK_THAT(flush(third), Catch::StartsWith("cannot create"));
  CHECK(third.may_touch("gone", folder.run("gone"), "n1"));
  CHECK_FALSE(third.may_touch("another", folder.run("another"), "n1"));
  third.forget("run");
  third.forget("gone");
  CHECK(third.may_touch("run", run_dir, "n3"));
  CHECK_FALSE(third.may_touch("gone", folder.run("gone"), "n1"));  // Nothing was written.
}
