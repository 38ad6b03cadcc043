#include "launcher/http/agent_metrics.hpp"

namespace sgd::http {

std::string text_of(const AgentMetrics& metrics, const ProcessMetrics& process) {
  MetricsText text;
  text.family(MetricKind::kGauge, "sgd_build_info", "Always 1; the version is a label.")
      .sample(1, {{"version", SGD_VERSION}});
  text.gauge("sgd_agent_connected", "Whether the coordinator is reached.", metrics.is_connected ? 1 : 0);
  text.gauge("sgd_agent_slots", "Slots of this node.", static_cast<double>(metrics.slots));
  text.gauge("sgd_agent_runs", "Runs that this node holds.", static_cast<double>(metrics.runs));
  text.gauge("sgd_agent_workers", "Processes of ranks.", static_cast<double>(metrics.workers));
  text.gauge("sgd_agent_outbox_facts", "Facts that wait to be acknowledged.",
             static_cast<double>(metrics.outbox_facts));
  text.gauge("sgd_agent_outbox_bytes", "Their size.", static_cast<double>(metrics.outbox_bytes));
  text.gauge("sgd_agent_spool_bytes", "Files of runs that the coordinator has not taken yet.",
             static_cast<double>(metrics.spool_bytes));
  text.counter("sgd_agent_connections_total", "Connections to the coordinator that became open.",
               static_cast<double>(metrics.connections));
  text.counter("sgd_agent_workers_started_total", "Processes of ranks that were started.",
               static_cast<double>(metrics.workers_started));
  text.family(MetricKind::kCounter, "sgd_agent_workers_exited_total", "Processes of ranks that have ended, by how.")
      .samples("how", metrics.workers_exited);
  text.family(MetricKind::kCounter, "sgd_agent_frames_refused_total", "Frames that ended their connection, by reason.")
      .samples("reason", metrics.frames_refused);
  text.family(MetricKind::kHistogram, "sgd_agent_event_loop_lag_seconds", "How late a timer of the event loop fires.")
      .histogram(metrics.event_loop_lag);
  write(process, text);
  return text.take();
}

}  // namespace sgd::http
