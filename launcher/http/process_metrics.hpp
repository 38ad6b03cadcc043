#pragma once
// What the kernel says of this process, under the names that every Prometheus client uses
// (process_cpu_seconds_total, ...).

#include "launcher/http/metrics_text.hpp"

namespace sgd::http {

struct ProcessMetrics {
  double cpu_seconds = 0;  ///< User and system.
  double resident_bytes = 0;
  double virtual_bytes = 0;
  double start_time_seconds = 0;  ///< Since 1970.
  double open_fds = 0;
  double max_fds = 0;
};

/// Reads /proc; what cannot be read stays 0.
[[nodiscard]] ProcessMetrics read_process_metrics();
void write(const ProcessMetrics& process, MetricsText& text);

}  // namespace sgd::http
