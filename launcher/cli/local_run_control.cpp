// What a run on this machine answers on its control socket.

#include <unistd.h>

#include <algorithm>
#include <csignal>

#include <fmt/format.h>

#include "common/json/lenient.hpp"
#include "launcher/cli/local_node.hpp"
#include "launcher/cli/local_run.hpp"
#include "launcher/core/stop_request.hpp"

namespace sgd::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSlotsMax = 1 << 20;

}  // namespace

Json LocalRun::answer(const nlohmann::json& request) {
  // Whatever its owner writes to the socket: a value of a wrong type must not end the run.
  try {
    const std::string what = request.value("request", "");
    if (what == "status") return answer_status();
    if (what == "stop") return answer_stop(request);
    if (what == "nodes") return answer_nodes();
    if (what == "set_slots") return answer_set_slots(request);
    return refused_request("request", fmt::format("unknown request \"{}\"", what));
  } catch (const nlohmann::json::exception&) {
    return refused_request("request", fmt::format("bad request: {}", kWrongShape));
  }
}

Json LocalRun::answer_status() const {
  const auto shot = coordinator_.snapshot(place_.id);
  if (!shot) return refused_request("state", "the run has not started");
  Json status = core::to_json(*shot);
  status["run_dir"] = place_.directory;
  return {{"ok", true}, {"status", std::move(status)}};
}

Json LocalRun::answer_stop(const nlohmann::json& request) {
  const auto stop = core::stop_request_of(request);
  if (!stop) return refused_request("request", stop.error().message);
  coordinator_.request_stop(place_.id, stop.value());
  return {{"ok", true}};
}

Json LocalRun::answer_nodes() const {
  const auto shot = coordinator_.snapshot(place_.id);
  Json nodes = Json::array();
  for (const LocalNode& node : nodes_) {
    const auto is_here = [&](const core::RankSnapshot& rank) {
      return rank.node == node.id && rank.phase != core::RankPhase::kExited;
    };
    const auto used = shot ? std::count_if(shot->ranks.begin(), shot->ranks.end(), is_here) : 0;
    nodes.push_back({{"node", node.id}, {"slots", node.slots}, {"used", used}});
  }
  return {{"ok", true}, {"run", place_.id}, {"nodes", std::move(nodes)}};
}

Json LocalRun::answer_set_slots(const nlohmann::json& request) {
  std::string names;
  for (const LocalNode& node : nodes_) names += (names.empty() ? "" : ", ") + node.id;
  const nlohmann::json& given = request.at("slots");
  if (!given.is_number_integer() || given < 0 || given > kSlotsMax)
    return refused_request("value",
                           fmt::format("slots must be a number from 0 to {}, got {}", kSlotsMax, given.dump()));
  const std::string wanted = request.value("node", "");
  if (wanted.empty() && nodes_.size() > 1)
    return refused_request("value", fmt::format("this run has several nodes: name one with --node ({})", names));
  const auto node = std::find_if(nodes_.begin(), nodes_.end(),
                                 [&](const LocalNode& one) { return wanted.empty() || one.id == wanted; });
  if (node == nodes_.end()) return refused_request("node", fmt::format("no node \"{}\"; there is {}", wanted, names));
  node->slots = given.get<int>();
  node->agent->set_slots(node->slots);
  return answer_nodes();
}

}  // namespace sgd::cli
