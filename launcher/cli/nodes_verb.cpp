// `sgd-launch nodes [RUN] [set-slots N]`: room for workers on the nodes of a living run, and its change.

#include <algorithm>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/verbs.hpp"

namespace sgd::cli {
namespace {

using Json = nlohmann::ordered_json;

/// Takes "set-slots N" out of `words`.
void take_set_slots(std::vector<std::string>& words, std::optional<int>& slots, const std::string& node,
                    Diagnostics& diagnostics) {
  const auto verb = std::find(words.begin(), words.end(), "set-slots");
  if (verb == words.end()) {
    if (!node.empty()) diagnostics.error("--node", 0, 0, "belongs to set-slots N");
    return;
  }
  const std::vector<std::string> given(verb + 1, words.end());
  words.erase(verb, words.end());
  if (given.size() != 1) {
    diagnostics.error(
        "set-slots", 0, 0,
        given.empty()
            ? "a number is missing: set-slots N"
            : fmt::format("takes one number, and RUN stands before it: \"{}\" is too many", given[1]));
    return;
  }
  slots = whole_number(given.front());
  if (!slots || *slots < 0)
    diagnostics.error("set-slots", 0, 0, fmt::format("expected a number from 0, got \"{}\"", given.front()));
}

int exit_code_of(const Json& refusal) {
  const std::string kind = refusal.value("kind", "");
  if (kind == "node") return exit_code::kNotFound;
  return kind == "value" ? exit_code::kUsage : exit_code::kUnreachable;
}

}  // namespace

int nodes_verb(const std::vector<std::string>& arguments) {
  bool as_json = false;
  std::optional<int> slots;
  std::string node;
  const Option node_option = {
      {"--node"}, "NODE", "of set-slots: which one, if there are several", "", [&](const std::string& text) {
        node = text;
        return text.empty() ? std::string("expected the name of a node") : std::string();
      }};
  const NamedRun run = name_run({"nodes",
                                 "[--json] [RUN] [set-slots N [--node NODE]]",
                                 "sgd-launch nodes set-slots 4",
                                 {flag({"--json"}, "one JSON object", as_json), node_option},
                                 [&](std::vector<std::string>& words, Diagnostics& diagnostics) {
                                   take_set_slots(words, slots, node, diagnostics);
                                 }},
                                arguments);
  if (!run.is_named) return run.exit_code;
  nlohmann::ordered_json request = {{"request", "nodes"}};
  if (slots) request = {{"request", "set_slots"}, {"slots", *slots}, {"node", node}};
  const auto answer = ask(run, request);
  if (!answer) return refuse(exit_code::kUnreachable, answer.error().message);
  if (!answer.value())
    return refuse(exit_code::kUnreachable, fmt::format("{} is not running: it has no nodes", run.directory));
  const Json& reply = *answer.value();
  if (!reply.value("ok", false)) return refuse(exit_code_of(reply), reply.value("error", "no answer"));
  if (as_json) {
    const Json all = {{"schema_version", 1}, {"run", reply.value("run", Json())}, {"nodes", reply.at("nodes")}};
    fmt::print("{}\n", all.dump(2));
    return exit_code::kSucceeded;
  }
  fmt::print("{:<16} {:>6} {:>6}{}\n", "node", "slots", "used", run.cluster ? "  state" : "");
  for (const Json& one : reply.at("nodes"))
    fmt::print("{:<16} {:>6} {:>6}{}{}\n", one.value("node", ""), one.value("slots", 0), one.value("used", 0),
               run.cluster ? "  " : "", one.value("state", ""));
  return exit_code::kSucceeded;
}

}  // namespace sgd::cli
