#include "launcher/coordinator/run_service.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "common/job/load.hpp"
#include "launcher/core/outcome_json.hpp"
#include "launcher/process/clock.hpp"

namespace sgd::coordinator {
namespace {

using Json = RunService::Json;

Json refused(const char* kind, const std::string& error) { return {{"ok", false}, {"kind", kind}, {"error", error}}; }

Json refused_job(const Diagnostics& diagnostics) {
  Json refusal = refused("job", "the job is refused");
  refusal["errors"] = Json::array();
  for (const Diagnostic& item : diagnostics.items) refusal["errors"].push_back(item.text());
  return refusal;
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

core::StopRequest stop_of(const nlohmann::json& request) {
  core::StopRequest stop;
  const std::string why = request.value("why", "cancelled");
  if (why == "signal") stop.why = core::StopRequest::Why::kSignal;
  if (why == "timeout") stop.why = core::StopRequest::Why::kTimeout;
  stop.signal = request.value("signal", 0);
  stop.at_once = request.value("at_once", false);
  if (request.contains("grace_s")) stop.grace = from_seconds(request.at("grace_s").get<double>());
  return stop;
}

/// A node in the words of its connection where nothing else is to be said.
Json row_of(const core::NodeSnapshot& node) {
  Json row = core::to_json(node, process::monotonic_now());
  if (node.phase == core::NodePhase::kReady) row["state"] = "connected";
  if (node.phase == core::NodePhase::kClosed) row["state"] = "disconnected";
  return row;
}

}  // namespace

RunService::RunService(CoordinatorShell& shell, std::string runs_dir, Log log)
    : shell_(shell),
      runs_dir_(std::move(runs_dir)),
      log_(std::move(log)),
      desk_({[this](const nlohmann::json& request, const ClientDesk::Reply& reply) { answer(request, reply); },
             [this](const std::string& run) { return find(run); }}) {}

std::optional<std::string> RunService::directory_of(const RunId& run) const {
  const auto known = runs_.find(run);
  return known == runs_.end() ? std::nullopt : std::optional(known->second.directory);
}

void RunService::answer(const nlohmann::json& request, const ClientDesk::Reply& reply) {
  const std::string what = request.at("request").get<std::string>();
  if (what == "submit") return reply(submit(request));
  if (what == "ps") return reply(ps(request));
  if (what == "status") return reply(status(request));
  if (what == "stop") return reply(stop(request));
  if (what == "nodes") return reply(nodes());
  if (what == "order_node") return reply(order(request));
  if (what == "plan") return reply(plan(request));
  reply(refused("request", fmt::format("unknown request \"{}\": this is sgd-launch {}", what, SGD_VERSION)));
}

/// The same request once more, after a lost connection, is answered with the same run.
Json RunService::submit(const nlohmann::json& request) {
  const std::string request_id = request.value("request_id", "");
  if (const auto before = requests_.find(request_id); !request_id.empty() && before != requests_.end())
    return {{"ok", true}, {"run", before->second}};
  job::LoadResult loaded = job::load_resolved(request.at("job"));
  if (!loaded.job) return refused_job(loaded.diagnostics);
  auto place = storage::choose_run_place(loaded.job->name, "", runs_dir_);
  if (!place) return refused("state", place.error().message);
  auto directory = storage::RunDirectory::create(place.value(), loaded.job->resolved);
  if (!directory) return refused("state", directory.error().message);
  const RunId id = place.value().id;
  Known& known = runs_[id];
  known.name = loaded.job->name;
  known.directory = place.value().directory;
  known.number = next_number_++;
  known.submitted = unix_seconds();
  if (!request_id.empty()) requests_[request_id] = id;
  core::RunDefinition definition;
  definition.id = id;
  definition.placement_timeout = loaded.job->placement_timeout;
  definition.priority = loaded.job->priority;
  definition.job = std::move(*loaded.job);
  definition.run_dir = place.value().directory;
  log_(fmt::format("run {}: submitted, {} workers", id, definition.job.num_workers));
  shell_.submit(std::move(definition), std::move(directory).value(), observe(id));
  return {{"ok", true}, {"run", id}};
}

RunObserver RunService::observe(const RunId& run) {
  RunObserver observer;
  observer.on_event = [this, run](const Json&) { desk_.on_grown(run, "events.jsonl"); };
  observer.on_metrics = [this, run](const Json&) { desk_.on_grown(run, "metrics.jsonl"); };
  observer.on_warning = [this, run](const std::string& message) { log_(fmt::format("run {}: warning: {}", run, message)); };
  observer.on_finished = [this, run](const core::RunOutcome& outcome) {
    runs_.at(run).outcome = core::to_json(outcome);
    log_(fmt::format("run {}: {}{}{}", run, outcome.state, outcome.error.empty() ? "" : ": ", outcome.error));
    if (on_over) on_over(run);
    else settle(run);
  };
  return observer;
}

void RunService::settle(const RunId& run) {
  const auto known = runs_.find(run);
  if (known == runs_.end() || !known->second.outcome || std::exchange(known->second.is_settled, true)) return;
  desk_.on_settled(run, *known->second.outcome);
}

Result<ClientDesk::FollowedRun> RunService::find(const std::string& name) const {
  std::vector<std::map<RunId, Known>::const_iterator> fitting;
  for (auto run = runs_.begin(); run != runs_.end(); ++run)
    if (run->first == name) fitting = {run};
  if (fitting.empty())
    for (auto run = runs_.begin(); run != runs_.end(); ++run)
      if (run->first.starts_with(name)) fitting.push_back(run);
  if (fitting.empty()) return Error{runs_.empty() ? "no run here yet" : fmt::format("no run \"{}\" here", name)};
  const auto by_number = [](const auto& one, const auto& other) { return one->second.number < other->second.number; };
  const auto newest = *std::max_element(fitting.begin(), fitting.end(), by_number);
  if (fitting.size() > 1 && !name.empty()) {
    std::string names;
    for (const auto& run : fitting) names += (names.empty() ? "" : ", ") + run->first;
    return Error{fmt::format("\"{}\" could be any of {}", name, names)};
  }
  ClientDesk::FollowedRun found{newest->first, newest->second.directory, std::nullopt};
  if (newest->second.is_settled) found.outcome = newest->second.outcome;
  return found;
}

Json RunService::row(const RunId& id, const Known& known) const {
  Json row = {{"run", id}, {"name", known.name}, {"submitted", known.submitted}};
  if (known.outcome) {
    for (const char* key : {"state", "exit_code", "epochs", "steps", "failures", "world_size", "wall_s"})
      row[key] = known.outcome->value(key, Json());
    row["num_workers"] = nullptr;
  } else if (const auto shot = shell_.snapshot(id)) {
    const Json live = core::to_json(*shot);
    for (const char* key : {"state", "reason", "epoch", "epochs", "step", "failures", "world_size", "num_workers", "wall_s"})
      row[key] = live.value(key, Json());
  }
  return row;
}

Json RunService::ps(const nlohmann::json& request) const {
  const bool all = request.value("all", false);
  std::map<std::int64_t, Json> rows;
  for (const auto& [id, known] : runs_)
    if (all || !known.outcome) rows[known.number] = row(id, known);
  Json list = Json::array();
  for (auto& [number, one] : rows) list.push_back(std::move(one));
  return {{"ok", true}, {"runs", std::move(list)}};
}

Json RunService::status(const nlohmann::json& request) const {
  const auto run = find(request.value("run", ""));
  if (!run) return refused("run", run.error().message);
  const Known& known = runs_.at(run.value().id);
  if (known.outcome) {
    Json summary = {{"schema_version", 1}, {"run", run.value().id}};
    summary.update(*known.outcome);
    return {{"ok", true}, {"run_dir", known.directory}, {"summary", std::move(summary)}};
  }
  const auto shot = shell_.snapshot(run.value().id);
  if (!shot) return refused("state", "the run has not begun");
  Json status = core::to_json(*shot);
  status["run_dir"] = known.directory;
  return {{"ok", true}, {"status", std::move(status)}};
}

Json RunService::stop(const nlohmann::json& request) {
  const auto run = find(request.value("run", ""));
  if (!run) return refused("run", run.error().message);
  const Known& known = runs_.at(run.value().id);
  if (!known.outcome) {
    log_(fmt::format("run {}: asked to stop", run.value().id));
    shell_.request_stop(run.value().id, stop_of(request));
  }
  return {{"ok", true}, {"run", run.value().id}, {"is_over", known.outcome.has_value()}};
}

Json RunService::nodes() const {
  Json rows = Json::array();
  for (const core::NodeSnapshot& node : shell_.nodes())
    rows.push_back(row_of(node));
  return {{"ok", true}, {"nodes", std::move(rows)}};
}

Json RunService::order(const nlohmann::json& request) {
  static const std::map<std::string, core::NodeOrder::Kind> kKinds = {{"drain", core::NodeOrder::Kind::kDrain},
                                                                      {"undrain", core::NodeOrder::Kind::kUndrain},
                                                                      {"remove", core::NodeOrder::Kind::kRemove},
                                                                      {"set-slots", core::NodeOrder::Kind::kSetSlots}};
  const auto kind = kKinds.find(request.at("order").get<std::string>());
  if (kind == kKinds.end()) return refused("value", "an order is one of drain, undrain, remove, set-slots");
  const NodeId node = request.at("node").get<std::string>();
  const std::vector<core::NodeSnapshot> known = shell_.nodes();
  if (std::none_of(known.begin(), known.end(), [&](const auto& one) { return one.node == node; })) {
    std::string names;
    for (const core::NodeSnapshot& one : known) names += (names.empty() ? "" : ", ") + one.node;
    return refused("node", fmt::format("no node \"{}\"; there is {}", node, names.empty() ? "none" : names));
  }
  core::NodeOrder order{kind->second, request.value("slots", -1)};
  const std::string why_not = shell_.order(node, order);
  if (!why_not.empty()) return refused("value", why_not);
  log_(fmt::format("node {}: {}", node, kind->first));
  return nodes();
}

Json RunService::plan(const nlohmann::json& request) const {
  job::LoadResult loaded = job::load_resolved(request.at("job"));
  if (!loaded.job) return refused_job(loaded.diagnostics);
  core::RunDefinition definition;
  definition.id = loaded.job->name;
  definition.priority = loaded.job->priority;
  definition.job = std::move(*loaded.job);
  return {{"ok", true}, {"plan", core::to_json(shell_.explain(definition))}};
}

}  // namespace sgd::coordinator
