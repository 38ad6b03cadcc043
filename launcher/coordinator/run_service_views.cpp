// RunService: what is told of runs and nodes, and what operators order of these.

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "common/json/json_file.hpp"
#include "launcher/coordinator/run_service.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/storage/checkpoint_list.hpp"

namespace sgd::coordinator {
namespace {

using Json = RunService::Json;

/// As `ps` shows it.
Json listed(const RunRow& row) {
  Json one = {{"run", row.id},
              {"name", row.name},
              {"owner", row.owner},
              {"submitted", row.submitted_s},
              {"num_workers", row.num_workers}};
  if (!row.shot) {
    const Json summary = Json::parse(read_summary(row), nullptr, false);
    for (const char* key : {"state", "exit_code", "epochs", "steps", "failures", "world_size", "wall_s"})
      one[key] = summary.is_object() ? summary.value(key, Json()) : Json();
    one["state"] = row.state;
    return one;
  }
  const core::RunSnapshot& shot = *row.shot;
  one["state"] = core::name(shot.phase);
  one["reason"] = shot.reason;
  one["epoch"] = shot.epoch;
  one["epochs"] = shot.epochs;
  one["step"] = shot.step;
  one["failures"] = shot.failures;
  one["world_size"] = shot.world_size;
  one["wall_s"] = shot.wall_s;
  return one;
}

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Row by row, so that there is one of them as JSON at a time.
template <class Row, class ToText>
std::string text_of_rows(const char* name, const std::vector<Row>& rows, const ToText& to_text) {
  std::string text = fmt::format("{{\"ok\":true,\"{}\":[", name);
  for (const Row& row : rows) {
    if (&row != &rows.front()) text += ',';
    text += to_text(row);
  }
  return text += "]}";
}

std::string names_of(const std::vector<core::NodeSnapshot>& nodes) {
  constexpr std::size_t kNamedMax = 64;
  std::string names;
  for (std::size_t index = 0; index < std::min(nodes.size(), kNamedMax); ++index)
    names += (index == 0 ? "" : ", ") + nodes[index].node;
  return nodes.empty() ? "none" : names + (nodes.size() > kNamedMax ? ", ..." : "");
}

/// A node in the words of its connection where nothing else is to be said.
const char* state_of(const core::NodeSnapshot& node) {
  if (node.phase == core::NodePhase::kReady) return "connected";
  if (node.phase == core::NodePhase::kClosed) return "disconnected";
  return core::name(node.phase);
}

}  // namespace

/// `make` gives an answer of values that it owns; a large one would hold up everybody if the loop made it.
void RunService::answer_beside(CommonAnswer::Make make, const ClientService::Reply& reply) {
  const auto text = [make = std::move(make)]() -> Result<std::string> { return make(); };
  texts_.ask_within(kTextLimit, text, [reply](Result<std::string>&& made) {
    reply(made ? ClientService::Answer::of_text(std::move(made).value())
               : ClientService::Answer(refused("busy", made.error().message)));
  });
}

/// Each run as it is when it is its turn.
CommonAnswer::Source RunService::list_runs(CoordinatorShell::Which which) const {
  struct Gathered {
    std::vector<RunId> ids;
    std::vector<RunRow> rows;
    std::size_t next = 0;
  };
  const auto gathered = std::make_shared<Gathered>();
  gathered->ids = shell_.run_ids(which);
  gathered->rows.reserve(gathered->ids.size());
  return {[this, gathered] {
            const std::size_t end = std::min(gathered->next + kRowsATurn, gathered->ids.size());
            for (; gathered->next < end; ++gathered->next)
              if (auto row = shell_.run(gathered->ids[gathered->next])) gathered->rows.push_back(*std::move(row));
            return end < gathered->ids.size();
          },
          [gathered] {
            return text_of_rows("runs", gathered->rows, [](const RunRow& row) { return text_of(listed(row)); });
          }};
}

CommonAnswer::Source RunService::list_nodes(NodeRows rows) const {
  const auto nodes = std::make_shared<const std::vector<core::NodeSnapshot>>(shell_.nodes());
  const auto row = [rows, now = process::monotonic_now()](const core::NodeSnapshot& node) {
    return rows == NodeRows::kBrief ? core::to_brief_text(node, state_of(node))
                                    : core::to_text(node, state_of(node), now);
  };
  return {[] { return false; }, [nodes, row] { return text_of_rows("nodes", *nodes, row); }};
}

void RunService::status(const nlohmann::json& request, const ClientService::Reply& reply) {
  const auto run = find(request.value("run", ""));
  if (!run) return reply(refused("run", run.error().message));
  const RunRow& row = run.value();
  if (is_over(row)) {
    const auto show = [row, is_settled = is_settled(row.id)] {
      const Json summary = Json::parse(read_summary(row), nullptr, false);
      return text_of(Json{{"ok", true},
                          {"run_dir", row.run_dir},
                          {"is_settled", is_settled},
                          {"summary", summary.is_object() ? summary : Json::object()}});
    };
    return answer_beside(show, reply);
  }
  const auto shot = shell_.snapshot(row.id);
  if (!shot) return reply(refused("state", "the run has not started"));
  const auto show = [shot = *shot, run_dir = row.run_dir] {
    Json status = core::to_json(shot);
    status["run_dir"] = run_dir;
    return text_of(Json{{"ok", true}, {"status", std::move(status)}});
  };
  answer_beside(show, reply);
}

/// Manifests and sizes: reading all weights would hold up others who ask.
void RunService::checkpoints(const nlohmann::json& request, const ClientService::Reply& reply) {
  const auto run = find(request.value("run", ""));
  if (!run) return reply(refused("run", run.error().message));
  const auto list = [folder = run.value().run_dir] {
    return storage::describe_checkpoints(folder, checkpoint::Proof::kSizes);
  };
  files_.ask_within(kDiskLimit, list, [reply](const Result<Json>& listed) {
    reply(listed ? Json{{"ok", true}, {"checkpoints", listed.value()}} : refused("state", listed.error().message));
  });
}

void RunService::job(const Requester& who, const nlohmann::json& request, const ClientService::Reply& reply) {
  const auto run = find(request.value("run", ""));
  if (!run) return reply(refused("run", run.error().message));
  note_read(who, "read_job", run.value().id, run.value().owner);
  const auto read = [id = run.value().id, run_dir = run.value().run_dir]() -> Result<Json> {
    Json job = json::read_ordered_file(run_dir + "/job.json");
    if (!job.is_object()) return Error{"its job.json cannot be read"};
    name_origin(job, id, run_dir);
    return job;
  };
  files_.ask_within(kDiskLimit, read, [id = run.value().id, reply](const Result<Json>& job) {
    if (!job) return reply(refused("state", job.error().message));
    reply(Json{{"ok", true}, {"run", id}, {"job", job.value()}});
  });
}

void RunService::order(const Requester& who, const nlohmann::json& request, const ClientService::Reply& reply) {
  static const std::map<std::string, core::NodeOrder::Kind> kKinds = {{"drain", core::NodeOrder::Kind::kDrain},
                                                                      {"undrain", core::NodeOrder::Kind::kUndrain},
                                                                      {"remove", core::NodeOrder::Kind::kRemove},
                                                                      {"set-slots", core::NodeOrder::Kind::kSetSlots}};
  const auto kind = kKinds.find(request.at("order").get<std::string>());
  if (kind == kKinds.end()) return reply(refused("value", "an order is one of drain, undrain, remove, set-slots"));
  const NodeId node = request.at("node").get<std::string>();
  const std::vector<core::NodeSnapshot> known = shell_.nodes();
  if (std::none_of(known.begin(), known.end(), [&](const auto& one) { return one.node == node; }))
    return reply(refused("node", fmt::format("no node \"{}\"; there is {}", node, names_of(known))));
  core::NodeOrder order{kind->second, request.value("slots", -1)};
  const std::string forbidden = refusal_of_order(who);
  const std::string why_not = forbidden.empty() ? shell_.order(node, order) : forbidden;
  audit_.add(who, kind->first, {{"node", node}}, why_not);
  if (!why_not.empty()) return reply(refused(forbidden.empty() ? "value" : "forbidden", why_not));
  log_(fmt::format("node {}: {}", node, kind->first));
  nodes_.ask(reply);
}

}  // namespace sgd::coordinator
