#include "test/scenario/story.hpp"

#include <sstream>

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "test/scenario/job_of.hpp"

namespace sgd::test {

std::string Story::play(const std::string& line) {
  const Words words(line);
  const std::string verb = words.at(0);
  World& world = crew_.world();
  if (play_nodes(verb, words) || play_ranks(verb, words)) return world.take_output();
  if (verb == "submit") {
    world.submit(job_of(words));
  } else if (verb == "plan") {
    return plan(words);
  } else if (verb == "forget") {
    world.forget(words.at(1));
  } else if (verb == "nodes") {
    return nodes();
  } else if (verb == "stop") {
    stop(words);
  } else if (verb == "pass-signal") {
    world.pass_signal(std::stoi(words.at(1)));
  } else if (verb == "wait") {
    world.advance(duration_of(words.at(1)));
  } else if (verb == "stand-still") {
    world.stand_still(duration_of(words.at(1)));
  } else if (verb == "status") {
    return status(words.at(1, "run"));
  } else {
    return "NO SUCH COMMAND: " + verb + "\n";
  }
  return world.take_output();
}

bool Story::play_nodes(const std::string& verb, const Words& words) {
  World& world = crew_.world();
  const NodeId node = words.at(1);
  if (verb == "node-timeout") {
    world.set_node_timeout(duration_of(node));
  } else if (verb == "backfill-limit") {
    world.set_backfill_limit(duration_of(node));
  } else if (verb == "node") {
    add_node(words);
  } else if (verb == "slots") {
    world.agent_event(node, core::agent_event::SlotsChanged{std::stoi(words.at(2))});
  } else if (verb == "break") {
    world.cut(node, true);
  } else if (verb == "mute") {
    world.cut(node, false);
  } else if (verb == "unmute") {
    world.join(node, false);
  } else if (verb == "reconnect") {
    world.join(node, true);
  } else if (verb == "drain" || verb == "undrain" || verb == "remove") {
    using Kind = core::NodeOrder::Kind;
    world.order(node, {verb == "drain" ? Kind::kDrain : verb == "undrain" ? Kind::kUndrain : Kind::kRemove, -1});
  } else if (verb == "set-slots") {
    world.order(node, {core::NodeOrder::Kind::kSetSlots, std::stoi(words.at(2))});
  } else if (verb == "preempt") {
    world.agent_event(node, core::agent_event::LeavingSoon{});
  } else if (verb == "ports") {
    world.hold_ports_back(words.at(1) == "held-back");
  } else if (verb == "port") {
    world.answer_port(node, static_cast<Generation>(words.number("generation", 1)), words.number("port", 0),
                      words.number("workers", 0));
  } else if (verb == "twin") {
    world.twin(node);
  } else if (verb == "restart-agent") {
    crew_.node_dies(node);
    world.restart_agent(node);
  } else {
    return false;
  }
  return true;
}

bool Story::play_ranks(const std::string& verb, const Words& words) {
  const auto number = [&](std::size_t index) { return std::stoi(words.at(index, "9")); };
  if (verb == "keeper") {
    crew_.keeper(words);
  } else if (verb == "obey") {
    crew_.obey(words.at(1));
  } else if (verb == "spool") {
    crew_.spool(words.at(1), words.at(2), words);
  } else if (verb == "rank") {
    crew_.rank(words.at(1), number(2), words.at(3), words);
  } else if (verb == "ranks") {
    crew_.all_ranks(words.at(1), words);
  } else if (verb == "train") {
    crew_.train(words);
  } else if (verb == "kill") {
    crew_.end(number(1), -1, number(2));
  } else if (verb == "exit" && words.at(1) == "all") {
    crew_.end_all(number(2));
  } else if (verb == "exit") {
    crew_.note_errors(words);
    crew_.end(number(1), number(2), 0);
  } else if (verb == "said") {
    crew_.note_said(words.at(1), words.at(2));
  } else if (verb == "heartbeat") {
    crew_.pulse(number(1), words.at(2));
  } else {
    return false;
  }
  return true;
}

void Story::stop(const Words& words) {
  core::StopRequest request;
  request.signal = words.number("signal", 0);
  request.why = request.signal != 0 ? core::StopRequest::Why::kSignal : core::StopRequest::Why::kCancelled;
  request.at_once = words.number("now", 0) != 0;
  crew_.world().stop(words.value("run", "run"), request);
}

void Story::add_node(const Words& words) {
  core::AgentFacts facts;
  facts.node = words.at(1);
  facts.slots = words.number("slots", 1);
  const int cpus = words.number("cpus", facts.slots);
  for (int core = 0; core < cpus; ++core) facts.allowed_cores.push_back(core);
  facts.counts_cpus = words.number("cpus", 0) > 0;
  facts.is_shared = words.number("shared", facts.counts_cpus ? 1 : 0) != 0;
  if (!words.value("gpu", "").empty()) facts.labels["gpu"] = words.value("gpu", "");
  for (int gpu = 0; gpu < words.number("gpus", 0); ++gpu) facts.gpus.push_back(fmt::format("GPU-{}", gpu));
  const Duration beat = words.duration("beat", Duration{0});
  if (beat > Duration{0}) facts.beat_interval = beat;
  const Duration orphan = words.duration("orphan", Duration{0});
  if (orphan > Duration{0}) facts.orphan_timeout = orphan;
  crew_.world().add_node(std::move(facts));
}

std::string Story::plan(const Words& words) {
  core::RunDefinition run = job_of(words);
  run.id = "planned";
  World& world = crew_.world();
  return core::to_json(world.coordinator().explain(world.now(), run)).dump(2) + "\n";
}

std::string Story::nodes() {
  std::string text;
  for (const core::NodeSnapshot& row : crew_.world().coordinator().nodes())
    text += fmt::format("{} {}{}, {} of {} slots used{}\n", row.node, core::name(row.phase),
                        row.reason.empty() || row.reason == core::name(row.phase) ? "" : " (" + row.reason + ")",
                        row.used, row.slots, row.has_ordered_slots ? ", as ordered" : "");
  return text;
}

std::string Story::status(const RunId& run) {
  World& world = crew_.world();
  const auto shot = world.coordinator().snapshot(world.now(), run);
  if (!shot) return "no run " + run + "\n";
  return fmt::format("{} generation {} world {} ready {}{}{}\n", core::name(shot->phase), shot->generation,
                     shot->world_size, shot->ready, shot->reason.empty() ? "" : ": ", shot->reason);
}

std::string replay(const std::string& transcript) {
  Story story;
  std::string result;
  std::istringstream lines(transcript);
  bool in_output = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) {
      in_output = false;
      continue;
    }
    if (line == "----") {
      in_output = true;
      continue;
    }
    if (in_output) continue;
    if (line.starts_with("#")) {
      result += line + "\n";
      continue;
    }
    result += line + "\n----\n" + story.play(line) + "\n";
  }
  return result;
}

}  // namespace sgd::test
