// RunService: what `sgd-launch runs` asks for, and what its owners have.

#include <fmt/format.h>

#include "launcher/coordinator/run_service.hpp"

namespace sgd::coordinator {
namespace {

/// Rows of one answer; the newest runs come first.
constexpr std::size_t kRowsMax = 2000;

}  // namespace

core::OwnerLoad RunService::load_of(const std::string& owner) const {
  core::OwnerLoad load = shell_.load_of(owner);
  load.bytes = retention_.bytes_of(owner);
  load.bytes_most = retention_.bytes_most_of(owner);
  return load;
}

storage::Charge RunService::charge_of(const RunId& run) {
  const auto owner = shell_.owner_of(run);
  const auto folder = directory_of_files(run);
  if (!owner || !folder) return {};
  return {retention_.room_of(*owner), *folder, !shell_.is_of_admin(run)};
}

void RunService::runs(const ClientService::Reply& reply) {
  Json list = Json::array();
  const std::vector<RunId> ids = shell_.run_ids(CoordinatorShell::Which::kAll);
  for (auto id = ids.rbegin(); id != ids.rend() && list.size() < kRowsMax; ++id) {
    const auto row = shell_.run(*id);
    if (!row) continue;
    const auto known = retention_.known().find(*id);
    const bool is_known = known != retention_.known().end();
    list.push_back({{"run", *id},
                    {"owner", row->owner},
                    {"state", row->state},
                    {"finished", row->finished_s > 0 ? Json(row->finished_s) : Json()},
                    {"bytes", is_known ? Json(known->second.bytes) : Json()},
                    {"pinned", is_known && known->second.is_pinned}});
  }
  for (const auto& [id, stray] : retention_.strays()) {
    if (list.size() >= kRowsMax) break;
    list.push_back({{"run", id},
                    {"owner", ""},
                    {"state", "unknown"},
                    {"finished", stray.finished_s},
                    {"bytes", stray.bytes},
                    {"pinned", stray.is_pinned}});
  }
  const std::size_t left_out = ids.size() + retention_.strays().size() - list.size();
  reply(Json{{"ok", true}, {"left_out", left_out}, {"runs", std::move(list)}});
}

void RunService::change_run(const Requester& who, const std::string& what, const nlohmann::json& request,
                            const ClientService::Reply& reply) {
  const std::string name = request.value("run", "");
  const bool is_stray = retention_.strays().contains(name);  // By its whole name: no run is looked for among them.
  const auto run = name.empty() ? Result<RunRow>(Error{"name a run"}) : find(name);
  if (!run && !is_stray) return reply(refused("run", run.error().message));
  const RunId id = is_stray ? name : run.value().id;
  if (!is_stray && shell_.is_trial(id))
    return reply(refused("state", fmt::format("{} is a trial, and is kept and removed with its experiment: name {}", id,
                                              id.substr(0, id.rfind('.')))));
  const bool pinned = request.value("pinned", true);
  const char* action = what == "remove_run" ? "remove" : pinned ? "pin" : "unpin";
  const std::string forbidden =
      refusal_of_change(who, fmt::format("{} it", action), id, is_stray ? "" : run.value().owner);
  if (!forbidden.empty()) {
    audit_.add(who, action, {{"run", id}}, forbidden);
    return reply(refused("forbidden", forbidden));
  }
  const auto done = [this, who, action, id, reply](const std::string& why_not) {
    audit_.add(who, action, {{"run", id}}, why_not);
    reply(why_not.empty() ? Json{{"ok", true}, {"run", id}} : refused("state", why_not));
  };
  if (what == "remove_run") return retention_.remove(id, done);
  retention_.pin(id, pinned, done);
}

}  // namespace sgd::coordinator
