#include "launcher/coordinator/run_service.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include <fmt/format.h>

#include "common/job/load.hpp"
#include "launcher/core/outcome_json.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/storage/checkpoint_list.hpp"
#include "launcher/storage/resume_fit.hpp"
#include "launcher/storage/run_succession.hpp"

namespace sgd::coordinator {
namespace {

using Json = RunService::Json;

Json refused_job(const Diagnostics& diagnostics) {
  Json refusal = refused("job", "the job is refused");
  refusal["errors"] = Json::array();
  for (const Diagnostic& item : diagnostics.items) refusal["errors"].push_back(item.text());
  return refusal;
}

/// The first of what is wrong, for the audit log.
std::string refusal_text(const Diagnostics& diagnostics) {
  constexpr std::size_t kBytesMax = 512;
  return diagnostics.items.empty() ? "" : diagnostics.items.front().text().substr(0, kBytesMax);
}

bool is_over(const RunRow& row) {
  return row.state != "live";
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

/// A client's name for its request, good among its owner's alone: nobody is told of, or given, another's run by it.
std::string request_of(const Requester& who, const nlohmann::json& request) {
  const std::string id = request.value("request_id", "");
  return id.empty() ? id : who.name + "/" + id;
}

/// As is proved; where nothing is, as the client says.
std::string owner_of(const Requester& who, const nlohmann::json& request) {
  return who.name.empty() ? request.value("owner", "") : who.name;
}

/// A node in the words of its connection where nothing else is to be said.
Json row_of(const core::NodeSnapshot& node) {
  Json row = core::to_json(node, process::monotonic_now());
  if (node.phase == core::NodePhase::kReady) row["state"] = "connected";
  if (node.phase == core::NodePhase::kClosed) row["state"] = "disconnected";
  return row;
}

}  // namespace

RunService::RunService(boost::asio::io_context& io, CoordinatorShell& shell, std::string runs_dir, AuditLog& audit,
                       Log log)
    : shell_(shell),
      runs_dir_(std::move(runs_dir)),
      audit_(audit),
      log_(std::move(log)),
      desk_({[this](const Requester& who, const nlohmann::json& request, const ClientDesk::Reply& reply) {
               answer(who, request, reply);
             },
             [this](const std::string& run) { return find_to_follow(run); },
             [this](const Requester& who, const ClientDesk::FollowedRun& run) {
               note_read(who, "read_logs", run.id, run.owner);
             }}),
      files_(io),
      retention_(
          io, shell, files_, [this](const RunId& run) { return is_settled(run); }, log_) {}

Status RunService::restore() {
  return shell_.restore([this](const core::RunDefinition& run) { return observe(run.id); });
}

std::optional<std::string> RunService::directory_of(const RunId& run) const {
  return shell_.directory_of(run);
}

void RunService::answer(const Requester& who, const nlohmann::json& request, const ClientDesk::Reply& reply) {
  const std::string what = request.at("request").get<std::string>();
  if (what == "submit") return submit(who, request, reply);
  if (what == "resume") return resume(who, request, reply);
  if (what == "job") return job(who, request, reply);
  if (what == "ps") return reply(ps(request));
  if (what == "status") return reply(status(request));
  if (what == "checkpoints") return checkpoints(request, reply);
  if (what == "stop") return reply(stop(who, request));
  if (what == "runs") return reply(runs());
  if (what == "remove_run" || what == "pin_run") return change_run(who, what, request, reply);
  if (what == "nodes") return reply(nodes());
  if (what == "order_node") return reply(order(who, request));
  if (what == "plan") return reply(plan(who, request));
  reply(refused("request", fmt::format("unknown request \"{}\": this is sgd-launch {}", what, SGD_VERSION)));
}

struct RunService::Submission {
  Requester who;
  const char* verb;
  std::string request_id;
  std::string owner;
  job::JobSpec job;
  std::optional<core::RunPast> past;
  std::unique_ptr<storage::RunDirectory> directory;
  ClientDesk::Reply reply;
  Json offsets = Json::object();  ///< Where the files of a run that goes on begin to be its own.
};

/// The same request once more, after a lost connection, is answered with the same run.
void RunService::submit(const Requester& who, const nlohmann::json& request, const ClientDesk::Reply& reply) {
  const std::string request_id = request_of(who, request);
  if (const auto before = shell_.run_of_request(request_id); !request_id.empty() && before)
    return reply({{"ok", true}, {"run", *before}});
  job::LoadResult loaded = job::load_resolved(request.at("job"));
  if (!loaded.job) {
    audit_.add(who, "submit", AuditLog::Json::object(), refusal_text(loaded.diagnostics));
    return reply(refused_job(loaded.diagnostics));
  }
  if (const std::string full = refusal_of_one_more(who, "submit", request, *loaded.job); !full.empty())
    return reply(refused("quota", full));
  auto place = storage::choose_run_place(loaded.job->name, "", runs_dir_);
  if (!place) return reply(refused("state", place.error().message));
  auto directory = storage::RunDirectory::create(place.value(), loaded.job->resolved);
  if (!directory) return reply(refused("state", directory.error().message));
  start({who,
         "submit",
         request_id,
         owner_of(who, request),
         std::move(*loaded.job),
         {},
         std::move(directory).value(),
         reply});
}

/// Before anything is made for it.
std::string RunService::refusal_of_one_more(const Requester& who, const char* verb, const nlohmann::json& request,
                                            const job::JobSpec& job) {
  const std::string owner = owner_of(who, request);
  std::string why = core::why_not_taken(owner, job.priority, who.is_admin, load_of(owner), quota);
  if (!why.empty()) audit_.add(who, verb, {{"job", job.name}}, why);
  return why;
}

void RunService::start(Submission submission) {
  core::RunDefinition definition;
  definition.id = submission.directory->id();
  definition.request_id = submission.request_id;
  definition.placement_timeout = submission.job.placement_timeout;
  definition.priority = submission.job.priority;
  definition.owner = std::move(submission.owner);
  definition.job = std::move(submission.job);
  definition.run_dir = submission.directory->path();
  definition.past = std::move(submission.past);
  const RunId id = definition.id;
  const std::string folder = definition.run_dir;
  const int workers = definition.job.num_workers;
  shell_.submit(std::move(definition), std::move(submission.directory), observe(id),
                [this, who = submission.who, verb = submission.verb, reply = submission.reply,
                 offsets = submission.offsets, id, folder, workers](const Result<RunId>& accepted) {
                  // Refused, or a request that was made before: nobody will ever look into this folder.
                  if (!accepted || accepted.value() != id) take_away(folder);
                  audit_.add(who, verb, {{"run", id}}, accepted.ok() ? "" : accepted.error().message);
                  if (!accepted) return reply(refused("state", accepted.error().message));
                  log_(fmt::format("run {}: submitted, {} workers", accepted.value(), workers));
                  reply({{"ok", true}, {"run", accepted.value()}, {"offsets", offsets}});
                });
}

void RunService::take_away(const std::string& folder) {
  files_.run(
      [folder] {
        std::error_code ignored;
        std::filesystem::remove_all(folder, ignored);
      },
      [] {});
}

/// A run of its own that begins as a copy of the one that has ended, which stays as it is.
void RunService::resume(const Requester& who, const nlohmann::json& request, const ClientDesk::Reply& reply) {
  const std::string request_id = request_of(who, request);
  if (const auto before = shell_.run_of_request(request_id); !request_id.empty() && before)
    return reply({{"ok", true}, {"run", *before}});
  const auto former = find(request.value("run", ""));
  if (!former) return reply(refused("run", former.error().message));
  if (!is_over(former.value()) || unsettled_.contains(former.value().id))
    return reply(refused("job", fmt::format("{} is still running: sgd-launch status shows it, sgd-launch stop ends it",
                                            former.value().id)));
  job::LoadResult loaded = job::load_resolved(request.at("job"));
  const RunId from = former.value().id;
  if (!loaded.job) {
    audit_.add(who, "resume", {{"from", from}}, refusal_text(loaded.diagnostics));
    return reply(refused_job(loaded.diagnostics));
  }
  if (const std::string full = refusal_of_one_more(who, "resume", request, *loaded.job); !full.empty())
    return reply(refused("quota", full));
  auto place = storage::choose_run_place(loaded.job->name, "", runs_dir_);
  if (!place) return reply(refused("state", place.error().message));
  const auto read = [from = former.value().run_dir, to = place.value().directory]() -> Result<storage::RunHistory> {
    if (const Status copied = storage::copy_run(from, to); !copied) return copied.error();
    return storage::read_history(to);
  };
  const auto go_on = [this, who, request_id, owner = owner_of(who, request), job = std::move(*loaded.job),
                      place = place.value(), from, reply](Result<storage::RunHistory> history) mutable {
    std::string refusal = history ? storage::fit_to_job(job, history.value()) : history.error().message;
    const char* kind = history ? "job" : "state";
    if (refusal.empty()) {
      auto directory = storage::RunDirectory::reopen(place, job.resolved, history.value());
      const Status recorded =
          directory ? storage::record_resumption(*directory.value(), history.value()) : directory.error();
      if (recorded.ok()) {
        const Json offsets = {{"events.jsonl", history.value().events_end.whole_bytes},
                              {"metrics.jsonl", history.value().metrics_end.whole_bytes}};
        return start({who, "resume", request_id, owner, std::move(job), std::move(history.value().past),
                      std::move(directory).value(), reply, offsets});
      }
      refusal = recorded.error().message;
      kind = "state";
    }
    take_away(place.directory);
    audit_.add(who, "resume", {{"from", from}}, refusal);
    reply(refused(kind, refusal));
  };
  files_.ask(read, go_on);
}

void RunService::job(const Requester& who, const nlohmann::json& request, const ClientDesk::Reply& reply) {
  const auto run = find(request.value("run", ""));
  if (!run) return reply(refused("run", run.error().message));
  note_read(who, "read_job", run.value().id, run.value().owner);
  const auto read = [path = run.value().run_dir + "/job.json"] {
    std::ifstream file(path);
    return Json::parse(file, nullptr, false);
  };
  files_.ask(read, [id = run.value().id, reply](Json job) {
    if (!job.is_object()) return reply(refused("state", "its job.json cannot be read"));
    reply({{"ok", true}, {"run", id}, {"job", std::move(job)}});
  });
}

/// A run may be read by all members; by whom stands in the audit log.
void RunService::note_read(const Requester& who, const char* action, const RunId& run, const std::string& owner) {
  if (who.name.empty() || who.name != owner) audit_.add(who, action, {{"run", run}, {"owner", owner}});
}

RunObserver RunService::observe(const RunId& run) {
  RunObserver observer;
  observer.on_event = [this, run](const Json& event) {
    watcher_.on_event(run, event);
    desk_.on_grown(run, "events.jsonl");
  };
  observer.on_keep = [this, run](const std::vector<std::string>& paths) { watcher_.on_keep(run, paths); };
  observer.on_metrics = [this, run](const Json&) { desk_.on_grown(run, "metrics.jsonl"); };
  observer.on_warning = [this, run](const std::string& message) {
    log_(fmt::format("run {}: warning: {}", run, message));
  };
  observer.on_finished = [this, run](const core::RunOutcome& outcome) {
    unsettled_[run] = core::to_json(outcome);
    log_(fmt::format("run {}: {}{}{}", run, outcome.state, outcome.error.empty() ? "" : ": ", outcome.error));
    watcher_.on_over(run);
  };
  return observer;
}

void RunService::settle(const RunId& run) {
  const auto outcome = unsettled_.extract(run);
  if (!outcome.empty()) desk_.on_settled(run, outcome.mapped());
}

bool RunService::is_settled(const RunId& run) const {
  const auto row = shell_.run(run);
  return row && is_over(*row) && !unsettled_.contains(run);
}

/// By id, or a unique prefix of one; the newest for an empty name.
Result<RunRow> RunService::find(const std::string& name) const {
  if (auto row = shell_.run(name)) return *std::move(row);
  std::vector<RunRow> rows = shell_.runs();
  if (rows.empty()) return Error{"no run here yet"};
  if (name.empty()) return std::move(rows.back());
  std::vector<const RunRow*> fitting;
  for (const RunRow& row : rows) {
    if (row.id.starts_with(name)) fitting.push_back(&row);
  }
  if (fitting.empty()) return Error{fmt::format("no run \"{}\" here", name)};
  if (fitting.size() == 1) return *fitting.front();
  std::string names;
  for (const RunRow* row : fitting) names += (names.empty() ? "" : ", ") + row->id;
  return Error{fmt::format("\"{}\" could be any of {}", name, names)};
}

Result<ClientDesk::FollowedRun> RunService::find_to_follow(const std::string& name) const {
  const Result<RunRow> row = find(name);
  if (!row) return row.error();
  ClientDesk::FollowedRun found{row.value().id, row.value().run_dir, std::nullopt, row.value().owner};
  if (is_settled(found.id)) found.outcome = Json::parse(row.value().summary, nullptr, false);
  return found;
}

Json RunService::ps(const nlohmann::json& request) const {
  const bool all = request.value("all", false);
  Json list = Json::array();
  for (const RunRow& row : shell_.runs()) {
    if (is_over(row) && !all) continue;
    Json one = {{"run", row.id},
                {"name", row.name},
                {"owner", row.owner},
                {"submitted", row.submitted_s},
                {"num_workers", row.num_workers}};
    if (is_over(row)) {
      const Json summary = Json::parse(row.summary, nullptr, false);
      for (const char* key : {"state", "exit_code", "epochs", "steps", "failures", "world_size", "wall_s"})
        one[key] = summary.is_object() ? summary.value(key, Json()) : Json();
      one["state"] = row.state;
    } else if (const auto shot = shell_.snapshot(row.id)) {
      const Json live = core::to_json(*shot);
      for (const char* key : {"state", "reason", "epoch", "epochs", "step", "failures", "world_size", "wall_s"})
        one[key] = live.value(key, Json());
    }
    list.push_back(std::move(one));
  }
  return {{"ok", true}, {"runs", std::move(list)}};
}

Json RunService::status(const nlohmann::json& request) const {
  const auto run = find(request.value("run", ""));
  if (!run) return refused("run", run.error().message);
  const RunRow& row = run.value();
  if (is_over(row)) {
    const Json summary = Json::parse(row.summary, nullptr, false);
    return {{"ok", true}, {"run_dir", row.run_dir}, {"summary", summary.is_object() ? summary : Json::object()}};
  }
  const auto shot = shell_.snapshot(row.id);
  if (!shot) return refused("state", "the run has not begun");
  Json status = core::to_json(*shot);
  status["run_dir"] = row.run_dir;
  return {{"ok", true}, {"status", std::move(status)}};
}

/// Manifests and sizes: reading all weights would hold up others who ask.
void RunService::checkpoints(const nlohmann::json& request, const ClientDesk::Reply& reply) {
  const auto run = find(request.value("run", ""));
  if (!run) return reply(refused("run", run.error().message));
  const auto list = [folder = run.value().run_dir] {
    return storage::describe_checkpoints(folder, checkpoint::Proof::kSizes);
  };
  files_.ask(list, [reply](const Result<Json>& listed) {
    reply(listed ? Json{{"ok", true}, {"checkpoints", listed.value()}} : refused("state", listed.error().message));
  });
}

Json RunService::stop(const Requester& who, const nlohmann::json& request) {
  const auto run = find(request.value("run", ""));
  if (!run) return refused("run", run.error().message);
  const std::string forbidden = refusal_of_change(who, run.value().id, run.value().owner);
  audit_.add(who, "stop", {{"run", run.value().id}}, forbidden);
  if (!forbidden.empty()) return refused("forbidden", forbidden);
  const bool was_over = is_over(run.value());
  if (!was_over) {
    log_(fmt::format("run {}: asked to stop", run.value().id));
    shell_.request_stop(run.value().id, stop_of(request));
  }
  return {{"ok", true}, {"run", run.value().id}, {"is_over", was_over}};
}

Json RunService::nodes() const {
  Json rows = Json::array();
  for (const core::NodeSnapshot& node : shell_.nodes()) rows.push_back(row_of(node));
  return {{"ok", true}, {"nodes", std::move(rows)}};
}

Json RunService::order(const Requester& who, const nlohmann::json& request) {
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
  const std::string forbidden = refusal_of_order(who);
  const std::string why_not = forbidden.empty() ? shell_.order(node, order) : forbidden;
  audit_.add(who, kind->first, {{"node", node}}, why_not);
  if (!why_not.empty()) return refused(forbidden.empty() ? "value" : "forbidden", why_not);
  log_(fmt::format("node {}: {}", node, kind->first));
  return nodes();
}

Json RunService::plan(const Requester& who, const nlohmann::json& request) const {
  job::LoadResult loaded = job::load_resolved(request.at("job"));
  if (!loaded.job) return refused_job(loaded.diagnostics);
  core::RunDefinition definition;
  definition.id = loaded.job->name;
  definition.owner = owner_of(who, request);
  definition.priority = loaded.job->priority;
  definition.job = std::move(*loaded.job);
  const std::string full =
      core::why_not_taken(definition.owner, definition.priority, who.is_admin, load_of(definition.owner), quota);
  if (!full.empty()) return refused("quota", full);
  return {{"ok", true}, {"plan", core::to_json(shell_.explain(definition))}};
}

}  // namespace sgd::coordinator
