#include "test/scenario/story.hpp"

#include <sstream>

#include <fmt/format.h>

#include "common/base/assert.hpp"

namespace sgd::test {
namespace {

/// "workers=2" among the words: "2"; `otherwise` when it is not there.
std::string value(const std::vector<std::string>& words, const std::string& key, const std::string& otherwise) {
  for (const std::string& word : words)
    if (word.starts_with(key + "=")) return word.substr(key.size() + 1);
  return otherwise;
}

int number(const std::vector<std::string>& words, const std::string& key, int otherwise) {
  return std::stoi(value(words, key, std::to_string(otherwise)));
}

nlohmann::json job_json(int workers, bool is_training, bool fork_server) {
  nlohmann::json job = {{"name", "story"},
                        {"num_workers", workers},
                        {"per_worker", {{"cpus", 1}}},
                        {"recovery", {{"max_failures", 0}}},
                        {"fork_server", fork_server}};
  if (is_training) job["training"] = {{"epochs", 2}};
  if (!is_training) job["command"] = {"prog", "arg"};
  return job;
}

}  // namespace

std::string Story::play(const std::string& line) {
  std::istringstream stream(line);
  Words words;
  for (std::string word; stream >> word;) words.push_back(word);
  const std::string& verb = words.at(0);
  if (verb == "node") {
    world_.add_node(words.at(1), number(words, "slots", 1));
  } else if (verb == "submit") {
    submit(words);
  } else if (verb == "keeper") {
    keeper(words);
  } else if (verb == "rank") {
    worker(words);
  } else if (verb == "stop") {
    core::StopRequest request;
    request.signal = number(words, "signal", 0);
    request.why = request.signal != 0 ? core::StopRequest::Why::kSignal : core::StopRequest::Why::kCancelled;
    request.at_once = number(words, "now", 0) != 0;
    world_.stop("run", request);
  } else if (verb == "wait") {
    const auto duration = parse_duration(words.at(1));
    SGD_ASSERT(duration.has_value());
    world_.advance(*duration);
  } else if (verb == "status") {
    const auto shot = world_.coordinator().snapshot(world_.now(), "run");
    SGD_ASSERT(shot.has_value());
    return fmt::format("{} generation {} world {} ready {}{}{}\n", core::name(shot->phase), shot->generation,
                       shot->world_size, shot->ready, shot->reason.empty() ? "" : ": ", shot->reason);
  } else {
    return "no such command: " + verb + "\n";
  }
  return world_.take_output();
}

void Story::submit(const Words& words) {
  const int workers = number(words, "workers", 1);
  const bool is_training = value(words, "kind", "training") == "training";
  core::RunDefinition run;
  run.id = "run";
  run.run_dir = "/runs/run";
  run.job.name = "story";
  run.job.num_workers = workers;
  if (is_training) run.job.training.emplace();
  if (!is_training) run.job.command = {"prog", "arg"};
  run.job.resolved = job_json(workers, is_training, number(words, "fork_server", 1) != 0);
  world_.submit(std::move(run));
}

/// keeper NODE started | fork-server-ready | fork-server-failed | spawned | spawn-failed | exited | cleared | closed | strays-cleared
void Story::keeper(const Words& words) {
  const NodeId& node = words.at(1);
  const std::string& what = words.at(2);
  const Generation generation = static_cast<Generation>(number(words, "generation", 1));
  const int rank = number(words, "rank", 0);
  const auto say = [&](keeper::FromKeeper message) {
    world_.agent_event(node, core::agent_event::FromKeeper{"run", std::move(message)});
  };
  if (what == "started") world_.agent_event(node, core::agent_event::KeeperStarted{"run"});
  if (what == "fork-server-ready") {
    keeper::ForkServerReady ready;
    ready.can_fork = number(words, "threads", 1) == 1;
    say(ready);
  }
  if (what == "fork-server-failed")
    say(keeper::ForkServerFailed{number(words, "code", -1), number(words, "signal", 0), value(words, "message", "")});
  if (what == "spawned") say(keeper::Spawned{generation, rank, number(words, "pid", 100 + rank)});
  if (what == "spawn-failed") say(keeper::SpawnFailed{generation, rank, 2, "cannot run prog: no such file"});
  if (what == "exited") {
    keeper::Exited exited;
    exited.generation = generation;
    exited.rank = rank;
    exited.pid = number(words, "pid", 100 + rank);
    exited.signal = number(words, "signal", 0);
    exited.exit_code = exited.signal != 0 ? -1 : number(words, "code", 0);
    exited.tail = {"last line"};
    say(exited);
  }
  if (what == "cleared") say(keeper::Cleared{generation, number(words, "killed", 0)});
  if (what == "closed")
    world_.agent_event(node, core::agent_event::KeeperClosed{"run", number(words, "signal", 0), "gone"});
  if (what == "strays-cleared") world_.agent_event(node, core::agent_event::StraysCleared{"run"});
}

/// rank NODE R hello | ready | first-step | exchange KEY VALUE | report ... | failed WORD | closed
void Story::worker(const Words& words) {
  const NodeId& node = words.at(1);
  const int rank = std::stoi(words.at(2));
  const std::string& what = words.at(3);
  const auto connection = static_cast<core::ConnectionId>(number(words, "link", rank + 1));
  const auto say = [&](link::FromWorker message) {
    world_.agent_event(node, core::agent_event::FromWorker{connection, 100 + rank, std::move(message)});
  };
  if (what == "hello") say(link::Hello{value(words, "token", token_of(rank)), 100 + rank, link::kProtocol, "test"});
  if (what == "ready") {
    link::Ready ready;
    ready.step = number(words, "step", 0);
    ready.source = value(words, "source", "fresh");
    ready.redone = number(words, "redone", -1);
    say(ready);
  }
  if (what == "first-step") say(link::FirstStep{number(words, "step", 1)});
  if (what == "exchange") say(link::ExchangePut{words.at(4), words.at(5)});
  if (what == "failed") say(link::Failed{words.at(4), ""});
  if (what == "checkpoint") {
    link::CheckpointSaved saved;
    saved.path = "checkpoints/step-000000000010-gen-0001";
    saved.step = 10;
    saved.epoch = 1;
    saved.bytes = 1000;
    say(saved);
  }
  if (what == "report") {
    link::Report report;
    report.key.epoch = number(words, "epoch", 1);
    report.key.phase = value(words, "phase", "train");
    report.step = number(words, "step", 10);
    report.metrics = {{"epoch", report.key.epoch},
                      {"num_samples", number(words, "samples", 5)},
                      {report.key.phase == "train" ? "train_loss" : "val_loss", std::stod(value(words, "loss", "1"))}};
    say(report);
  }
  if (what == "closed") world_.agent_event(node, core::agent_event::LinkClosed{connection});
}

/// Tokens come from the seeded generator of the rank's agent, in the order of its ranks.
std::string Story::token_of(int rank) const {
  const auto given = tokens_.find(rank);
  if (given != tokens_.end()) return given->second;
  core::Random random({1, 2, 3, 4});
  std::string token = random.token();
  for (int before = 0; before < rank; ++before) token = random.token();
  return token;
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
