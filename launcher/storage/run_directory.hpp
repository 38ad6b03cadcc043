#pragma once
// The folder of one run. Every line is one write(2) to a file opened for appending, so that a
// reader sees whole lines and a killed launcher leaves a readable folder. summary.json is
// replaced by rename. The folder is locked as long as this process writes to it, so that no two
// launchers ever do. Nothing here decides what is written.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/ids.hpp"
#include "common/base/result.hpp"
#include "launcher/core/coordinator_io.hpp"
#include "launcher/storage/checkpoint_pruner.hpp"
#include "launcher/storage/run_history.hpp"

namespace sgd::storage {

struct RunPlace {
  RunId id;
  std::string directory;  ///< Absolute.
};

/// Id and folder of a new run of job `name`: `given_dir`, else <name>-<YYYYmmdd-HHMMSS>-<4 hex> in `runs_dir`. Nothing is
/// created. Errors: `given_dir` is in use, is no folder, or cannot be written.
[[nodiscard]] Result<RunPlace> choose_run_place(const std::string& name, const std::string& given_dir,
                                                const std::string& runs_dir = "runs");

class RunDirectory {
 public:
  /// Creates the folder with job.json, checkpoints/, logs/ and errors/, and points runs/latest to it if it lies in runs/.
  [[nodiscard]] static Result<std::unique_ptr<RunDirectory>> create(const RunPlace& place,
                                                                    const nlohmann::json& resolved_job);
  /// Opens the folder of a run that has ended to go on in it: cuts off what a killed launcher left half written,
  /// replaces job.json if `resolved_job` differs, and takes the old summary away. `history` has just been read from it.
  [[nodiscard]] static Result<std::unique_ptr<RunDirectory>> reopen(const RunPlace& place,
                                                                    const nlohmann::json& resolved_job,
                                                                    const RunHistory& history);
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  /// Adds "time" (Unix seconds, 6 decimals) in front and appends the line.
  [[nodiscard]] Status append_event(const nlohmann::ordered_json& event);
  /// Adds "_timestamp" and appends the line.
  [[nodiscard]] Status append_metrics(const nlohmann::ordered_json& metrics);
  [[nodiscard]] Status write_summary(const core::RunOutcome& outcome);
  /// control.sock in the folder leads to `target`, whatever a killed launcher left in its place.
  [[nodiscard]] Status link_control_socket(const std::string& target);
  void unlink_control_socket();
  /// `paths` count, oldest first, relative to the folder or absolute; see CheckpointPruner.
  void keep_checkpoints(const std::vector<std::string>& paths);

  [[nodiscard]] const std::string& path() const { return place_.directory; }
  [[nodiscard]] const RunId& id() const { return place_.id; }

 private:
  explicit RunDirectory(RunPlace place) : place_(std::move(place)) {}
  [[nodiscard]] Status open_files();

  RunPlace place_;
  int lock_fd_ = -1;
  int events_fd_ = -1;
  int metrics_fd_ = -1;
  CheckpointPruner pruner_;
};

}  // namespace sgd::storage
