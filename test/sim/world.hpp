#pragma once
// What all parts of one simulated cluster share: its plan, time, chance, and the story that is told when
// somebody listens. Also how an invariant says that it is broken.

#include <array>
#include <cstdint>
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>

#include <fmt/format.h>

#include "test/sim/chance.hpp"
#include "test/sim/plan.hpp"
#include "test/sim/queue.hpp"

namespace sgd::sim {

/// An invariant does not hold.
struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class... Arguments>
[[noreturn]] void violated(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  throw Violation(fmt::format(format, std::forward<Arguments>(arguments)...));
}

struct World {
  World(const Plan& its_plan, bool tells) : plan(its_plan), chance(its_plan.seed ^ 0x73696d), verbose(tells) {}

  template <class... Arguments>
  void say(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    if (!verbose) return;
    std::printf("%9.3f  %s\n", elapsed_s(), fmt::format(format, std::forward<Arguments>(arguments)...).c_str());
  }
  [[nodiscard]] double elapsed_s() const { return to_seconds(queue.now() - begin); }
  void count(Fault fault) { ++injected[static_cast<std::size_t>(fault)]; }

  const Plan& plan;
  Chance chance;
  Queue queue;
  TimePoint begin = queue.now();
  bool verbose = false;
  bool calm = false;  ///< Faults have stopped.
  int next_pid = 100;
  std::array<std::int64_t, kFaults> injected{};
};

}  // namespace sgd::sim
