#pragma once
// What clients ask of a coordinator, answered from the shell and the folders of runs: submit, ps, status, stop, nodes.
// Owns the list of all runs that this coordinator knows, and tells the client desk when their files grow.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "launcher/coordinator/client_desk.hpp"
#include "launcher/coordinator/coordinator_shell.hpp"

namespace sgd::coordinator {

class RunService {
 public:
  using Json = nlohmann::ordered_json;
  using Log = std::function<void(const std::string& line)>;

  /// Runs get folders below `runs_dir`, which exists.
  RunService(CoordinatorShell& shell, std::string runs_dir, Log log);

  [[nodiscard]] ClientDesk& desk() { return desk_; }
  /// Nothing for a run that is not known.
  [[nodiscard]] std::optional<std::string> directory_of(const RunId& run) const;
  /// Logs of `run` have grown.
  void on_log_grown(const RunId& run, const std::string& file) { desk_.on_grown(run, file); }
  /// Called when a run is over, before clients are told: answer with settle() when all its files are here.
  std::function<void(const RunId& run)> on_over;
  void settle(const RunId& run);

 private:
  struct Known {
    std::string name;
    std::string directory;
    std::int64_t number = 0;       ///< In order of submission.
    double submitted = 0;          ///< Unix seconds.
    std::optional<Json> outcome;   ///< It is over.
    bool is_settled = false;       ///< And its files are whole.
  };

  void answer(const nlohmann::json& request, const ClientDesk::Reply& reply);
  [[nodiscard]] Json submit(const nlohmann::json& request);
  [[nodiscard]] Json ps(const nlohmann::json& request) const;
  [[nodiscard]] Json status(const nlohmann::json& request) const;
  [[nodiscard]] Json stop(const nlohmann::json& request);
  [[nodiscard]] Json nodes() const;
  [[nodiscard]] Json order(const nlohmann::json& request);
  [[nodiscard]] Json plan(const nlohmann::json& request) const;
  [[nodiscard]] RunObserver observe(const RunId& run);
  [[nodiscard]] Result<ClientDesk::FollowedRun> find(const std::string& name) const;
  [[nodiscard]] Json row(const RunId& id, const Known& known) const;

  CoordinatorShell& shell_;
  std::string runs_dir_;
  Log log_;
  std::map<RunId, Known> runs_;
  std::map<std::string, RunId> requests_;  ///< By the id that the client gave its request.
  std::int64_t next_number_ = 1;
  ClientDesk desk_;
};

}  // namespace sgd::coordinator
