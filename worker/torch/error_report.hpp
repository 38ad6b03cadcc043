#pragma once
// The one place where an exception becomes an exit code and a report of it: a line on standard
// error, a `failed` line to the agent, and errors/rank-NNNN.json in torchrun's shape.

#include <exception>
#include <string>

#include "common/base/ids.hpp"

namespace sgd::worker {

class LinkClient;

struct Failure {
  int exit_code = 1;      ///< Of worker_exit.
  std::string type;       ///< Of the exception, for torchrun's "<Type>: <text>".
  std::string message;    ///< Without a backtrace.
  std::string backtrace;  ///< LibTorch's, or empty.
};

/// Maps by type: see common/exit_codes.hpp.
[[nodiscard]] Failure describe(const std::exception_ptr& error);

/// Where the report goes besides standard error; empty or null: not there.
struct ReportTarget {
  LinkClient* link = nullptr;
  std::string run_dir;
  Rank rank = -1;  ///< -1: not known yet.
};

/// Tells everybody about it. Never throws.
void report(const Failure& failure, const ReportTarget& target) noexcept;

}  // namespace sgd::worker
