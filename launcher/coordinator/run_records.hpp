#pragma once
// What one run leaves behind: its records on their way to the run directory and to whoever watches. With a store no
// line is lost or doubled: records that are made again after a restart are skipped as far as they are in the files
// already, and what cannot be written (a full disk) waits and is tried again. What is too much even for that is left to
// the next restart, which makes it from the store. Without a store it is dropped, and said once.

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/core/coordinator_io.hpp"
#include "launcher/storage/run_directory.hpp"

namespace sgd::coordinator {

struct RunObserver {
  std::function<void(const nlohmann::ordered_json& event)> on_event;      ///< As written to events.jsonl.
  std::function<void(const nlohmann::ordered_json& metrics)> on_metrics;  ///< As written to metrics.jsonl.
  std::function<void(std::string message)> on_warning;
  std::function<void(const std::vector<std::string>& paths)>
      on_keep;                                                       ///< Of its checkpoints these count. May be absent.
  std::function<void(const core::RunOutcome& outcome)> on_finished;  ///< summary.json is written.
};

class RunRecords {
 public:
  static constexpr std::size_t kWaitingMax = 10'000;

  /// Without a `directory` nothing is written. `has_store`: all records can be made again.
  RunRecords(std::unique_ptr<storage::RunDirectory> directory, RunObserver observer, bool has_store);
  RunRecords(const RunRecords&) = delete;
  RunRecords& operator=(const RunRecords&) = delete;

  /// The next so many records are in the files.
  void skip(const storage::LineCounts& there) { skip_ = there; }
  /// All stored events are replayed. Lines that nothing was stored for: there should be none.
  [[nodiscard]] storage::LineCounts end_skipping();

  void event(const nlohmann::ordered_json& event);
  void metrics(const nlohmann::ordered_json& metrics);
  void finish(const core::RunOutcome& outcome);
  void keep_checkpoints(const std::vector<std::string>& paths);
  void warn(const std::string& message);

  /// Something waits to be written.
  [[nodiscard]] bool waits() const { return !waiting_.empty(); }
  /// Lines are missing in the files that were to be in them.
  [[nodiscard]] bool is_behind() const { return waits() || leaves_out_; }
  void retry();
  /// It has ended, and everything is written.
  [[nodiscard]] bool is_complete() const { return is_finished_ && waiting_.empty() && !leaves_out_; }

 private:
  using Write = std::function<Status()>;
  [[nodiscard]] bool is_written(const Status& status);
  [[nodiscard]] bool may_write() const { return waiting_.empty() && !leaves_out_; }
  void defer(Write write);

  std::unique_ptr<storage::RunDirectory> directory_;
  RunObserver observer_;
  bool has_store_;
  storage::LineCounts skip_;
  std::deque<Write> waiting_;
  bool leaves_out_ = false;   ///< Nothing is written any more in this process.
  bool is_troubled_ = false;  ///< Said already.
  bool is_finished_ = false;
};

}  // namespace sgd::coordinator
