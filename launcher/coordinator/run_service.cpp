#include "launcher/coordinator/run_service.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/job/cluster_checks.hpp"
#include "common/job/load.hpp"
#include "common/json/lenient.hpp"
#include "launcher/core/experiment.hpp"
#include "launcher/core/outcome_json.hpp"
#include "launcher/core/stop_request.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/shipping/run_tree.hpp"
#include "launcher/storage/checkpoint_list.hpp"

namespace sgd::coordinator {
namespace {

using Json = RunService::Json;

Json refused_job(const Diagnostics& diagnostics) {
  Json refusal = refused("job", "the job is refused");
  refusal["errors"] = Json::array();
  for (const Diagnostic& item : diagnostics.items) refusal["errors"].push_back(item.text());
  return refusal;
}

/// An experiment is what its file says: trials are made of that. Nothing of it is believed that is not looked at.
job::LoadResult load_submitted(const nlohmann::json& request) {
  if (!request.contains("base")) {
    job::LoadResult loaded = job::load_resolved(request.at("job"));
    if (loaded.job && core::is_experiment(*loaded.job)) {
      loaded.diagnostics.error("job", 0, 0, "has a \"tune\": sgd-launch tune submits it");
      loaded.job.reset();
    }
    return loaded;
  }
  const nlohmann::json& base = request.at("base");
  job::LoadResult loaded = job::load_given(base.at("given"), base.at("folder").get<std::string>(), {});
  if (loaded.job && !core::is_experiment(*loaded.job))
    loaded.diagnostics.error("job", 0, 0, "has no \"tune\", and is no experiment");
  else if (loaded.job && !loaded.job->resume_from.empty())
    loaded.diagnostics.error("job", 0, 0, "\"resume_from\" is for one run: leave it out of an experiment");
  else if (loaded.job)
    (void)tune::parse_experiment(loaded, loaded.diagnostics);  // Ignoring what it is: it is made again where it runs.
  if (loaded.diagnostics.has_errors()) loaded.job.reset();
  return loaded;
}

std::optional<core::TrialBase> base_of(const nlohmann::json& request, const job::JobSpec& job) {
  if (!request.contains("base")) return std::nullopt;
  core::TrialBase base{request.at("base").at("given"), request.at("base").at("folder").get<std::string>()};
  base.given["name"] = job.name;
  return base;
}

/// The first of what is wrong, for the audit log.
std::string refusal_text(const Diagnostics& diagnostics) {
  constexpr std::size_t kBytesMax = 512;
  return diagnostics.items.empty() ? "" : diagnostics.items.front().text().substr(0, kBytesMax);
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

/// What its nodes say to its owner, beside where it would go.
void add_answers(Json& plan, const AccountAsks::Answers& answers) {
  plan["refusals"] = answers.refusals;
  plan["silent"] = answers.silent;
  if (answers.refusals.empty()) return;
  const auto& [node, why] = *answers.refusals.begin();
  plan["starts_now"] = false;
  plan["reason"] = fmt::format("node {} would refuse it: {}", node, why);
}

}  // namespace

RunService::RunService(boost::asio::io_context& io, CoordinatorShell& shell, std::string runs_dir,
                       std::string files_dir, AuditLog& audit, Log log)
    : shell_(shell),
      io_(io),
      runs_dir_(std::move(runs_dir)),
      audit_(audit),
      log_(std::move(log)),
      client_service_(
          io, {[this](const Requester& who, const nlohmann::json& request, const ClientService::Reply& reply) {
                 answer(who, request, reply);
               },
               [this](const std::string& run) { return find_to_follow(run); },
               [this](const Requester& who, const ClientService::FollowedRun& run, const FollowSelection& selection) {
                 if (selection.logs) note_read(who, "read_logs", run.id, run.owner);
                 if (!selection.checkpoint.empty()) note_read(who, "read_checkpoint", run.id, run.owner);
               },
               [this](const Requester& who, const ClientService::Put& put, std::string bytes,
                      const ClientService::Reply& reply) { job_files_.put(who, put, std::move(bytes), reply); }}),
      job_files_(io, std::move(files_dir), {}),
      folders_(io),
      files_(io),
      texts_(io),
      reports_(io),
      live_runs_(io, texts_, kTextLimit, [this] { return list_runs(CoordinatorShell::Which::kLive); }),
      all_runs_(io, texts_, kTextLimit, [this] { return list_runs(CoordinatorShell::Which::kAll); }),
      nodes_(io, texts_, kTextLimit, [this] { return list_nodes(NodeRows::kWhole); }),
      brief_nodes_(io, texts_, kTextLimit, [this] { return list_nodes(NodeRows::kBrief); }),
      retention_(
          io, shell, files_, runs_dir_, [this](const RunId& run) { return is_settled(run); }, log_) {
  texts_.asked_max = kTextsMax;
}

Status RunService::restore() {
  return shell_.restore([this](const core::RunDefinition& run) { return observe(run); });
}

std::optional<std::string> RunService::directory_of(const RunId& run) const {
  return shell_.directory_of(run);
}

void RunService::answer(const Requester& who, const nlohmann::json& request, const ClientService::Reply& reply) {
  const std::string what = request.at("request").get<std::string>();
  if (what == "submit") return submit(who, request, reply);
  if (what == "files") return job_files_.look(who, request, reply);
  if (what == "resume") return resume(who, request, reply);
  if (what == "job") return job(who, request, reply);
  if (what == "ps") return (request.value("all", false) ? all_runs_ : live_runs_).ask(reply);
  if (what == "status") return status(request, reply);
  if (what == "checkpoints") return checkpoints(request, reply);
  if (what == "stop") return reply(stop(who, request));
  if (what == "signal") return reply(signal(who, request));
  if (what == "search") return reply(search(who, request));
  if (what == "best") return best(who, request, reply);
  if (what == "runs") return runs(reply);
  if (what == "remove_run" || what == "pin_run") return change_run(who, what, request, reply);
  if (what == "nodes") return (request.value("brief", false) ? brief_nodes_ : nodes_).ask(reply);
  if (what == "order_node") return order(who, request, reply);
  if (what == "plan") return plan(who, request, reply);
  reply(refused("request", fmt::format("unknown request \"{}\": this is sgd-launch {}", what, SGD_VERSION)));
}

std::optional<std::string> RunService::directory_of_files(const RunId& run) const {
  const auto folder = shell_.directory_of(run);
  if (!folder) return folder;
  const std::filesystem::path path(*folder);
  const std::string name = path.filename().string();
  const bool is_trial =
      path.parent_path().filename() == "trials" &&
      std::all_of(name.begin(), name.end(), [](char letter) { return letter >= '0' && letter <= '9'; });
  return is_trial ? path.parent_path().parent_path().string() : *folder;
}

std::string RunService::refusal_of_files(const job::JobSpec& job, const std::string& files) const {
  if (job.files.empty() || shipping::is_sha256(files)) return {};
  return fmt::format("\"files\" of a job are brought by who submits it: this is sgd-launch {}, use the same",
                     SGD_VERSION);
}

/// On a thread.
Status RunService::keep_files(const Requester& who, const std::string& files, const std::string& run_dir) {
  const auto store = job_files_.store_of(who);
  return store ? shipping::keep_with_run(*store.value(), files, run_dir) : Status(store.error());
}

using Directory = std::unique_ptr<storage::RunDirectory>;

/// The same request once more, after a lost connection, is answered with the same run.
void RunService::submit(const Requester& who, const nlohmann::json& request, const ClientService::Reply& reply) {
  const std::string request_id = request_of(who, request);
  if (const auto before = shell_.run_of_request(request_id); !request_id.empty() && before)
    return reply(Json{{"ok", true}, {"run", *before}});
  job::LoadResult loaded = load_submitted(request);
  job::check_for_cluster(loaded);
  if (!loaded.job) {
    audit_.add(who, "submit", AuditLog::Json::object(), refusal_text(loaded.diagnostics));
    return reply(refused_job(loaded.diagnostics));
  }
  const std::string files = loaded.job->files.empty() ? "" : request.value("files", "");
  if (const std::string fault = refusal_of_files(*loaded.job, files); !fault.empty()) {
    audit_.add(who, "submit", {{"job", loaded.job->name}}, fault);
    return reply(refused("job", fault));
  }
  const std::string owner = owner_of(who, request);
  if (const std::string full = refusal_of_one_more(who, "submit", owner, *loaded.job); !full.empty())
    return reply(refused("quota", full));
  const auto base = base_of(request, *loaded.job);
  if (!loaded.job->resume_from.empty())
    return submit_from(
        {who, "submit", request_id, owner, std::move(*loaded.job), {}, nullptr, reply, Json::object(), base, files});
  const auto job = std::make_shared<job::JobSpec>(std::move(*loaded.job));
  const auto make = [this, who, files, job, runs_dir = runs_dir_]() -> Result<Directory> {
    auto place = storage::choose_run_place(job->name, "", runs_dir);
    if (!place) return place.error();
    place.value().is_lasting = true;
    auto made = storage::RunDirectory::create(place.value(), *job->resolved);
    if (!made || files.empty()) return made;
    if (const Status kept = keep_files(who, files, place.value().directory); !kept) {
      std::error_code ignored;
      std::filesystem::remove_all(place.value().directory, ignored);
      return kept.error();
    }
    return made;
  };
  const auto go_on = [this, who, owner, request_id, job, base, reply](Result<Directory> made) {
    if (!made) return reply(refused(made.error().code == ENOENT ? "files" : "state", made.error().message));
    // Others may have been taken while the folder was made.
    if (const std::string full = refusal_of_one_more(who, "submit", owner, *job); !full.empty()) {
      take_away(std::exchange(made.value(), nullptr)->path());
      return reply(refused("quota", full));
    }
    start(
        {who, "submit", request_id, owner, std::move(*job), {}, std::move(made).value(), reply, Json::object(), base});
  };
  folders_.ask_within(kDiskLimit, make, go_on, [this](Result<Directory> late) {
    if (late) take_away(late.value()->path());
  });
}

/// A run of its own that begins as a copy of the one that has ended, which stays as it is.
void RunService::resume(const Requester& who, const nlohmann::json& request, const ClientService::Reply& reply) {
  const std::string request_id = request_of(who, request);
  if (const auto before = shell_.run_of_request(request_id); !request_id.empty() && before)
    return reply(Json{{"ok", true}, {"run", *before}});
  const auto former = find(request.value("run", ""));
  if (!former) return reply(refused("run", former.error().message));
  if (!request.contains("job")) return resume_experiment(who, former.value(), request, reply);
  if (!is_over(former.value()) || unsettled_.contains(former.value().id))
    return reply(refused("job", fmt::format("{} is still running: sgd-launch status shows it, sgd-launch stop ends it",
                                            former.value().id)));
  job::LoadResult loaded = job::load_resolved(request.at("job"));
  if (loaded.job && core::is_experiment(*loaded.job))
    return reply(refused(
        "job", fmt::format("{} is an experiment: sgd-launch tune --resume {}", former.value().id, former.value().id)));
  job::check_for_cluster(loaded);
  const RunId from = former.value().id;
  if (!loaded.job) {
    audit_.add(who, "resume", {{"from", from}}, refusal_text(loaded.diagnostics));
    return reply(refused_job(loaded.diagnostics));
  }
  const std::string owner = owner_of(who, request);
  if (const std::string full = refusal_of_one_more(who, "resume", owner, *loaded.job); !full.empty())
    return reply(refused("quota", full));
  note_read(who, "read_checkpoint", from, former.value().owner);
  start_copy({who, "resume", request_id, owner, std::move(*loaded.job), {}, nullptr, reply}, from,
             [folder = former.value().run_dir](job::JobSpec& job, const std::string& runs_dir) {
               return copy_of(folder, job, runs_dir);
             });
}

/// Before anything is made for it.
std::string RunService::refusal_of_one_more(const Requester& who, const char* verb, const std::string& owner,
                                            const job::JobSpec& job) {
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
  definition.may_be_root = may_be_root(submission.who);
  definition.is_of_admin = submission.who.is_admin;
  definition.job = std::move(submission.job);
  definition.run_dir = submission.directory->path();
  definition.past = std::move(submission.past);
  definition.base = std::move(submission.base);
  const RunId id = definition.id;
  const std::string folder = definition.run_dir;
  const int workers = definition.job.num_workers;
  RunObserver observer = observe(definition);
  shell_.submit(std::move(definition), std::move(submission.directory), std::move(observer),
                [this, who = submission.who, verb = submission.verb, reply = submission.reply,
                 offsets = submission.offsets, id, folder, workers](const Result<RunId>& accepted) {
                  // Refused, or a request that was made before: nobody will ever look into this folder.
                  if (!accepted || accepted.value() != id) {
                    callbacks_.erase(id);
                    take_away(folder);
                  }
                  audit_.add(who, verb, {{"run", id}}, accepted.ok() ? "" : accepted.error().message);
                  if (!accepted) return reply(refused("state", accepted.error().message));
                  const char* plural = workers == 1 ? "" : "s";
                  log_(fmt::format("run {}: submitted, {} worker{}", accepted.value(), workers, plural));
                  reply(Json{{"ok", true}, {"run", accepted.value()}, {"offsets", offsets}});
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

/// A run may be read by all members; by whom stands in the audit log.
void RunService::note_read(const Requester& who, const char* action, const RunId& run, const std::string& owner) {
  if (who.name.empty() || who.name != owner) audit_.add(who, action, {{"run", run}, {"owner", owner}});
}

/// Nothing of theirs is made before the run's first line is there.
void RunService::add_callbacks(const core::RunDefinition& definition) {
  if (!callbacks::RunCallbacks::has_files(definition.job)) return;
  callbacks_[definition.id] = std::make_unique<callbacks::RunCallbacks>(
      io_, reports_, definition.id, definition.run_dir, definition.job,
      [this, run = definition.id](const std::string& message) { log_(fmt::format("run {}: {}", run, message)); });
}

RunObserver RunService::observe(const core::RunDefinition& definition) {
  const RunId run = definition.id;
  add_callbacks(definition);
  const auto grow = [this, run] {
    if (const auto found = callbacks_.find(run); found != callbacks_.end()) found->second->on_grown();
  };
  RunObserver observer;
  observer.on_event = [this, run, grow](const Json& event) {
    watcher_.on_event(run, event);
    client_service_.on_grown(run, "events.jsonl");
    grow();
  };
  observer.on_keep = [this, run](const std::vector<std::string>& paths) { watcher_.on_keep(run, paths); };
  observer.on_metrics = [this, run, grow](const Json&) {
    client_service_.on_grown(run, "metrics.jsonl");
    grow();
  };
  observer.on_warning = [this, run](const std::string& message) {
    log_(fmt::format("run {}: warning: {}", run, message));
  };
  observer.on_finished = [this, run](const core::RunOutcome& outcome) {
    unsettled_[run] = core::to_json(outcome);
    searchers_.erase(run);
    log_(fmt::format("run {}: {}{}{}", run, outcome.state, outcome.error.empty() ? "" : ": ", outcome.error));
    if (const auto found = callbacks_.find(run); found != callbacks_.end())
      found->second->end(outcome.state == "succeeded", [this, run] { callbacks_.erase(run); });
    watcher_.on_over(run);
  };
  observer.is_settled_later = true;
  return observer;
}

void RunService::settle(const RunId& run, const std::string& not_kept) {
  auto outcome = unsettled_.extract(run);
  if (outcome.empty()) return;
  if (!not_kept.empty()) {
    core::RunOutcome changed = core::outcome_from_json(outcome.mapped());
    if (changed.state == "succeeded") {
      changed.state = "failed";
      changed.exit_code = exit_code::kFailed;
      changed.error = fmt::format(
          "it is done, and what it leaves could not be kept: {}; {}", not_kept,
          do_nodes_keep ? "its nodes keep it, and it comes when there is room"
                        : "make room, and go on from the newest checkpoint that has come: the rest is lost");
      log_(fmt::format("run {}: {}", run, changed.error));
      shell_.change_outcome(run, changed);
      outcome.mapped() = core::to_json(changed);
    }
  }
  shell_.settle(run);
  if (watcher_.on_settled) watcher_.on_settled(run, read_or(outcome.mapped(), "state", ""));
  client_service_.on_settled(run, outcome.mapped());
  retention_.note_ended(run);
}

bool RunService::is_settled(const RunId& run) const {
  return shell_.is_over(run) && !unsettled_.contains(run);
}

/// With the newest runs that there are, as one of a folder is told of.
std::string RunService::no_run(const std::string& name) const {
  constexpr std::size_t kShownRuns = 5;
  if (name.empty()) return "no run on the cluster yet";
  std::vector<RunId> newest = shell_.run_ids(CoordinatorShell::Which::kAll);
  std::reverse(newest.begin(), newest.end());
  const bool has_more = newest.size() > kShownRuns;
  if (has_more) newest.resize(kShownRuns);
  return fmt::format("no run \"{}\" on the cluster{}{}{}", name, newest.empty() ? "" : "; there is ",
                     fmt::join(newest, ", "), has_more ? ", ..." : "");
}

/// By id, or a unique prefix of one; the newest for an empty name.
Result<RunRow> RunService::find(const std::string& name) const {
  constexpr std::size_t kNamedMax = 16;
  if (auto row = shell_.run(name)) return *std::move(row);
  const std::vector<RunId> fitting = shell_.ids(name, kNamedMax);
  if (fitting.size() == 1)
    if (auto row = shell_.run(fitting.front())) return *std::move(row);
  if (fitting.empty()) return Error{no_run(name)};
  return Error{fmt::format("\"{}\" could be any of {}{}", name, fmt::join(fitting, ", "),
                           fitting.size() == kNamedMax ? ", ..." : "")};
}

Result<ClientService::FollowedRun> RunService::find_to_follow(const std::string& name) const {
  const Result<RunRow> row = find(name);
  if (!row) return row.error();
  ClientService::FollowedRun found{row.value().id, row.value().run_dir, std::nullopt, row.value().owner};
  if (is_settled(found.id)) found.outcome = Json::parse(read_summary(row.value()), nullptr, false);
  return found;
}

Json RunService::stop(const Requester& who, const nlohmann::json& request) {
  const auto wanted = core::stop_request_of(request);
  if (!wanted) return refused("request", wanted.error().message);
  const auto run = find(request.value("run", ""));
  if (!run) return refused("run", run.error().message);
  const std::string forbidden = refusal_of_change(who, "stop it", run.value().id, run.value().owner);
  audit_.add(who, "stop", {{"run", run.value().id}}, forbidden);
  if (!forbidden.empty()) return refused("forbidden", forbidden);
  const bool was_over = is_over(run.value());
  if (!was_over) {
    log_(fmt::format("run {}: asked to stop", run.value().id));
    shell_.request_stop(run.value().id, wanted.value());
  }
  return {{"ok", true}, {"run", run.value().id}, {"is_over", was_over}};
}

/// One that ends nothing: what ends a run is a stop.
Json RunService::signal(const Requester& who, const nlohmann::json& request) {
  const auto run = find(request.value("run", ""));
  if (!run) return refused("run", run.error().message);
  const int number = request.value("signal", 0);
  if (number != SIGUSR1 && number != SIGUSR2)
    return refused("value", fmt::format("signal {} is not passed on, only SIGUSR1 and SIGUSR2 are", number));
  const std::string forbidden = refusal_of_change(who, "signal it", run.value().id, run.value().owner);
  audit_.add(who, "signal", {{"run", run.value().id}, {"signal", number}}, forbidden);
  if (!forbidden.empty()) return refused("forbidden", forbidden);
  const Status passed = shell_.pass_signal(run.value().id, number);
  if (!passed) return refused("state", passed.error().message);
  log_(fmt::format("run {}: its ranks are sent signal {}", run.value().id, number));
  return {{"ok", true}, {"run", run.value().id}};
}

void RunService::plan(const Requester& who, const nlohmann::json& request, const ClientService::Reply& reply) {
  job::LoadResult loaded = job::load_resolved(request.at("job"));
  job::check_for_cluster(loaded);
  if (!loaded.job) return reply(refused_job(loaded.diagnostics));
  core::RunDefinition definition;
  definition.id = loaded.job->name;
  definition.owner = owner_of(who, request);
  definition.may_be_root = may_be_root(who);
  definition.priority = loaded.job->priority;
  definition.job = std::move(*loaded.job);
  const std::string full =
      core::why_not_taken(definition.owner, definition.priority, who.is_admin, load_of(definition.owner), quota);
  if (!full.empty()) return reply(refused("quota", full));
  const core::Explanation explained = shell_.explain(definition);
  std::vector<NodeId> nodes;
  for (const core::Explanation::Row& row : explained.nodes)
    if (!row.ranks.empty()) nodes.push_back(row.node);
  shell_.ask_accounts(nodes, definition,
                      [reply, plan = core::to_json(explained)](const AccountAsks::Answers& answers) mutable {
                        add_answers(plan, answers);
                        reply(Json{{"ok", true}, {"plan", std::move(plan)}});
                      });
}

}  // namespace sgd::coordinator
