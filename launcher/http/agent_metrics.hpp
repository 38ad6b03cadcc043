#pragma once
// The agent's figures as a struct that the daemon fills, and their text; as coordinator_metrics.

#include <cstdint>
#include <string>

#include "launcher/http/metrics_text.hpp"
#include "launcher/http/process_metrics.hpp"

namespace sgd::http {

struct AgentMetrics {
  // Gauges.
  bool is_connected = false;  ///< To the coordinator.
  std::int64_t slots = 0;
  std::int64_t runs = 0;          ///< That this node holds, each with its keeper.
  std::int64_t workers = 0;       ///< Processes of ranks.
  std::int64_t outbox_facts = 0;  ///< Wait to be acknowledged.
  std::int64_t outbox_bytes = 0;
  std::int64_t spool_bytes = 0;  ///< Files of runs that the coordinator has not taken yet.
  // Counters.
  std::uint64_t connections = 0;  ///< That became open; all but the first are reconnects.
  std::uint64_t workers_started = 0;
  CountByLabel workers_exited;  ///< By how: exit_code, signal, or caused_by_agent.
  CountByLabel frames_refused;  ///< By reason: a few fixed words.
  // Histograms, in seconds.
  Histogram event_loop_lag = histogram_of_seconds();
};

[[nodiscard]] std::string text_of(const AgentMetrics& metrics, const ProcessMetrics& process);

}  // namespace sgd::http
