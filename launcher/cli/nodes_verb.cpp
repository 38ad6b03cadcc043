// `sgd-launch nodes`: room for workers on the nodes of a living run or of a cluster, and its change.

#include <algorithm>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/json/lenient.hpp"
#include "common/json/suggest.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/verbs.hpp"

namespace sgd::cli {
namespace {

using Json = nlohmann::ordered_json;

/// What is asked of a node, as typed.
struct Order {
  std::string verb;  ///< "set-slots", "drain", "undrain", "remove"; empty: only look.
  std::optional<int> slots;
  std::string node;
};

/// Takes "set-slots N" or "drain NODE" and the like out of `words`; "list" says nothing.
void take_order(std::vector<std::string>& words, Order& order, Diagnostics& diagnostics) {
  std::erase(words, "list");
  const auto verb = std::find_if(words.begin(), words.end(), [](const std::string& word) {
    return word == "set-slots" || word == "drain" || word == "undrain" || word == "remove";
  });
  if (verb == words.end()) {
    if (!order.node.empty()) diagnostics.error("--node", 0, 0, "belongs to set-slots N");
    if (words.size() < 2) return;
    const auto near = json::nearest(words.front(), {"list", "drain", "undrain", "remove", "set-slots"});
    diagnostics.error("nodes", 0, 0,
                      fmt::format("expected drain, undrain, remove or set-slots, got \"{}\"{}", words.front(),
                                  near ? fmt::format("; did you mean {}?", *near) : ""));
    words.clear();
    return;
  }
  order.verb = *verb;
  const std::vector<std::string> given(verb + 1, words.end());
  words.erase(verb, words.end());
  const bool takes_number = order.verb == "set-slots";
  if (given.size() != 1) {
    const std::string what = takes_number ? "number" : "node";
    diagnostics.error(order.verb, 0, 0,
                      given.empty()
                          ? fmt::format("a {} is missing: {} {}", what, order.verb, takes_number ? "N" : "NODE")
                          : fmt::format("takes one {}, and RUN stands before it: \"{}\" is too many", what, given[1]));
    return;
  }
  if (!takes_number) {
    order.node = given.front();
    return;
  }
  order.slots = whole_number(given.front());
  if (!order.slots || *order.slots < 0)
    diagnostics.error(order.verb, 0, 0, fmt::format("expected a number from 0, got \"{}\"", given.front()));
}

Json request_of(const Order& order, bool is_cluster, bool as_json) {
  if (order.verb.empty()) return {{"request", "nodes"}, {"brief", !as_json}};
  if (!is_cluster) return {{"request", "set_slots"}, {"slots", *order.slots}, {"node", order.node}};
  Json request = {{"request", "order_node"}, {"order", order.verb}, {"node", order.node}};
  if (order.slots) request["slots"] = *order.slots;
  return request;
}

int exit_code_of(const Json& refusal) {
  const std::string kind = read_or(refusal, "kind", "");
  if (kind == "node") return exit_code::kNotFound;
  return kind == "value" ? exit_code::kUsage : exit_code::kUnreachable;
}

/// Its agent has a link to the coordinator, by what that says of it; not where it does not answer.
bool is_connected(const NamedRun& run, const std::string& node) {
  const auto answer = ask(run, {{"request", "nodes"}, {"brief", true}});
  if (!answer || !answer.value()) return false;
  for (const Json& one : member(*answer.value(), "nodes")) {
    const std::string state = read_or(one, "state", "");
    if (read_or(one, "node", "") == node) return state != "lost" && state != "closed";
  }
  return false;
}

void print_nodes(const Json& nodes, bool is_cluster) {
  fmt::print("{:<16} {:>6} {:>6}{}\n", "node", "slots", "used", is_cluster ? "  state" : "");
  for (const Json& one : nodes)
    fmt::print("{:<16} {:>6} {:>6}{}{}\n", read_or(one, "node", ""), read_or(one, "slots", 0), read_or(one, "used", 0),
               is_cluster ? "  " : "", read_or(one, "state", ""));
}

}  // namespace

int nodes_verb(const std::vector<std::string>& arguments) {
  bool as_json = false;
  Order order;
  const Option node_option = {
      {"--node"}, "NODE", "for set-slots: the node, if there are several", "", [&](const std::string& text) {
        order.node = text;
        return text.empty() ? std::string("expected the name of a node") : std::string();
      }};
  const NamedRun run = name_run(
      {"nodes",
       "[--json] [RUN] [set-slots N [--node NODE]]\n       sgd-launch nodes [list | (drain | undrain | remove) NODE]   "
       "of a cluster",
       "sgd-launch nodes set-slots 4",
       {flag({"--json"}, "one JSON object", as_json), node_option},
       [&](std::vector<std::string>& words, Diagnostics& diagnostics) { take_order(words, order, diagnostics); }},
      arguments);
  if (!run.is_named) return run.exit_code;
  if (!run.cluster && !order.verb.empty() && order.verb != "set-slots")
    return refuse(exit_code::kUsage,
                  order.verb + " is for the nodes of a cluster: name its coordinator with --address");
  if (run.cluster && order.verb == "set-slots" && order.node.empty())
    return refuse(exit_code::kUsage, "set-slots: name the node with --node");
  const bool comes_back = order.verb == "remove" && is_connected(run, order.node);
  auto answer = ask(run, request_of(order, run.cluster.has_value(), as_json));
  if (!answer) return refuse(exit_code::kUnreachable, answer.error().message);
  if (!answer.value())
    return refuse(exit_code::kUnreachable, fmt::format("{} is not running: it has no nodes", run.directory));
  Json& reply = *answer.value();
  if (!read_or(reply, "ok", false)) return refuse(exit_code_of(reply), read_or(reply, "error", "no answer"));
  // The order to drain is forgotten with the node: what comes back takes runs.
  if (comes_back)
    fmt::print(stderr,
               "sgd-launch: {0}: removed; its agent runs and will join again, and not be drained then: end it, or "
               "sgd-launch revoke {0} where the coordinator is\n",
               order.node);
  if (as_json) {
    Json all = {{"schema_version", 1}, {"run", member(reply, "run")}};
    all["nodes"].swap(reply["nodes"]);
    fmt::print("{}\n", dump_text(all, 2));
    return exit_code::kSucceeded;
  }
  print_nodes(member(reply, "nodes"), run.cluster.has_value());
  return exit_code::kSucceeded;
}

}  // namespace sgd::cli
