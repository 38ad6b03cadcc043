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
  } else if (verb == "stop") {
    stop(words);
  } else if (verb == "wait") {
    world.advance(duration_of(words.at(1)));
  } else if (verb == "stand-still") {
    world.stand_still(duration_of(words.at(1)));
  } else if (verb == "status") {
    return status();
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
  } else if (verb == "node") {
    const Duration beat = words.duration("beat", Duration{0});
    world.add_node(node, words.number("slots", 1), beat > Duration{0} ? std::optional(beat) : std::nullopt);
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
    crew_.end(number(1), number(2), 0);
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
  crew_.world().stop("run", request);
}

std::string Story::status() {
  World& world = crew_.world();
  const auto shot = world.coordinator().snapshot(world.now(), "run");
  SGD_ASSERT(shot.has_value());
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
