// sim --seeds N [--first S]: plays seeds and stops at the first that breaks an invariant.
// sim --seed S [--verbose]: plays one and tells its story.
// --twins: beside each machine goes one that was made of its saved state.

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <fmt/format.h>

#include "test/sim/seed.hpp"
#include "test/sim/twin.hpp"

namespace {

struct Options {
  std::uint64_t first = 1;
  std::uint64_t seeds = 2000;
  bool verbose = false;
  bool keeps_going = false;  ///< Past seeds that fail.
};

char g_replay[512];  // For the handler: what to type to see the seed again.

std::string replay_of(const char* program, std::uint64_t seed) {
  return fmt::format("{} --seed {} --verbose", program, seed);
}

/// An assertion of the core has failed: which seed it was must be said all the same.
void on_abort(int) {
  (void)!::write(STDERR_FILENO, g_replay, std::strlen(g_replay));
  std::signal(SIGABRT, SIG_DFL);
}

bool parse(int argc, char** argv, Options& options) {
  for (int index = 1; index < argc; ++index) {
    const std::string word = argv[index];
    const auto number = [&] { return index + 1 < argc ? std::strtoull(argv[++index], nullptr, 10) : 0; };
    if (word == "--seeds") {
      options.seeds = number();
    } else if (word == "--first") {
      options.first = number();
    } else if (word == "--seed") {
      options.first = number();
      options.seeds = 1;
    } else if (word == "--verbose") {
      options.verbose = true;
    } else if (word == "--twins") {
      sgd::sim::make_twins();
    } else if (word == "--keep-going") {
      options.keeps_going = true;
    } else {
      return false;
    }
  }
  return true;
}

void print_summary(std::uint64_t seeds, const sgd::sim::SeedResult& sum, double wall_s) {
  const double hours = sum.simulated_s / 3600;
  fmt::print("{} seeds, {} events, {:.1f} simulated hours, {:.1f} simulated hours a second\n", seeds, sum.events, hours,
             hours / wall_s);
  std::string faults;
  for (std::size_t fault = 0; fault < sgd::sim::kFaults; ++fault)
    faults += fmt::format("{}{} {}", fault == 0 ? "" : ", ", sgd::sim::name(static_cast<sgd::sim::Fault>(fault)),
                          sum.injected[fault]);
  fmt::print("faults: {}\n", faults);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fputs("usage: sim [--seeds N] [--first S] [--keep-going] | --seed S [--verbose]\n", stderr);
    return 2;
  }
  std::signal(SIGABRT, on_abort);
  const auto begin = std::chrono::steady_clock::now();
  sgd::sim::SeedResult sum;
  std::uint64_t failed = 0;
  std::uint64_t played = 0;
  for (std::uint64_t seed = options.first; seed < options.first + options.seeds; ++seed) {
    const std::string replay = replay_of(argv[0], seed);
    (void)std::snprintf(g_replay, sizeof g_replay, "replay: %s\n", replay.c_str());
    const sgd::sim::SeedResult result = sgd::sim::play(seed, options.verbose);
    ++played;
    sum.simulated_s += result.simulated_s;
    sum.events += result.events;
    for (std::size_t fault = 0; fault < sgd::sim::kFaults; ++fault) sum.injected[fault] += result.injected[fault];
    if (result.violation.empty()) continue;
    ++failed;
    fmt::print("seed {} {}\n  replay: {}\n", seed, result.violation, replay);
    if (!options.keeps_going) break;
  }
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  print_summary(played, sum, wall.count());
  // In the words that the test runner counts.
  if (failed == 0) fmt::print("All tests passed ({} assertions in {} test cases)\n", sum.events, played);
  return failed == 0 ? 0 : 1;
}
