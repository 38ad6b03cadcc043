#pragma once
// Where the reports of a run go, one kind a file. A sink is a function of the run's reports in their order: what it has
// made so far tells it how many it holds, so nothing is lost or doubled when the process that feeds it ends at any
// moment, and no place is kept anywhere else. Called on a thread of files; blocks.

#include <cstdint>
#include <string>

#include "common/base/result.hpp"
#include "launcher/callbacks/report_values.hpp"

namespace sgd::callbacks {

enum class Taken {
  kYes,
  kAgain,  ///< All reports are to be given anew, behind another begin().
};

class Sink {
 public:
  virtual ~Sink() = default;
  /// Begins, or begins anew after an error or kAgain. How many reports it holds; the next one is the one behind those.
  [[nodiscard]] virtual Result<std::int64_t> begin() = 0;
  [[nodiscard]] virtual Result<Taken> add(const Report& report) = 0;
  /// What was added is where others find it, all of it or nothing.
  [[nodiscard]] virtual Status flush() = 0;
  /// The run has ended; nothing is added any more, unless it is resumed.
  [[nodiscard]] virtual Status end(bool succeeded) {
    (void)succeeded;
    return {};
  }
  /// The file or folder that it writes, for people.
  [[nodiscard]] virtual std::string place() const = 0;
  /// What of the reports it could not hold, in words; empty: nothing.
  [[nodiscard]] virtual std::string left_out() const { return {}; }
};

}  // namespace sgd::callbacks
