#pragma once
// The coordinator's figures as a struct that the daemon fills, and their text. Counters grow from the
// daemon's start; gauges are set when they are asked for. The names are listed in this folder's README.

#include <cstdint>
#include <map>
#include <string>

#include "launcher/http/metrics_text.hpp"
#include "launcher/http/process_metrics.hpp"

namespace sgd::http {

struct CoordinatorMetrics {
  // Gauges.
  std::int64_t agents = 0;                    ///< Connected now.
  std::map<std::string, std::int64_t> nodes;  ///< By state; zeros too, so that a query finds them.
  std::map<std::string, std::int64_t> runs;   ///< By phase (core::name), not finished ones; zeros too.
  std::int64_t slots = 0;                     ///< Of all connected nodes.
  std::int64_t slots_used = 0;
  std::int64_t clients = 0;      ///< Connected now.
  std::int64_t store_bytes = 0;  ///< Of the database and its log.
  bool is_ready = false;
  double event_loop_lag_max = 0;  ///< Seconds, since it was asked for last.
  // Counters.
  CountByLabel runs_finished;        ///< By state: succeeded, failed, ...
  CountByLabel failures;             ///< By kind: exit_code, signal, node_lost, ...
  CountByLabel connections_refused;  ///< By reason: a few fixed words, never a peer's text.
  CountByLabel frames_refused;       ///< By reason, as above.
  std::uint64_t frames_received = 0;
  std::uint64_t frames_sent = 0;
  std::map<std::string, std::uint64_t> facts;  ///< By what became of them (core::FactVerdict); zeros too.
  // Histograms, in seconds.
  Histogram recovery = histogram_of_seconds();        ///< From a failure to the first step of all ranks.
  Histogram store_commit = histogram_of_seconds();    ///< One transaction, with its fsync.
  Histogram event_loop_lag = histogram_of_seconds();  ///< How late a timer of the event loop fires.
};

[[nodiscard]] std::string text_of(const CoordinatorMetrics& metrics, const ProcessMetrics& process);

}  // namespace sgd::http
