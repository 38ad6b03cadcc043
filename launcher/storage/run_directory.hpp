#pragma once
// The folder of one run. Every line is one write(2) to a file opened for appending, so that a
// reader sees whole lines and a killed launcher leaves a readable folder. summary.json is
// replaced by rename. The folder is locked as long as this process writes to it, so that no two
// launchers ever do. Nothing here decides what is written.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.hpp"
#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"
#include "launcher/core/coordinator_io.hpp"
#include "launcher/storage/checkpoint_pruner.hpp"
#include "launcher/storage/line_file.hpp"
#include "launcher/storage/run_history.hpp"
#include "launcher/storage/stored_run.hpp"

namespace sgd::storage {

struct RunPlace {
  RunId id = {};
  std::string directory = {};  ///< Absolute.
  /// It is looked for by its name when this process has gone, so that it never has one of this process alone.
  bool is_lasting = false;
};

/// Id and folder of a new run of job `name`: `given_dir`, else <name>-<YYYYmmdd-HHMMSS>-<4 hex> in `runs_dir`. Nothing
/// is created. Errors: `given_dir` is in use, is no folder, or cannot be written.
[[nodiscard]] Result<RunPlace> choose_run_place(const std::string& name, const std::string& given_dir,
                                                const std::string& runs_dir = "runs");

/// What summary.json says.
[[nodiscard]] nlohmann::ordered_json summary_of(const RunId& run, const core::RunOutcome& outcome);
/// In the folder of a run that nobody holds open.
[[nodiscard]] Status rewrite_summary(const std::string& folder, const RunId& run, const core::RunOutcome& outcome);

inline constexpr const char* kControlSocket = "control.sock";
/// In the folder that a launcher has below the runtime base: to the run's own.
inline constexpr const char* kRunLink = "run";

/// control.sock in `folder` leads to `target`, whatever a killed launcher left in its place. Beside a `target` of that
/// name a link leads back to `shown` (empty: `folder`), for those who find a launcher that does not answer.
[[nodiscard]] Status link_control_socket(const std::string& folder, const std::string& target,
                                         const std::string& shown = {});

class RunDirectory {
 public:
  /// Creates the folder with job.json, checkpoints/, logs/ and errors/, and points runs/latest to it if it lies in
  /// runs/ and trains. Of what fails nothing stays.
  [[nodiscard]] static Result<std::unique_ptr<RunDirectory>> create(const RunPlace& place,
                                                                    const nlohmann::json& resolved_job);
  /// Opens the folder of a run that has ended to go on in it: cuts off what a killed launcher left half written,
  /// replaces job.json if `resolved_job` differs, takes the old summary away, and puts checkpoints aside that the run
  /// does not go on from (ahead_checkpoints.hpp). `history` has just been read from it.
  /// The replaced one comes back with a summary that says that the workers can never go on with the new one.
  [[nodiscard]] static Result<std::unique_ptr<RunDirectory>> reopen(const RunPlace& place,
                                                                    const nlohmann::json& resolved_job,
                                                                    const RunHistory& history);
  /// Opens the folder of a run that is going on, for a coordinator that was started anew and makes the run's records
  /// again from what it stored. What is missing is made; from the first torn line on everything is cut off, but of the
  /// first `kept` lines nothing: they are not among those records. lines() tells what is there.
  [[nodiscard]] static Result<std::unique_ptr<RunDirectory>> adopt(const RunPlace& place,
                                                                   const nlohmann::json& resolved_job,
                                                                   const LineCounts& kept);
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  /// Adds "time" (Unix seconds, 6 decimals; absent: now) in front and appends the line.
  [[nodiscard]] Status append_event(const nlohmann::ordered_json& event, std::optional<double> unix_s = {});
  /// Adds "_timestamp" (and "_date" where it has "_time_total_s"), to each of its "workers", too, and appends the line.
  [[nodiscard]] Status append_metrics(const nlohmann::ordered_json& metrics, std::optional<double> unix_s = {});
  [[nodiscard]] Status write_summary(const core::RunOutcome& outcome);
  [[nodiscard]] Status change_job(const nlohmann::json& resolved_job);
  /// `from`, a folder, is to be found at `to`, too, in this one; nothing where that is there already.
  [[nodiscard]] Status take_checkpoint(const std::string& from, const std::string& to);
  /// It tells of a life before, and another one begins.
  [[nodiscard]] Status remove_summary();
  /// best.json, of an experiment.
  [[nodiscard]] Status write_best(const nlohmann::ordered_json& best);
  [[nodiscard]] Status link_control_socket(const std::string& target) {
    return storage::link_control_socket(path_, target, place_.directory);
  }
  void unlink_control_socket();
  /// `paths` count, oldest first, relative to the folder or absolute; see CheckpointPruner.
  void keep_checkpoints(const std::vector<std::string>& paths);
  /// These stay, too, as long as this is not called again: somebody reads them.
  void spare_checkpoints(const std::vector<std::string>& paths);

  [[nodiscard]] LineCounts lines() const { return {events_->lines(), metrics_->lines()}; }
  /// Of the folder, whatever others have put in its place meanwhile (folder_anchor.hpp).
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const RunId& id() const { return place_.id; }

 private:
  explicit RunDirectory(RunPlace place) : place_(std::move(place)), path_(place_.directory) {}
  /// Files are not open yet.
  [[nodiscard]] static Result<std::unique_ptr<RunDirectory>> make(const RunPlace& place);
  [[nodiscard]] static Result<std::unique_ptr<RunDirectory>> lock(const RunPlace& place);
  [[nodiscard]] Status replace_job(const nlohmann::json& job, const RunHistory& history);
  [[nodiscard]] Status put_back_job();
  void forget_former_job();
  [[nodiscard]] Status open_files(const std::optional<LineCounts>& kept = std::nullopt);
  [[nodiscard]] std::vector<std::string> names_of(const std::vector<std::string>& paths) const;
  void prune();

  RunPlace place_;
  std::string path_;
  int lock_fd_ = -1;
  bool has_former_job_ = false;  ///< Until workers have gone on with the job that has replaced it.
  std::optional<LineFile> events_;
  std::optional<LineFile> metrics_;
  std::vector<std::string> kept_;    ///< Names of checkpoints that count.
  std::vector<std::string> spared_;  ///< And of those that only stay.
  CheckpointPruner pruner_;
};

}  // namespace sgd::storage
