#pragma once
// A copy of a run's folder, here, while it is followed on a cluster: events, metrics and logs as they come, at its end
// its summary and its newest checkpoint. cluster.json says whose copy it is.
//
//   folder/{job.json, cluster.json, events.jsonl, metrics.jsonl, logs/gen-0001/rank-0000.log, summary.json,
//           checkpoints/step-...}
//
// What is in it can be read as any run's on this machine.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/core/coordinator_io.hpp"

namespace sgd::cli {

class RunCopy {
 public:
  /// `folder`: a new one, absolute. Error: it cannot be made.
  [[nodiscard]] static Result<RunCopy> create(const std::string& folder, const nlohmann::ordered_json& job);

  /// The run is known. Error, once: from then on nothing is kept.
  [[nodiscard]] Status begin(const NamedRun& run);
  /// Bytes of `file`, relative to the run's folder, from `offset` on. Error, once: from then on nothing is kept.
  [[nodiscard]] Status add(const std::string& file, std::uint64_t offset, std::string_view bytes);
  /// After the last byte: the rest. Waits for it, also for a coordinator that is gone for a while, until `is_given_up`.
  /// Error: why the copy is not whole.
  [[nodiscard]] Status end(const NamedRun& run, const core::RunOutcome& outcome,
                           const std::function<bool()>& is_given_up);
  /// There is no run: nothing stays.
  void discard();
  [[nodiscard]] const std::string& folder() const { return folder_; }

 private:
  [[nodiscard]] Status fetch_newest(const NamedRun& run, const std::function<bool()>& is_given_up) const;
  explicit RunCopy(std::string folder) : folder_(std::move(folder)) {}

  std::string folder_;
  std::string error_;  ///< Why it is not whole.
};

}  // namespace sgd::cli
