#include "launcher/cli/first_node.hpp"

#include <catch2/catch.hpp>

using namespace sgd;

TEST_CASE("first node: nodes whose numbers of workers differ are named with them") {
  using Slots = std::map<std::string, int>;
  const auto why = [](const Slots& slots, bool is_elastic) { return cli::uneven_nodes(slots, 2, is_elastic); };
  CHECK(why({}, false).empty());
  CHECK(why({{"node0000", 2}, {"node0001", 2}}, false).empty());
  CHECK(why({{"node0000", 2}, {"node0001", 4}, {"node0002", 2}, {"node0003", 1}}, false) ==
        "the launchers were given different numbers of workers: this node has 2, node0001 has 4, node0003 has 1. Give "
        "all of them the same --nproc-per-node (-n)");
  // With a least and a most number of nodes the run begins with the workers that there are: fewer are no harm.
  CHECK(why({{"node0000", 2}, {"node0001", 1}}, true).empty());
  CHECK_THAT(why({{"node0000", 2}, {"node0001", 4}}, true), Catch::Contains("node0001 has 4."));
  Slots many;
  for (int node = 1; node < 1000; ++node) many["node" + std::to_string(node)] = 1;
  CHECK(why(many, false).size() < 500);
}
