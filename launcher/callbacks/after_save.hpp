#pragma once
// The program that a job has run after each of its checkpoints ("checkpoint.after_save"): one at a time, each with a
// guard of its own (after_save_guard.hpp), beside the run's event loop. Training waits for none of them, and none fails
// the run.
//
//   checkpoint_saved ──> SaveQueue ──> guard ──> program
//                           └ what waits is not removed      └──> event after_save, and a warning where it failed
//
// What a killed launcher has left is made up for by the next life of the run, as far as the checkpoints are still
// there: the events tell which have had their turn.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "common/base/ids.hpp"
#include "common/job/spec.hpp"
#include "common/json/nlohmann.hpp"
#include "launcher/callbacks/exec_process.hpp"
#include "launcher/callbacks/save_queue.hpp"

namespace sgd::callbacks {

/// Those in `run_dir` that have not had their turn, by its events, and are there; oldest first.
[[nodiscard]] std::vector<SavedCheckpoint> pending_checkpoints(const std::string& run_dir);

class AfterSave {
 public:
  struct Handlers {
    std::function<void(const std::string& message)> warn;
    std::function<void(nlohmann::ordered_json event)> record;
    /// These are not to be removed, and no others are kept for this.
    std::function<void(const std::vector<std::string>& paths)> spare;
  };
  /// `program`: sgd-launch.
  AfterSave(boost::asio::io_context& io, job::AfterSave rule, std::string program, Handlers handlers);
  ~AfterSave();
  AfterSave(const AfterSave&) = delete;
  AfterSave& operator=(const AfterSave&) = delete;

  /// The run's folder is there.
  void begin(const RunId& run, const std::string& run_dir);
  /// A line of events.jsonl is written.
  void on_event(const nlohmann::ordered_json& event);
  /// No more comes. `done` when all have had their turn.
  void end(std::function<void()> done);
  /// Nobody waits for it any more: what is under way is ended, what waits is left to the run's next life.
  void give_up();

 private:
  void add(SavedCheckpoint saved);
  void start_next();
  void start(const SavedCheckpoint& saved);
  void finish(const std::string& report);
  void notify(const SavedCheckpoint& saved, const char* state, const std::string& message);
  void later(std::function<void()> work);

  boost::asio::io_context& io_;
  job::AfterSave rule_;
  std::string program_;
  Handlers handlers_;
  RunId run_;
  std::string run_dir_;
  SaveQueue queue_;
  std::unique_ptr<ExecProcess> guard_;  ///< Of the one that is under way.
  std::string report_;                  ///< What it has said.
  std::function<void()> done_;
  bool is_given_up_ = false;
  std::shared_ptr<bool> is_here_ = std::make_shared<bool>(true);
};

}  // namespace sgd::callbacks
