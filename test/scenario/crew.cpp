#include "test/scenario/crew.hpp"

#include <algorithm>

#include "common/base/assert.hpp"

namespace sgd::test {

core::ConnectionId Crew::link_of(Generation generation, Rank rank) {
  return static_cast<core::ConnectionId>(10 * (generation - 1) + rank + 1);
}

int Crew::pid_of(Generation generation, Rank rank) {
  return static_cast<int>(100 * generation + rank);
}

Crew::Process* Crew::newest(Rank rank, const NodeId& node) {
  for (auto place = processes_.rbegin(); place != processes_.rend(); ++place)
    if (place->first.second == rank && (node.empty() || place->second.node == node)) return &place->second;
  return nullptr;
}

std::vector<Rank> Crew::live_ranks() const {
  std::vector<Rank> ranks;
  if (processes_.empty()) return ranks;
  const Generation last = processes_.rbegin()->first.first;
  for (const auto& [key, process] : processes_)
    if (key.first == last) ranks.push_back(key.second);
  return ranks;
}

// ---- what keepers are told, and do ----

void Crew::on_command(const NodeId& node, const core::AgentCommand& command) {
  using namespace core::agent_command;
  const auto* other = std::get_if<StartKeeper>(&command);
  const auto* told_other = std::get_if<TellKeeper>(&command);
  if (other != nullptr && other->run != "run") return tasks_.push_back({node, "started", 0, 0, other->run});
  if (told_other != nullptr && told_other->run != "run") {
    if (std::holds_alternative<keeper::Close>(told_other->message))
      tasks_.push_back({node, "bystander-closed", 0, 0, told_other->run});
    return;
  }
  if (std::holds_alternative<StartKeeper>(command)) {
    tasks_.push_back({node, "started"});
  } else if (std::holds_alternative<ClearStrays>(command)) {
    tasks_.push_back({node, "strays-cleared"});
  } else if (const auto* tell = std::get_if<TellKeeper>(&command)) {
    on_told(node, tell->message);
  } else if (const auto* worker = std::get_if<TellWorker>(&command)) {
    if (const auto* assignment = std::get_if<link::Assignment>(&worker->message))
      processes_.at({assignment->generation, assignment->rank}).is_assigned = true;
  }
}

void Crew::on_told(const NodeId& node, const keeper::ToKeeper& message) {
  if (std::holds_alternative<keeper::StartForkServer>(message)) tasks_.push_back({node, "fork-server-ready"});
  if (const auto* spawn = std::get_if<keeper::Spawn>(&message)) {
    tasks_.push_back({node, "spawned", spawn->generation, spawn->rank});
    processes_[{spawn->generation, spawn->rank}] =
        Process{node, spawn->generation, spawn->rank, spawn->environment.set.at("SGD_TOKEN"), false, false, false, {}};
  }
  if (const auto* asked = std::get_if<keeper::AskErrors>(&message))
    tasks_.push_back({node, "errors-said", asked->generation});
  if (const auto* clear = std::get_if<keeper::Clear>(&message)) tasks_.push_back({node, "cleared", clear->generation});
  if (std::holds_alternative<keeper::Close>(message)) {
    tasks_.push_back({node, "cleared"});
    tasks_.push_back({node, "closed"});
  }
}

void Crew::obey(const NodeId& node) {
  const auto is_meant = [&](const Task& task) { return node.empty() || task.node == node; };
  for (;;) {
    const auto next = std::find_if(tasks_.begin(), tasks_.end(), is_meant);
    if (next == tasks_.end()) return;
    const Task task = *next;
    tasks_.erase(next);
    perform(task);
  }
}

void Crew::perform(const Task& task) {
  if (task.what == "started") world_.agent_event(task.node, core::agent_event::KeeperStarted{task.run});
  if (task.what == "bystander-closed") {
    world_.agent_event(task.node, core::agent_event::FromKeeper{task.run, keeper::Cleared{0, 0}});
    world_.agent_event(task.node, core::agent_event::KeeperClosed{task.run, 0, "gone"});
  }
  if (task.what == "fork-server-ready") from_keeper(task.node, keeper::ForkServerReady{});
  if (task.what == "strays-cleared") world_.agent_event(task.node, core::agent_event::StraysCleared{"run"});
  if (task.what == "closed") {
    std::erase_if(tasks_, [&](const Task& other) { return other.node == task.node; });  // Nobody reads them any more.
    world_.agent_event(task.node, core::agent_event::KeeperClosed{"run", 0, "gone"});
  }
  if (task.what == "errors-said") from_keeper(task.node, keeper::ErrorsSaid{task.generation, said_[task.node]});
  if (task.what == "spawned" && processes_.contains({task.generation, task.rank}))
    from_keeper(task.node, keeper::Spawned{task.generation, task.rank, pid_of(task.generation, task.rank)});
  if (task.what != "cleared") return;
  std::vector<std::pair<Generation, Rank>> killed;
  for (const auto& [key, process] : processes_)
    if (process.node == task.node) killed.push_back(key);
  for (const auto& [generation, rank] : killed) {
    say_exit(task.node, generation, rank, -1, 9);
    world_.agent_event(task.node, core::agent_event::LinkClosed{link_of(generation, rank)});
  }
  from_keeper(task.node, keeper::Cleared{task.generation, static_cast<int>(killed.size())});
}

void Crew::keeper(const Words& words) {
  const NodeId node = words.at(1);
  const std::string what = words.at(2);
  const Rank rank = words.number("rank", 0);
  const auto told = std::find_if(tasks_.begin(), tasks_.end(), [&](const Task& task) {
    return task.node == node && task.what == what && (what != "spawned" || task.rank == rank);
  });
  Process* process = newest(rank, node);
  Generation generation = process != nullptr ? process->generation : 1;
  if (told != tasks_.end()) {
    generation = told->generation;
    tasks_.erase(told);
  }
  generation = static_cast<Generation>(words.number("generation", static_cast<int>(generation)));
  const int signal = words.number("signal", 0);
  if (what == "started" || what == "strays-cleared") perform({node, what});
  if (what == "spawned")
    from_keeper(node, keeper::Spawned{generation, rank, words.number("pid", pid_of(generation, rank))});
  if (what == "fork-server-ready") {
    keeper::ForkServerReady ready;
    ready.can_fork = words.number("threads", 1) == 1;
    from_keeper(node, ready);
  }
  if (what == "fork-server-failed")
    from_keeper(node, keeper::ForkServerFailed{words.number("code", -1), signal, words.value("message", "")});
  if (what == "spawn-failed")
    from_keeper(node, keeper::SpawnFailed{generation, rank, words.number("errno", 2),
                                          words.value("message", "cannot run prog: no such file"), signal});
  if (what == "dropped")
    from_keeper(node, keeper::OutputDropped{rank, words.number("lines", 1), words.number("bytes", 10),
                                            words.value("reason", "full"), words.number("on_console", 0) == 1});
  if (what == "exited") say_exit(node, generation, rank, words.number("code", 0), signal);
  if (what == "cleared") from_keeper(node, keeper::Cleared{generation, words.number("killed", 0)});
  if (what == "refused")
    world_.agent_event(
        node, core::agent_event::KeeperClosed{"run", 0, "keeper could not be started: no space left", false, true});
  if (what == "closed") {
    std::erase_if(processes_, [&](const auto& entry) { return entry.second.node == node; });
    std::erase_if(tasks_, [&](const Task& task) { return task.node == node; });  // Nobody reads them any more.
    const bool with_agent = words.number("with_agent", 0) == 1;
    world_.agent_event(node, core::agent_event::KeeperClosed{"run", signal, "gone", with_agent});
  }
}

namespace {

std::pair<std::string, std::string> parts(const std::string& text) {
  const std::size_t colon = text.find(':');
  SGD_ASSERT(colon != std::string::npos);  // Else the transcript is misspelt.
  return {text.substr(0, colon), text.substr(colon + 1)};
}

/// "1:ValueError:text".
OtherError other_error(const std::string& text) {
  const auto [rank, rest] = parts(text);
  const auto [type, message] = parts(rest);
  return {std::stoi(rank), {type, message, {}, 0.5}};
}

}  // namespace

void Crew::note_said(const NodeId& node, const std::string& said) {
  said_[node].push_back(other_error(said));
}

void Crew::note_errors(const Words& words) {
  error_ = {};
  others_.clear();
  if (const std::string said = words.value("error", ""); !said.empty()) {
    const auto [type, message] = parts(said);
    error_ = {type, message, {}, 1};
  }
  if (const std::string said = words.value("living", ""); !said.empty()) others_.push_back(other_error(said));
}

void Crew::say_exit(const NodeId& node, Generation generation, Rank rank, int exit_code, int signal) {
  processes_.erase({generation, rank});
  keeper::Exited exited;
  exited.generation = generation;
  exited.rank = rank;
  exited.pid = pid_of(generation, rank);
  exited.signal = signal;
  exited.exit_code = signal != 0 ? -1 : exit_code;
  exited.tail = {"last line"};
  exited.error = std::exchange(error_, {});
  exited.others = std::exchange(others_, {});
  from_keeper(node, exited);
}

void Crew::from_keeper(const NodeId& node, keeper::FromKeeper message) {
  world_.agent_event(node, core::agent_event::FromKeeper{"run", std::move(message)});
}

void Crew::node_dies(const NodeId& node) {
  std::erase_if(processes_, [&](const auto& entry) { return entry.second.node == node; });
  std::erase_if(tasks_, [&](const Task& task) { return task.node == node; });
}

}  // namespace sgd::test
