#pragma once
// What clients ask of a coordinator, answered from the shell and the folders of runs: submit, ps, status, stop, nodes.
// Tells the client service when files of runs grow. What is large is copied as values and made text of by a thread;
// what touches files is asked of another one, with a limit.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/json/nlohmann.hpp"
#include "launcher/callbacks/run_callbacks.hpp"
#include "launcher/coordinator/audit_log.hpp"
#include "launcher/coordinator/client_service.hpp"
#include "launcher/coordinator/common_answer.hpp"
#include "launcher/coordinator/coordinator_shell.hpp"
#include "launcher/coordinator/job_files.hpp"
#include "launcher/coordinator/run_retention.hpp"
#include "launcher/storage/file_thread.hpp"

namespace sgd::coordinator {

[[nodiscard]] inline bool is_over(const RunRow& row) {
  return row.state != "live";
}

class RunService {
 public:
  using Json = nlohmann::ordered_json;
  using Log = std::function<void(const std::string& line)>;
  /// For a new run's folder, for what a run's folder is asked for, and for a copy of it.
  static constexpr Duration kDiskLimit = std::chrono::seconds(10);
  static constexpr Duration kCopyLimit = std::chrono::minutes(2);
  /// Answers that wait to be made text of, each with a copy of what it shows.
  static constexpr std::size_t kTextsMax = 256;
  static constexpr Duration kTextLimit = std::chrono::seconds(30);
  /// Of all runs, that a turn of the event loop looks at for a list of them.
  static constexpr std::size_t kRowsATurn = 50;

  /// Runs get folders below `runs_dir`, which exists.
  /// What clients bring for their jobs lies in `files_dir`, on the same disk.
  RunService(boost::asio::io_context& io, CoordinatorShell& shell, std::string runs_dir, std::string files_dir,
             AuditLog& audit, Log log);

  core::OwnerQuota quota;
  /// Else nodes are there for one run, and what they have not brought goes with them.
  bool do_nodes_keep = true;
  [[nodiscard]] JobFiles& job_files() { return job_files_; }
  [[nodiscard]] RunRetention& retention() { return retention_; }

  /// Goes on with the runs of the shell's store.
  [[nodiscard]] Status restore();
  [[nodiscard]] ClientService& client_service() { return client_service_; }
  /// Nothing for a run that is not known.
  [[nodiscard]] std::optional<std::string> directory_of(const RunId& run) const;
  /// In which the files are that its job has brought: its own, or, of a trial, its experiment's.
  [[nodiscard]] std::optional<std::string> directory_of_files(const RunId& run) const;
  /// At whose cost its files grow.
  [[nodiscard]] storage::Charge charge_of(const RunId& run);
  /// Logs of `run` have grown.
  void on_log_grown(const RunId& run, const std::string& file) { client_service_.on_grown(run, file); }
  struct Watcher {
    std::function<void(const RunId& run, const Json& event)> on_event;
    std::function<void(const RunId& run, const std::vector<std::string>& paths)> on_keep;
    /// Before clients are told: answer with settle() when all its files are here.
    std::function<void(const RunId& run)> on_over;
    /// With its files, and with the state that it is told to have from then on.
    std::function<void(const RunId& run, const std::string& state)> on_settled = {};
  };
  void watch(Watcher watcher) { watcher_ = std::move(watcher); }
  /// `not_kept`: why what it leaves is not all here; such a run has not succeeded.
  void settle(const RunId& run, const std::string& not_kept = {});
  [[nodiscard]] bool is_settled(const RunId& run) const;

 private:
  void answer(const Requester& who, const nlohmann::json& request, const ClientService::Reply& reply);
  void submit(const Requester& who, const nlohmann::json& request, const ClientService::Reply& reply);
  void resume(const Requester& who, const nlohmann::json& request, const ClientService::Reply& reply);
  /// The resolved job of a run that has ended, for a client that wants to change it.
  void job(const Requester& who, const nlohmann::json& request, const ClientService::Reply& reply);
  void note_read(const Requester& who, const char* action, const RunId& run, const std::string& owner);
  struct Submission {
    Requester who;
    const char* verb;
    std::string request_id;
    std::string owner;
    job::JobSpec job;
    std::optional<core::RunPast> past;
    std::unique_ptr<storage::RunDirectory> directory;
    ClientService::Reply reply;
    Json offsets = Json::object();             ///< Where the files of a run that goes on begin to be its own.
    std::optional<core::TrialBase> base = {};  ///< Of an experiment.
    std::string files = {};                    ///< The hash of the set that the job brings; empty: none.
  };
  /// The folder of a run that begins with what another one has saved.
  struct Copy {
    std::string folder;
    std::string misfit;  ///< Why the job cannot go on from it.
    storage::RunHistory history;
    std::unique_ptr<storage::RunDirectory> directory;
  };
  using CopyMaker = std::function<Result<Copy>(job::JobSpec& job, const std::string& runs_dir)>;
  [[nodiscard]] static Result<Copy> made_in(const std::string& runs_dir, const std::string& name,
                                            const std::function<Status(const storage::RunPlace&, Copy&)>& fill);
  [[nodiscard]] static Result<Copy> copy_of(const std::string& from, job::JobSpec& job, const std::string& runs_dir);
  [[nodiscard]] static Result<Copy> begun_from(const std::string& from, job::JobSpec& job, const std::string& runs_dir);
  void start_copy(Submission submission, RunId from, CopyMaker make);
  /// `job` of it names the run with whose state it begins.
  void submit_from(Submission submission);
  /// A job that is given out names what it begins from as submit_from() knows it: paths are the coordinator's own.
  static void name_origin(Json& job, const RunId& run, const std::string& run_dir);
  void start(Submission submission);
  [[nodiscard]] std::string refusal_of_files(const job::JobSpec& job, const std::string& files) const;
  [[nodiscard]] Status keep_files(const Requester& who, const std::string& files, const std::string& run_dir);
  [[nodiscard]] CommonAnswer::Source list_runs(CoordinatorShell::Which which) const;
  enum class NodeRows { kWhole, kBrief };
  [[nodiscard]] CommonAnswer::Source list_nodes(NodeRows rows) const;
  void status(const nlohmann::json& request, const ClientService::Reply& reply);
  void checkpoints(const nlohmann::json& request, const ClientService::Reply& reply);
  void take_away(const std::string& folder);
  [[nodiscard]] Json stop(const Requester& who, const nlohmann::json& request);
  [[nodiscard]] Json signal(const Requester& who, const nlohmann::json& request);
  [[nodiscard]] Json search(const Requester& who, const nlohmann::json& request);
  void resume_experiment(const Requester& who, const RunRow& row, const nlohmann::json& request,
                         const ClientService::Reply& reply);
  void best(const Requester& who, const nlohmann::json& request, const ClientService::Reply& reply);
  void runs(const ClientService::Reply& reply);
  void change_run(const Requester& who, const std::string& what, const nlohmann::json& request,
                  const ClientService::Reply& reply);
  [[nodiscard]] core::OwnerLoad load_of(const std::string& owner) const;
  void order(const Requester& who, const nlohmann::json& request, const ClientService::Reply& reply);
  void plan(const Requester& who, const nlohmann::json& request, const ClientService::Reply& reply);
  void answer_beside(CommonAnswer::Make make, const ClientService::Reply& reply);
  [[nodiscard]] std::string refusal_of_one_more(const Requester& who, const char* verb, const std::string& owner,
                                                const job::JobSpec& job);
  [[nodiscard]] RunObserver observe(const core::RunDefinition& definition);
  void add_callbacks(const core::RunDefinition& definition);
  [[nodiscard]] Result<RunRow> find(const std::string& name) const;
  [[nodiscard]] std::string no_run(const std::string& name) const;
  [[nodiscard]] Result<ClientService::FollowedRun> find_to_follow(const std::string& name) const;

  CoordinatorShell& shell_;
  boost::asio::io_context& io_;
  std::string runs_dir_;
  AuditLog& audit_;
  Log log_;
  std::map<RunId, Json> unsettled_;         ///< Outcomes of runs that are over, and whose files may grow.
  std::map<RunId, std::string> searchers_;  ///< Of live experiments: whose search program is heard.
  Watcher watcher_;
  ClientService client_service_;
  JobFiles job_files_;
  storage::FileThread folders_;  ///< Makes those of new runs.
  storage::FileThread files_;    ///< Reads what ended runs have left, and takes it away.
  storage::FileThread texts_;    ///< Makes answers.
  storage::FileThread reports_;  ///< Of callbacks.
  std::map<RunId, std::unique_ptr<callbacks::RunCallbacks>> callbacks_;  ///< Of live runs that have any.
  CommonAnswer live_runs_;
  CommonAnswer all_runs_;
  CommonAnswer nodes_;
  CommonAnswer brief_nodes_;
  RunRetention retention_;
};

}  // namespace sgd::coordinator
