#pragma once
// Runs real processes as the ranks of a group and serves their exchange, as the launcher does.
// A rank tells what went wrong as text; a rank that says nothing until the deadline is killed and
// reported. No rank outlives the call.

#include <sys/types.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "common/base/time.hpp"
#include "worker/collective/factory.hpp"

namespace sgd::worker::testing {

/// A stall time-out that nobody waits for: what ends a wait within a third of it was something else.
inline constexpr Duration kNoStall = std::chrono::seconds(30);

/// What a rank's body gets.
struct RankContext {
  int rank = 0;
  int size = 1;
  Exchange exchange;
};

struct RankRun {
  int size = 2;
  std::set<int> frozen;  ///< Ranks that stop themselves for ever; killed when the others are done.
  Duration limit = std::chrono::seconds(60);
};

/// One text per rank: empty when its body returned, else what it threw, or how it ended. A frozen rank's is
/// empty.
std::vector<std::string> run_ranks(const RankRun& run, const std::function<void(const RankContext&)>& body);

/// Throws a text with `what` when `condition` is false.
void expect(bool condition, const std::string& what);

/// Returns when that thread of this process sleeps in the kernel, as in a futex; throws after ten seconds.
void wait_until_asleep(pid_t thread);

/// A memfd that is closed with this object.
class Memory {
 public:
  Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory();
  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace sgd::worker::testing
