#include "launcher/coordinator/coordinator_probes.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/json/lenient.hpp"
#include "launcher/http/process_metrics.hpp"
#include "launcher/process/clock.hpp"

namespace sgd::coordinator {
namespace {

constexpr auto kStatusInterval = std::chrono::seconds(1);
/// Where somebody looks at it: short enough that nothing that holds the loop for long stays unseen.
constexpr Duration kLagInterval = std::chrono::milliseconds(10);

/// Of all phases up to the last one: a query that looks for one finds it while nothing is in it.
template <class Phase>
std::map<std::string, std::int64_t> zeros_up_to(Phase last) {
  std::map<std::string, std::int64_t> zeros;
  for (int phase = 0; phase <= static_cast<int>(last); ++phase) zeros[core::name(static_cast<Phase>(phase))] = 0;
  return zeros;
}

}  // namespace

CoordinatorProbes::CoordinatorProbes(boost::asio::io_context& io, const CoordinatorShell& shell, Log log)
    : io_(io), shell_(shell), log_(std::move(log)), status_timer_(io) {}

Status CoordinatorProbes::open(std::optional<int> port) {
  auto notify = process::ServiceNotify::open(process::take_notify_environment());
  if (!notify) return notify.error();
  notify_ = std::move(notify).value();
  feeder_ = std::make_unique<process::WatchdogFeeder>(io_, notify_);
  lag_ = std::make_unique<http::LoopLag>(
      io_,
      [this](double lag_s) {
        metrics.event_loop_lag.observe(lag_s);
        metrics.event_loop_lag_max = std::max(metrics.event_loop_lag_max, lag_s);
      },
      port ? kLagInterval : http::LoopLag::kInterval);
  if (!port) return {};
  server_ = std::make_unique<http::ProbeServer>(
      io_,
      [this] {
        refresh();
        std::string text = http::text_of(metrics, http::read_process_metrics());
        metrics.event_loop_lag_max = 0;
        return text;
      },
      [this] {
        http::Health health;
        health.is_ready = metrics.is_ready && !shell_.is_held();
        if (!health.is_ready) health.reason = shell_.is_held() ? "too much waits for the store" : "not serving yet";
        return health;
      });
  return server_->listen(*port);
}

void CoordinatorProbes::on_ready() {
  metrics.is_ready = true;
  last_status_ = status_text();
  if (const Status said = notify_.ready(last_status_); !said) log_("warning: " + said.error().message);
  if (notify_.is_heard()) tick();
}

/// Identities are read anew by themselves; there is nothing else that may change while it runs.
void CoordinatorProbes::on_reload() {
  (void)notify_.reloading(process::monotonic_now());
  (void)notify_.ready(status_text());
}

void CoordinatorProbes::on_stop() {
  metrics.is_ready = false;
  (void)notify_.stopping("ending; runs go on");
  if (server_) server_->stop();
}

/// A recovery is of a training: of a command nobody knows when it is at work again.
void CoordinatorProbes::on_event(const nlohmann::ordered_json& event) {
  const std::string name = read_or(event, "event", "");
  if (name == "failure") metrics.failures.add(read_or(event, "kind", ""));
  if (name == "recovered") metrics.recovery.observe(read_or(event, "total_s", 0.0));
}

void CoordinatorProbes::tick() {
  std::string text = status_text();
  if (text != last_status_) notify_.status(text);
  last_status_ = std::move(text);
  status_timer_.after(kStatusInterval, [this] { tick(); });
}

std::string CoordinatorProbes::status_text() const {
  core::NodeSum all;
  for (const auto& [phase, sum] : shell_.node_sums()) {
    all.nodes += sum.nodes;
    all.slots += sum.slots;
    all.used += sum.used;
  }
  const std::size_t live = shell_.run_ids(CoordinatorShell::Which::kLive).size();
  return fmt::format("{} runs, {} nodes, {} of {} slots used", live, all.nodes, all.used, all.slots);
}

void CoordinatorProbes::refresh() {
  metrics.agents = metrics.slots = metrics.slots_used = 0;
  metrics.facts.clear();
  for (const auto& [verdict, name] : core::kFactVerdictNames) metrics.facts[name] = shell_.facts().of(verdict);
  metrics.nodes = zeros_up_to(core::NodePhase::kLost);
  metrics.runs = zeros_up_to(core::RunPhase::kClearing);
  metrics.store_bytes = shell_.store_bytes();
  if (fill) fill(metrics);
  for (const auto& [phase, sum] : shell_.node_sums()) {
    metrics.nodes[core::name(phase)] = sum.nodes;
    if (phase == core::NodePhase::kLost || phase == core::NodePhase::kClosed) continue;
    metrics.agents += sum.nodes;
    metrics.slots += sum.slots;
    metrics.slots_used += sum.used;
  }
  for (const auto& [phase, count] : shell_.live_phases()) metrics.runs[phase] = count;
}

}  // namespace sgd::coordinator
