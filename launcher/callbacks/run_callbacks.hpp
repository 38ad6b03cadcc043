#pragma once
// The callbacks of one run that write files: fed from the run's metrics.jsonl on a thread of files, so that neither the
// run nor the event loop waits for any of them.
//
//   on_grown() ──> Feed, Feed, ... on the FileThread ──> results.json, progress.csv, event file
//   end() ──> the rest, and what is missing ──> done

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/base/ids.hpp"
#include "common/job/spec.hpp"
#include "launcher/callbacks/sink.hpp"
#include "launcher/storage/file_thread.hpp"

namespace sgd::callbacks {

/// The sink of a job's `callback`; null for one that writes no file.
[[nodiscard]] std::unique_ptr<Sink> make_sink(const nlohmann::json& callback, const RunId& run,
                                              const std::string& run_dir, const nlohmann::json& resolved_job);

class RunCallbacks {
 public:
  using Warn = std::function<void(const std::string& message)>;
  /// Of the thread, for one run at a time.
  static constexpr Duration kTurn = std::chrono::milliseconds(50);
  /// A disk that hangs does not keep the run's end from being told.
  static constexpr Duration kEndLimit = std::chrono::seconds(30);

  /// Nothing is touched before the first on_grown(). `files` must outlive it.
  RunCallbacks(boost::asio::io_context& io, storage::FileThread& files, const RunId& run, const std::string& run_dir,
               const job::JobSpec& job, Warn warn);
  ~RunCallbacks();
  RunCallbacks(const RunCallbacks&) = delete;
  RunCallbacks& operator=(const RunCallbacks&) = delete;

  /// Whether `job` has any.
  [[nodiscard]] static bool has_files(const job::JobSpec& job);

  /// There may be reports, or the run begins.
  void on_grown();
  /// The run has ended and all its reports are written. `done` when everything is in the files, or is known not to be,
  /// or kEndLimit is over.
  void end(bool succeeded, std::function<void()> done);

 private:
  struct Feeds;
  void work();
  void on_worked();
  void finish();

  std::shared_ptr<Feeds> feeds_;  ///< The thread may still hold it.
  storage::FileThread& files_;
  Warn warn_;
  boost::asio::steady_timer timer_;
  boost::asio::steady_timer limit_;
  bool is_working_ = false;
  bool has_grown_ = false;
  bool is_ending_ = false;
  bool succeeded_ = false;
  std::function<void()> done_;  ///< Still to be called.
  std::shared_ptr<bool> is_here_ = std::make_shared<bool>(true);
};

}  // namespace sgd::callbacks
