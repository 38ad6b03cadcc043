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

  void add_agent(const NodeId& node, std::unique_ptr<net::CoordinatorLink> link);
  void submit(core::RunDefinition run, std::unique_ptr<storage::RunDirectory> directory, RunObserver observer);
  void request_stop(const RunId& run, const core::StopRequest& request);
  [[nodiscard]] std::optional<core::RunSnapshot> snapshot(const RunId& run) const;
  [[nodiscard]] std::vector<core::NodeSnapshot> nodes() const { return core_.nodes(); }
  void stop();

 private:
  struct Run {
    std::unique_ptr<storage::RunDirectory> directory;
    RunObserver observer;
    bool write_failed = false;  ///< Said already.
  };

  void on_event(const core::CoordinatorEvent& event);
  void carry_out(const core::CoordinatorCommand& command);
  void reserve_port(const RunId& run, Generation generation);
  void check_written(Run& run, const Status& status) const;
  void arm_timer();

  boost::asio::io_context& io_;
  core::Coordinator core_;
  std::map<NodeId, std::unique_ptr<net::CoordinatorLink>> agents_;
  std::map<RunId, Run> runs_;
  boost::asio::steady_timer timer_;
  std::optional<TimePoint> armed_;
};

}  // namespace sgd::coordinator
