#include "launcher/agent/previous_agent.hpp"

#include <sys/stat.h>

#include <fmt/format.h>

#include "launcher/core/agent.hpp"

namespace sgd::agent {
namespace {

/// Takes all events, with nobody to carry anything out. Returns whether that leads to an agent that has nothing.
Result<bool> prove(PastJournal& past) {
  core::Agent machine(past.start().machine);
  for (;;) {
    auto record = past.next();
    if (!record) return record.error();
    if (!record.value()) break;
    core::AgentCommands commands;
    machine.on(record.value()->event.at, record.value()->event.event, commands);
    if (record.value()->told != kNotChecked && record.value()->told != machine.last_sequence())
      return Error{
          fmt::format("its events lead to {} facts where {} were told", machine.last_sequence(), record.value()->told)};
  }
  past.rewind();
  return machine.idle();
}

std::string why_not(const PastJournal& past, const std::string& node) {
  const JournalHeader& header = past.header();
  if (header.boot_id.empty() || header.boot_id != boot_id()) return "the system was rebooted since";
  if (header.program != SGD_VERSION) return fmt::format("it is of version {}", header.program);
  if (header.node != node) return fmt::format("it is of node {}", header.node);
  return {};
}

}  // namespace

PreviousAgent find_previous_agent(const std::string& journal_path, const std::string& node) {
  PreviousAgent found_agent;
  auto found = PastJournal::open(journal_path);
  if (!found) {
    found_agent.why_not = found.error().message;
    return found_agent;
  }
  if (!found.value()) return found_agent;
  PastJournal& past = *found.value();
  found_agent.why_not = why_not(past, node);
  if (!found_agent.why_not.empty()) return found_agent;
  const Result<bool> has_nothing = prove(past);
  if (!has_nothing) found_agent.why_not = has_nothing.error().message;
  if (!has_nothing || has_nothing.value()) return found_agent;
  auto runtime = process::RuntimeDir::take(past.header().runtime_dir);
  if (!runtime) {
    found_agent.why_not = runtime.error().message;
    return found_agent;
  }
  found_agent.runtime = std::move(runtime).value();
  found_agent.journal = std::move(past);
  return found_agent;
}

/// By the folder itself, not its name: two machines that share a name space of processes may have equal paths.
Result<std::string> keeper_mark(const std::string& state_dir) {
  struct stat info {};
  if (::stat(state_dir.c_str(), &info) != 0) return system_error("cannot look at " + state_dir);
  return fmt::format("SGD_KEEPER={:x}-{:x}-", info.st_dev, info.st_ino);
}

}  // namespace sgd::agent
