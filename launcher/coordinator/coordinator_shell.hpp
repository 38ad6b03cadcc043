#pragma once
// The shell of core::Coordinator: one thread, one event loop. Facts become events, commands are
// carried out in their order, one timer is armed at the machine's next wake-up. A run directory
// that cannot be written any more is said once per run and does not end the run.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "launcher/core/coordinator.hpp"
#include "launcher/net/agent_link.hpp"
#include "launcher/storage/run_directory.hpp"

namespace sgd::coordinator {

struct RunObserver {
  std::function<void(const nlohmann::ordered_json& event)> on_event;      ///< As written to events.jsonl.
  std::function<void(const nlohmann::ordered_json& metrics)> on_metrics;  ///< As written to metrics.jsonl.
  std::function<void(std::string message)> on_warning;
  std::function<void(const core::RunOutcome& outcome)> on_finished;       ///< summary.json is written.
};

class CoordinatorShell {
 public:
  explicit CoordinatorShell(boost::asio::io_context& io, core::CoordinatorSettings settings = {});

  /// A connection whose first message will say that it is `node`. It takes the place of the node's former link when that
  /// message has come, unless the core refuses it.
  void add_agent(const NodeId& node, std::unique_ptr<net::CoordinatorLink> link);
  void submit(core::RunDefinition run, std::unique_ptr<storage::RunDirectory> directory, RunObserver observer);
  void request_stop(const RunId& run, const core::StopRequest& request);
  [[nodiscard]] std::optional<core::RunSnapshot> snapshot(const RunId& run) const;
  [[nodiscard]] std::vector<core::NodeSnapshot> nodes() const { return core_.nodes(); }
  /// What an operator wants of a node; why it would change nothing, else empty.
  [[nodiscard]] std::string order(const NodeId& node, const core::NodeOrder& order);
  /// What would become of `run`, were it submitted now.
  [[nodiscard]] core::Explanation explain(const core::RunDefinition& run) const;
  void stop();

  /// A connection was closed because its agent is not the node's, or no longer.
  std::function<void(const NodeId& node, const std::string& reason)> on_refused;

 private:
  /// Each connection has a number, so that a late word of a former one is known as such.
  struct AgentEnd {
    std::uint64_t number = 0;
    std::unique_ptr<net::CoordinatorLink> link;
  };
  struct Run {
    std::unique_ptr<storage::RunDirectory> directory;
    RunObserver observer;
    bool write_failed = false;  ///< Said already.
  };

  void on_event(const core::CoordinatorEvent& event);
  void on_agent(const NodeId& node, std::uint64_t number, cluster::FromAgent message);
  void on_agent_closed(const NodeId& node, std::uint64_t number);
  void carry_out(const core::CoordinatorCommand& command);
  void reserve_port(const RunId& run, Generation generation);
  void check_written(Run& run, const Status& status) const;
  void arm_timer();

  boost::asio::io_context& io_;
  core::Coordinator core_;
  std::map<NodeId, AgentEnd> agents_;
  std::map<std::uint64_t, std::unique_ptr<net::CoordinatorLink>> arriving_;  ///< Without a first message.
  std::uint64_t links_ = 0;
  std::map<RunId, Run> runs_;
  boost::asio::steady_timer timer_;
  std::optional<TimePoint> armed_;
};

}  // namespace sgd::coordinator
