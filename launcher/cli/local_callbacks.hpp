#pragma once
// The callbacks of a run on this machine, beside its launcher: files on a thread of their own, programs each with a
// guard of its own, the terminal. The run tells them that it has gone on, and waits for them at its end alone.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "launcher/callbacks/after_save.hpp"
#include "launcher/callbacks/exec_process.hpp"
#include "launcher/callbacks/run_callbacks.hpp"
#include "launcher/cli/console.hpp"
#include "launcher/cli/report_printer.hpp"
#include "launcher/net/timer.hpp"
#include "launcher/storage/file_thread.hpp"

namespace sgd::cli {

class LocalCallbacks {
 public:
  /// `is_json`: reports are lines of standard output already.
  LocalCallbacks(boost::asio::io_context& io, Console& console, const job::JobSpec& job, bool is_json);

  /// What they ask of the run.
  struct Run {
    RunId id;
    std::string directory;
    std::function<void(const nlohmann::ordered_json& event)> record;
    std::function<void(const std::vector<std::string>& checkpoints)> spare;  ///< As of AfterSave::Handlers.
  };
  /// The run's folder is there.
  void begin(const Run& run);
  /// A line of events.jsonl is written.
  void on_event(const nlohmann::ordered_json& event);
  void on_metrics(const nlohmann::ordered_json& metrics);
  /// All lines are written. `done` when every callback has had them, or is told of.
  void end(bool succeeded, std::function<void()> done);
  /// Nobody waits any more.
  void give_up();

 private:
  void begin_after_save(const Run& run);
  void wake();
  void on_one_done();
  void warn(const std::string& message);
  void print_waiting();

  boost::asio::io_context& io_;
  Console& console_;
  const job::JobSpec& job_;
  ReportPrinter printer_;
  storage::FileThread thread_;
  std::optional<callbacks::RunCallbacks> files_;
  std::vector<std::unique_ptr<callbacks::ExecProcess>> programs_;
  std::optional<callbacks::AfterSave> after_save_;
  net::Timer patience_;
  std::size_t unfinished_ = 0;
  std::function<void()> done_;
};

}  // namespace sgd::cli
