#pragma once
// A run on a cluster, seen from here: submits it or joins it, follows its files, and prints what a run on this machine
// would print. A coordinator that is gone for a while is waited for; nothing is printed twice and nothing left out.
//
//   connect ─► bring the job's files ─► submit (again with the same id until answered)
//     ─► follow from the offsets that were printed ─► end
//   first signal: asks for a stop with a checkpoint · second: kills the ranks · with the coordinator gone: leaves
//   a signal when the run is over there: what is left of its output is shown for a moment, then its outcome
//   SIGUSR1, SIGUSR2: passed on to the ranks of a command, on all nodes
// The exit code is the run's.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include "launcher/cli/console.hpp"
#include "launcher/cli/file_upload.hpp"
#include "launcher/cli/log_lines.hpp"
#include "launcher/cli/narrator.hpp"
#include "launcher/cli/own_output.hpp"
#include "launcher/cli/remote_lines.hpp"
#include "launcher/cli/remote_search.hpp"
#include "launcher/cli/report_printer.hpp"
#include "launcher/cli/run_copy.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/run_options.hpp"
#include "launcher/cli/trial_table.hpp"
#include "launcher/cli/wait_teller.hpp"
#include "launcher/core/snapshot.hpp"
#include "launcher/net/client_link.hpp"
#include "launcher/net/timer.hpp"
#include "launcher/process/input_end.hpp"

namespace sgd::cli {

class RemoteRun {
 public:
  using Json = nlohmann::ordered_json;

  /// `tls`: the user's identity, or null.
  RemoteRun(const RunOptions& options, net::Address coordinator, std::shared_ptr<const net::TlsContext> tls);

  /// Submits `request`, its "job" at least, and follows the run; with `detach` prints its id and ends.
  [[nodiscard]] int submit(nlohmann::ordered_json request, bool detach);
  /// Prints files of a run, and changes nothing of it: keys of `follow` as in coordinator/client_service.hpp. The lines
  /// of events and metrics are printed as they are.
  [[nodiscard]] int read(nlohmann::ordered_json follow);
  /// What was read has bytes of a log.
  [[nodiscard]] bool has_logs() const;

  /// An experiment that is there already, from where `seen` ends.
  struct Seen {
    RunId run;
    Json job;
    std::vector<Json> events;  ///< The lines of its events.jsonl so far.
    std::uint64_t bytes = 0;   ///< That they have there.
  };
  [[nodiscard]] int join(Seen seen);

  /// Before submit() or join(): a program makes the experiment's trials, here. `name`: by which the coordinator knows
  /// it.
  void search_with(tune::ExperimentSpec spec, std::string name);
  /// Before submit(): what the run leaves is copied here.
  void copy_to(RunCopy copy) { copy_ = std::move(copy); }
  /// Before submit(): what ranks on this machine say is shown, as the agent here brings it to `socket`, and nothing of
  /// others.
  void show_own(std::string socket, int workers_here);

  /// The run's folder is known, as the coordinator names it.
  std::function<void(const std::string& run_dir)> on_run_dir;

 private:
  [[nodiscard]] int go();
  [[nodiscard]] bool find_files();
  void send_submission();
  void follow();
  void on_open();
  void on_lost(const std::string& reason);
  void on_message(const Json& message);
  void on_submitted(const Json& answer);
  void on_followed(const Json& answer);
  void on_status(const Json& answer);
  void ask_for_place();
  void on_trial_status(const Json& answer);
  void tell_wait(const core::RunSnapshot& shot);
  void on_searched(const Json& answer);
  void on_part(const std::string& bytes);
  void print_log(const std::string& file, std::string lines);
  void print_json_lines(const std::string& file, const std::string& lines);
  void print_trial_event(const Json& event);
  void print_json_line(const std::string& file, const std::string& line);
  void on_end(const Json& outcome);
  void print_end(const core::RunOutcome& outcome);
  void complete_copy(core::RunOutcome& outcome);
  [[nodiscard]] NamedRun named() const;
  void report_end(const core::RunOutcome& outcome);
  [[nodiscard]] Status listen_for_own(const job::JobSpec& job);
  void acknowledge(const std::string& file);
  void wait_signal();
  void on_signal(int signal);
  void on_lifeline_end();
  void pass_signal(int signal);
  void on_signal_passed(const Json& answer);
  void ask_to_stop(const Json& how);
  void on_stop_answer(int id, const Json& answer);
  void leave_rest(const Json& outcome);
  void tick_status();
  void end(int exit_code);

  /// Numbers of requests.
  static constexpr int kSubmit = 1, kFollow = 2, kStatus = 3, kStop = 4, kSignal = 5, kSearch = 6, kTrialStatus = 7;
  static constexpr int kOutcome = 8;

  struct File {
    std::uint64_t got = 0;  ///< Bytes taken over the connection.
    std::string partial;    ///< Of events and metrics: those after the last newline.
    LogLines log;           ///< Of a log.
  };
  [[nodiscard]] File& file_of(const std::string& name);

  const RunOptions& options_;
  net::Address coordinator_;
  boost::asio::io_context io_{1};
  Console console_;
  net::ClientLink link_;
  boost::asio::signal_set signals_;
  net::Timer status_timer_;
  net::Timer timeout_;
  net::Timer answer_limit_;  ///< Of who only waits to know what to stop, or how it has ended.
  Json request_;
  Json follow_;  ///< What is followed.
  bool detach_ = false;
  bool is_reader_ = false;
  bool is_open_ = false;
  bool was_open_ = false;
  bool is_submitted_ = false;         ///< Sent, at least.
  bool is_joined_ = false;            ///< What goes on beside what is followed has begun.
  std::optional<FileUpload> upload_;  ///< Of what its job brings.
  int uploads_ = 0;
  std::string run_;  ///< Empty until the coordinator has taken it.
  std::string shown_dir_;
  int epochs_ = 0;                        ///< Of the job.
  std::optional<ReportPrinter> printer_;  ///< Of a job that this has submitted.
  std::optional<RemoteLines> lines_;      ///< Of ranks, as its job and our options want them.
  std::optional<RunCopy> copy_;
  std::optional<process::InputEnd> lifeline_;
  std::optional<OwnOutputPlace> own_place_;
  std::unique_ptr<OwnOutput> own_;
  std::map<std::string, File> files_;
  std::string part_file_;  ///< Whose bytes the next chunk is.
  std::uint64_t part_offset_ = 0;
  std::optional<Json> pending_stop_;
  std::int64_t steps_planned_ = 0;
  bool is_training_ = false;
  std::optional<TrialTable> table_;  ///< Of an experiment.
  std::optional<RemoteSearch> search_;
  std::vector<Json> past_;  ///< Events from before this has joined, until its search program is told of them.
  bool is_over_ = false;    ///< The run has ended; what is left is to be printed.
  int signals_seen_ = 0;
  int signal_ = 0;  ///< The last of them.
  int status_ticks_ = 0;
  bool has_begun_ = false;  ///< It has had a place.
  std::string told_;        ///< How it goes, as it was told without a terminal.
  WaitTeller waits_;
  std::optional<int> exit_code_;
};

/// RemoteRun::read() of a run that was named; the exit code. `has_logs`, if it is wanted: whether anything of a log
/// came.
[[nodiscard]] int read_on_cluster(const NamedRun& run, nlohmann::ordered_json follow, bool show_prefix,
                                  bool* has_logs = nullptr);

}  // namespace sgd::cli
