#include "launcher/http/coordinator_metrics.hpp"

namespace sgd::http {
namespace {

void by_label(MetricsText& text, const char* name, const char* help, const char* label,
              const std::map<std::string, std::int64_t>& values) {
  text.family(MetricKind::kGauge, name, help);
  for (const auto& [value, count] : values) text.sample(static_cast<double>(count), {{label, value}});
}

void counted(MetricsText& text, const char* name, const char* help, const char* label, const CountByLabel& counts) {
  text.family(MetricKind::kCounter, name, help).samples(label, counts);
}

void timed(MetricsText& text, const char* name, const char* help, const Histogram& values) {
  text.family(MetricKind::kHistogram, name, help).histogram(values);
}

void write_gauges(MetricsText& text, const CoordinatorMetrics& metrics) {
  text.family(MetricKind::kGauge, "sgd_build_info", "Always 1; the version is a label.")
      .sample(1, {{"version", SGD_VERSION}});
  text.gauge("sgd_coordinator_ready", "Whether jobs are taken.", metrics.is_ready ? 1 : 0);
  text.gauge("sgd_coordinator_agents", "Agents that are connected.", static_cast<double>(metrics.agents));
  by_label(text, "sgd_coordinator_nodes", "Nodes by state.", "state", metrics.nodes);
  by_label(text, "sgd_coordinator_runs", "Runs that have not ended, by phase.", "state", metrics.runs);
  text.gauge("sgd_coordinator_slots", "Slots of connected nodes.", static_cast<double>(metrics.slots));
  text.gauge("sgd_coordinator_slots_used", "Slots in which a worker runs.", static_cast<double>(metrics.slots_used));
  text.gauge("sgd_coordinator_clients", "Clients that are connected.", static_cast<double>(metrics.clients));
  text.gauge("sgd_coordinator_store_bytes", "Size of the job store with its log.",
             static_cast<double>(metrics.store_bytes));
}

}  // namespace

std::string text_of(const CoordinatorMetrics& metrics, const ProcessMetrics& process) {
  MetricsText text;
  write_gauges(text, metrics);
  counted(text, "sgd_coordinator_runs_finished_total", "Runs that have ended, by state.", "state",
          metrics.runs_finished);
  counted(text, "sgd_coordinator_failures_total", "Failures of worker groups, by kind.", "kind", metrics.failures);
  counted(text, "sgd_coordinator_connections_refused_total", "Connections closed before they counted, by reason.",
          "reason", metrics.connections_refused);
  counted(text, "sgd_coordinator_frames_refused_total", "Frames that ended their connection, by reason.", "reason",
          metrics.frames_refused);
  text.counter("sgd_coordinator_frames_received_total", "Frames received.",
               static_cast<double>(metrics.frames_received));
  text.counter("sgd_coordinator_frames_sent_total", "Frames sent.", static_cast<double>(metrics.frames_sent));
  text.family(MetricKind::kCounter, "sgd_coordinator_facts_total", "Facts of agents, by what became of them.");
  for (const auto& [verdict, count] : metrics.facts) text.sample(static_cast<double>(count), {{"verdict", verdict}});
  timed(text, "sgd_coordinator_recovery_seconds", "From a failure to the first step of all ranks.", metrics.recovery);
  timed(text, "sgd_coordinator_store_commit_seconds", "One transaction of the job store.", metrics.store_commit);
  timed(text, "sgd_coordinator_event_loop_lag_seconds", "How late a timer of the event loop fires.",
        metrics.event_loop_lag);
  text.gauge("sgd_coordinator_event_loop_lag_max_seconds", "The longest of them since this was asked for last.",
             metrics.event_loop_lag_max);
  write(process, text);
  return text.take();
}

}  // namespace sgd::http
