#pragma once
// One life of a coordinator that will be killed: it restores its state, serves agents on a port, and submits runs by
// numbered requests, some at a time, as many as `runs` in all. Each acceptance is one line on `report_fd`.

#include <string>

namespace sgd::test {

struct Life {
  std::string folder;  ///< state/ and runs/ lie in it.
  int port = 0;
  int runs = 0;
  int report_fd = -1;
};

/// Ends when all runs have ended: 0; or 1, with the reason on stderr.
[[nodiscard]] int live(const Life& life);

inline std::string request_name(int number) {
  return "request-" + std::to_string(number);
}

}  // namespace sgd::test
