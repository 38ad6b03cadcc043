#include <catch2/catch.hpp>

#include "common/json/suggest.hpp"

namespace sgd::json {

TEST_CASE("suggest: edit distance") {
  struct Row {
    const char* a;
    const char* b;
    int distance;
  };
  for (const Row& row : std::vector<Row>{{"", "", 0},
                                         {"abc", "", 3},
                                         {"lr", "lr", 0},
                                         {"lrr", "lr", 1},
                                         {"rl", "lr", 1},
                                         {"num_workres", "num_workers", 1},
                                         {"optimiser", "optimizer", 1},
                                         {"kitten", "sitting", 3}}) {
    INFO(row.a << " " << row.b);
    CHECK(edit_distance(row.a, row.b) == row.distance);
    CHECK(edit_distance(row.b, row.a) == row.distance);
  }
}

TEST_CASE("suggest: only what is near") {
  const std::vector<std::string> names{"batch_size", "epochs", "lr", "seed"};
  CHECK(nearest("epoch", names) == "epochs");
  CHECK(nearest("bacth_size", names) == "batch_size");
  CHECK(nearest("lrr", names) == "lr");
  CHECK(nearest("xy", names) == std::nullopt);
  CHECK(nearest("speed_up", names) == std::nullopt);
  CHECK(nearest("", names) == std::nullopt);
  CHECK(nearest(std::string(1 << 20, 'e'), names) == std::nullopt);
}

}  // namespace sgd::json
