#include "launcher/storage/run_coding.hpp"

#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <boost/pfr/tuple_size.hpp>

#include "common/job/load.hpp"
#include "common/json/lenient.hpp"

namespace sgd::storage {
namespace {

using Json = nlohmann::json;
using Why = core::StopRequest::Why;
using Kind = core::NodeOrder::Kind;

// A new field belongs into the functions below first, and then into the number here.
template <class T>
constexpr std::size_t kRunFields = boost::pfr::tuple_size_v<T>;
static_assert(kRunFields<core::RunDefinition> == 12);
static_assert(kRunFields<core::TrialBase> == 2);
static_assert(kRunFields<core::RunPast> == 12);
static_assert(kRunFields<core::StopRequest> == 4);
static_assert(kRunFields<core::NodeOrder> == 2);
static_assert(kRunFields<core::KnownNode> == 5);
static_assert(kRunFields<core::KnownCondition> == 5);
static_assert(kRunFields<link::ReportKey> == 4);

constexpr std::array<std::pair<Why, std::string_view>, 3> kWhys{
    {{Why::kSignal, "signal"}, {Why::kCancelled, "cancelled"}, {Why::kTimeout, "timeout"}}};
constexpr std::array<std::pair<Kind, std::string_view>, 4> kKinds{
    {{Kind::kDrain, "drain"}, {Kind::kUndrain, "undrain"}, {Kind::kRemove, "remove"}, {Kind::kSetSlots, "set_slots"}}};

template <class Enum, std::size_t count>
Status read_name(const Json& json, const char* key, const std::array<std::pair<Enum, std::string_view>, count>& names,
                 Enum& out) {
  std::string name;
  if (const Status status = read_key(json, key, name); !status) return status;
  for (const auto& [value, known] : names) {
    if (known != name) continue;
    out = value;
    return {};
  }
  return Error{fmt::format("\"{}\" has the unknown value \"{}\"", key, name)};
}

std::int64_t ns_of(TimePoint at) {
  return at.time_since_epoch().count();
}

Json to_json(const link::ReportKey& key) {
  return {{"epoch", key.epoch}, {"phase", key.phase}, {"batch", key.batch}, {"sequence", key.sequence}};
}

Status read_report_key(const Json& json, link::ReportKey& out) {
  return first_error({read_key(json, "epoch", out.epoch), read_key(json, "phase", out.phase),
                      read_key(json, "batch", out.batch), read_key(json, "sequence", out.sequence)});
}

/// A list of [step, score]; a store of before has none.
Status read_scores(const Json& json, core::Scores& out) {
  if (json.is_null()) return {};
  for (const Json& one : json) {
    if (!one.is_array() || one.size() != 2 || !one[0].is_number_integer() || !one[1].is_number())
      return Error{"\"scores\" must be a list of [step, number]"};
    out[one[0].get<std::int64_t>()] = one[1].get<double>();
  }
  return {};
}

Json to_json(const core::RunPast& past) {
  Json json = {{"generation", past.generation},
               {"checkpoints", past.checkpoints},
               {"reports", past.reports},
               {"epochs", past.epochs},
               {"steps", past.steps},
               {"failures", past.failures},
               {"wall_s", past.wall_s},
               {"shape", past.shape},
               {"is_same_job", past.is_same_job}};
  if (!past.scores.empty()) json["scores"] = std::vector(past.scores.begin(), past.scores.end());
  if (past.written) json["written"] = to_json(*past.written);
  // As text: an object in here would lose the order of its keys, and with it the lines that are made of it.
  json["metrics"] = past.metrics.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  return json;
}

Result<core::RunPast> run_past_of(const Json& json) {
  core::RunPast past;
  std::string metrics;
  const Status status =
      first_error({read_key(json, "generation", past.generation), read_key(json, "checkpoints", past.checkpoints),
                   read_key(json, "reports", past.reports), read_key(json, "epochs", past.epochs),
                   read_key(json, "steps", past.steps), read_key(json, "failures", past.failures),
                   read_key(json, "metrics", metrics)});
  if (!status) return status.error();
  // A store of before does not say.
  read_if_fits(json, "wall_s", past.wall_s);
  read_if_fits(json, "is_same_job", past.is_same_job);
  if (json.contains("shape"))
    if (const Status shape = read_key(json, "shape", past.shape); !shape) return shape.error();
  if (const Status scores = read_scores(member(json, "scores"), past.scores); !scores) return scores.error();
  past.metrics = nlohmann::ordered_json::parse(metrics, nullptr, false);
  if (past.metrics.is_discarded()) return Error{"\"metrics\" is no JSON"};
  if (const auto written = json.find("written"); written != json.end()) {
    const Status read = read_report_key(*written, past.written.emplace());
    if (!read) return read.error();
  }
  return past;
}

/// Of a job of which little is kept (RunMachine::keep_little).
Json little_of(const job::JobSpec& job) {
  Json json = {{"name", job.name},
               {"num_workers", job.num_workers},
               {"cpus", job.per_worker.cpus},
               {"gpus", job.per_worker.gpus},
               {"memory_bytes", job.per_worker.memory_bytes}};
  if (job.training) json["epochs"] = job.training->epochs;
  return json;
}

Status read_little(const Json& json, job::JobSpec& out) {
  if (!json.is_object()) return Error{"\"little\" must be an object"};
  if (json.contains("epochs"))
    if (const Status read = read_key(json, "epochs", out.training.emplace().epochs); !read) return read;
  return first_error({read_key(json, "name", out.name), read_key(json, "num_workers", out.num_workers),
                      read_key(json, "cpus", out.per_worker.cpus), read_key(json, "gpus", out.per_worker.gpus),
                      read_key(json, "memory_bytes", out.per_worker.memory_bytes)});
}

Status read_job(const Json& json, const RunId& run, job::JobSpec& out) {
  job::LoadResult loaded = job::load_resolved(json);
  if (loaded.job) {
    out = std::move(*loaded.job);
    return {};
  }
  std::string why;
  for (const Diagnostic& item : loaded.diagnostics.items)
    if (!item.warning && why.empty()) why = item.message;
  return Error{fmt::format("the job of run {} is refused: {}", run, why)};
}

/// Of an experiment whose job this version refuses: enough to say so, and to end what it has (core/experiment.hpp).
job::JobSpec refused_experiment(const Json& json, const RunId& run) {
  job::JobSpec job;
  job.name = read_or(json, "name", run);
  read_if_fits(json, "num_workers", job.num_workers);
  job.resolved = json;
  job.tune = member(json, "tune");
  return job;
}

Status read_ns(const Json& json, const char* key, Duration& out) {
  std::int64_t ns = 0;
  const Status status = read_key(json, key, ns);
  out = Duration(ns);
  return status;
}

Status read_time(const Json& json, const char* key, TimePoint& out) {
  Duration since{0};
  const Status status = read_ns(json, key, since);
  out = TimePoint(since);
  return status;
}

}  // namespace

Status first_error(std::initializer_list<Status> statuses) {
  for (const Status& status : statuses)
    if (!status) return status;
  return {};
}

Json to_json(const core::RunDefinition& run) {
  Json json = {{"id", run.id},
               {"job", *run.job.resolved},
               {"run_dir", run.run_dir},
               {"placement_timeout_ns", run.placement_timeout.count()},
               {"priority", run.priority},
               {"owner", run.owner},
               {"may_be_root", run.may_be_root},
               {"request_id", run.request_id}};
  if (run.job.resolved->is_null()) json["little"] = little_of(run.job);
  if (run.is_of_admin) json["is_of_admin"] = true;
  if (run.parent) json["parent"] = *run.parent;
  if (run.past) json["past"] = to_json(*run.past);
  if (run.base) json["base"] = {{"given", run.base->given}, {"folder", run.base->folder}};
  return json;
}

Result<core::RunDefinition> run_definition_of(const Json& json) {
  if (!json.is_object()) return Error{"\"run\" must be an object"};
  core::RunDefinition run;
  Json job;
  const Status status = first_error({read_key(json, "id", run.id), read_key(json, "run_dir", run.run_dir),
                                     read_ns(json, "placement_timeout_ns", run.placement_timeout),
                                     read_key(json, "priority", run.priority), read_key(json, "owner", run.owner),
                                     read_key(json, "request_id", run.request_id), read_key(json, "job", job)});
  if (!status) return status.error();
  if (json.contains("may_be_root"))  // A store of before has none: nobody of then may.
    if (const Status read = read_key(json, "may_be_root", run.may_be_root); !read) return read.error();
  if (json.contains("is_of_admin"))
    if (const Status read = read_key(json, "is_of_admin", run.is_of_admin); !read) return read.error();
  const bool is_little = job.is_null() && json.contains("little");
  const Status its = is_little ? read_little(json.at("little"), run.job) : read_job(job, run.id, run.job);
  if (!its && !(json.contains("base") && member(job, "tune").is_object())) return its.error();
  if (!its) run.job = refused_experiment(job, run.id);
  if (json.contains("parent"))
    if (const Status read = read_key(json, "parent", run.parent.emplace()); !read) return read.error();
  if (const auto past = json.find("past"); past != json.end()) {
    auto read = run_past_of(*past);
    if (!read) return read.error();
    run.past = std::move(read).value();
  }
  if (const auto base = json.find("base"); base != json.end()) {
    core::TrialBase& made_of = run.base.emplace();
    const Status read =
        first_error({read_key(*base, "given", made_of.given), read_key(*base, "folder", made_of.folder)});
    if (!read) return read.error();
  }
  return run;
}

Json to_json(const core::StopRequest& request) {
  Json json = {{"signal", request.signal}, {"at_once", request.at_once}};
  for (const auto& [why, name] : kWhys)
    if (why == request.why) json["why"] = name;
  if (request.grace) json["grace_ns"] = request.grace->count();
  return json;
}

Status read_stop_request(const Json& json, core::StopRequest& out) {
  const Status status = first_error({read_key(json, "signal", out.signal), read_key(json, "at_once", out.at_once),
                                     read_name(json, "why", kWhys, out.why)});
  return status && json.contains("grace_ns") ? read_ns(json, "grace_ns", out.grace.emplace()) : status;
}

Json to_json(const core::NodeOrder& order) {
  Json json = {{"slots", order.slots}};
  for (const auto& [kind, name] : kKinds)
    if (kind == order.kind) json["kind"] = name;
  return json;
}

Status read_node_order(const Json& json, core::NodeOrder& out) {
  return first_error({read_key(json, "slots", out.slots), read_name(json, "kind", kKinds, out.kind)});
}

Json to_json(const core::KnownNode& node) {
  Json json = {{"node", node.node},
               {"state", cluster::to_json(node.state)},
               {"last_fact", node.last_fact},
               {"is_closed", node.is_closed}};
  if (node.lost_at) json["lost_at_ns"] = ns_of(*node.lost_at);
  return json;
}

Status read_known_node(const Json& json, core::KnownNode& out) {
  Json state;
  const Status status =
      first_error({read_key(json, "node", out.node), read_key(json, "state", state),
                   read_key(json, "last_fact", out.last_fact), read_key(json, "is_closed", out.is_closed)});
  if (!status) return status;
  auto decoded = cluster::from_agent_of(state);
  if (!decoded) return decoded.error();
  auto* node_state = std::get_if<cluster::NodeState>(&decoded.value());
  if (node_state == nullptr) return Error{"\"state\" is not that of a node"};
  out.state = std::move(*node_state);
  return json.contains("lost_at_ns") ? read_time(json, "lost_at_ns", out.lost_at.emplace()) : Status{};
}

Json to_json(const core::KnownCondition& condition) {
  Json json = {{"node", condition.node}, {"is_drained", condition.is_drained}};
  if (condition.slots) json["slots"] = *condition.slots;
  Json& flaps = json["flaps_ns"] = Json::array();
  for (const TimePoint at : condition.flaps) flaps.push_back(ns_of(at));
  if (condition.unstable_until) json["unstable_until_ns"] = ns_of(*condition.unstable_until);
  return json;
}

Status read_known_condition(const Json& json, core::KnownCondition& out) {
  std::vector<std::int64_t> flaps;
  Status status = first_error({read_key(json, "node", out.node), read_key(json, "is_drained", out.is_drained),
                               read_key(json, "flaps_ns", flaps)});
  for (const std::int64_t ns : flaps) out.flaps.emplace_back(Duration(ns));
  if (status && json.contains("slots")) status = read_key(json, "slots", out.slots.emplace());
  if (status && json.contains("unstable_until_ns"))
    status = read_time(json, "unstable_until_ns", out.unstable_until.emplace());
  return status;
}

}  // namespace sgd::storage
