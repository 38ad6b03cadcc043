#pragma once
// `sgd-launch [run] ...` and `sgd-launch resume ...`: from words to what is to be run. Reads no file.

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/time.hpp"
#include "common/job/load.hpp"
#include "launcher/cli/command_line.hpp"
#include "launcher/rendezvous/nodes_plan.hpp"

namespace sgd::cli {

struct RunOptions {
  job::Overrides overrides;
  std::string job_file;  ///< Or a command.
  std::vector<std::string> command;
  std::string run_dir;       ///< Empty: a new folder in runs/.
  std::optional<int> slots;  ///< Absent: as many as the job wants.
  int local_nodes = 1;       ///< Nodes that this machine stands for.
  std::string address;       ///< As given: the coordinator; empty: see cluster_address().
  bool detach = false;       ///< On a cluster: print the run's id and leave.
  std::optional<Duration> timeout;
  std::optional<int> lifeline;  ///< A descriptor: the run ends when nobody holds the other end any more.
  bool quiet = false;
  bool no_color = false;
  bool force_color = false;
  bool show_prefix = true;
  bool folds = true;      ///< Equal lines of several ranks are shown once.
  bool has_time = false;  ///< In front of lines of ranks.
  bool is_json = false;   ///< Lines of ranks as JSON objects.
  /// With several launchers: the first one shows what all ranks say, else each what those of its own machine do.
  bool output_at_first = false;
  bool help = false;

  // torchrun's way to name a program:
  bool is_module = false;
  bool no_python = false;
  bool is_run_path = false;
  std::string rendezvous_backend;
  rendezvous::NodesWords nodes;
  std::optional<rendezvous::NodesPlan> several_nodes;      ///< What follows from `nodes` and the environment.
  std::vector<std::pair<std::string, std::string>> notes;  ///< Option, and what happens in its place.
  std::map<std::string, std::string> variables;            ///< See ParsedArguments.

  /// The option, or the variable that was read in its place: what is wrong is said of what somebody wrote.
  [[nodiscard]] std::string source_of(const std::string& option) const;
};

/// The table that parses into `options`, which must outlive it.
[[nodiscard]] std::vector<Option> run_option_table(RunOptions& options);
[[nodiscard]] Option run_dir_option(RunOptions& options);
[[nodiscard]] Option detach_option(RunOptions& options);
/// Those of `resume`: without a run directory and torchrun's names, and no variable of the environment changes a job
/// that is fixed already.
[[nodiscard]] std::vector<Option> resume_option_table(RunOptions& options);
/// A word for the number of workers, such as auto, becomes that number: which, only the kind of job tells.
void count_workers(RunOptions& options, bool is_command, Diagnostics& diagnostics);
/// `more`: options of the verb itself, beside those of run.
[[nodiscard]] RunOptions parse_run_options(const std::vector<std::string>& arguments, Diagnostics& diagnostics,
                                           std::vector<Option> more = {});
[[nodiscard]] std::string run_help();

/// What a run on a cluster cannot have.
void refuse_local_options(const RunOptions& options, Diagnostics& diagnostics);
/// Nor what is no run that this command alone follows.
void refuse_run_dir(const RunOptions& options, Diagnostics& diagnostics);

}  // namespace sgd::cli
