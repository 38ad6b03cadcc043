#include "launcher/cli/verb_table.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/json/suggest.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/run_options.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/process/spawn.hpp"

namespace sgd::cli {
namespace {

/// As many words as an option in front of a verb takes; 0 for any other word.
std::size_t words_of_option(const std::string& word) {
  if (word == "--address") return 2;
  const bool is_flag = word == "--json" || word == "--quiet" || word == "-q" || word == "--no-color";
  return is_flag || word.starts_with("--address=") ? 1 : 0;
}

/// "token create": what is done stands in two words.
bool has_second_word(const std::string& verb) {
  return verb == "token" || verb == "config" || verb == "runs" || verb == "tune";
}

std::vector<std::string> verb_names() {
  std::vector<std::string> names;
  for (const auto& [name, verb] : verbs()) names.push_back(name);
  names.push_back("help");
  return names;
}

}  // namespace

const std::map<std::string, Verb>& verbs() {
  static const std::map<std::string, Verb> kVerbs = {
      {"agent", {agent_verb, "offers this machine to a cluster's runs"}},
      {"checkpoints", {checkpoints_verb, "lists the checkpoints of a run, or fetches one"}},
      {"config", {config_verb, "shows every setting, and where its value comes from"}},
      {"coordinator", {coordinator_verb, "schedules the runs of a cluster"}},
      {"doctor", {doctor_verb, "says what this machine or a cluster lacks, and what fixes it"}},
      {"events", {events_verb, "prints the events of a run as JSON lines"}},
      {"init", {init_verb, "makes a cluster's certificate authority and its first certificates"}},
      {"join", {join_verb, "makes this machine or this person a member of a cluster"}},
      {"logs", {logs_verb, "prints what the workers of a run wrote"}},
      {"metrics", {metrics_verb, "prints or converts the reports of a run"}},
      {"nodes", {nodes_verb, "lists nodes and their slots, and changes them"}},
      {"plan", {plan_verb, "says where a job would be placed, and why not elsewhere"}},
      {"plot", {plot_verb, "draws metrics of a run as curves"}},
      {"ps", {ps_verb, "lists live runs, of this machine or a cluster"}},
      {"resume", {resume_verb, "continues a run that has ended"}},
      {"revoke", {revoke_verb, "shuts a node or a person out of a cluster"}},
      {"run", {run_verb, "runs a job file or a command, on this machine or a cluster"}},
      {"runs", {runs_verb, "lists, removes and pins folders of runs"}},
      {"status", {status_verb, "says what a run is doing"}},
      {"stop", {stop_verb, "stops a run, with a checkpoint"}},
      {"submit", {submit_verb, "runs a job on a cluster"}},
      {"token", {token_verb, "makes, lists and revokes tokens to join a cluster"}},
      {"tune", {tune_verb, "runs trials of a job with different settings, and finds the best"}},
      {"validate", {validate_verb, "measures saved weights on validation data"}},
      {"warm", {warm_verb, "keeps a Python process ready that has imported what a script needs"}}};
  return kVerbs;
}

std::vector<std::string> verb_first(std::vector<std::string> words) {
  std::size_t front = 0;
  while (front < words.size() && words_of_option(words[front]) != 0) front += words_of_option(words[front]);
  if (front == 0 || front >= words.size() || !verbs().contains(words[front])) return words;
  const std::size_t named = has_second_word(words[front]) && front + 1 < words.size() ? 2 : 1;
  const auto begin = words.begin();
  const auto verb = begin + static_cast<std::ptrdiff_t>(front);
  std::rotate(begin, verb, verb + static_cast<std::ptrdiff_t>(named));
  return words;
}

std::string unknown_word(const std::string& word, const std::string& next) {
  if (verbs().contains(word))
    return fmt::format("\"{0}\" is a verb, which comes first: sgd-launch {0} ..., with its options behind it", word);
  if (verbs().contains(next))
    return fmt::format("cannot tell what \"{0}\" is: did you mean sgd-launch {1} {0}? A verb comes first", word, next);
  const char* path = std::getenv("PATH");
  if (path != nullptr && process::find_program(word, path))
    return fmt::format("\"{0}\" is a program: a command comes after --, as in sgd-launch -n 2 -- {0} ...", word);
  std::string list;
  for (const std::string& name : verb_names()) list += (list.empty() ? "" : ", ") + name;
  const auto near = json::nearest(word, verb_names());
  const std::string meant = near ? fmt::format("did you mean the verb {}? A", *near) : "a";
  return fmt::format(
      "cannot tell what \"{}\" is: {} job file ends in .json, a command comes after --, and the verbs are {}", word,
      meant, list);
}

int help_verb(std::vector<std::string> words) {
  if (words.empty() || words.front() == "help" || words.front() == "--help" || words.front() == "-h") {
    fmt::print("{}", run_help());
    return exit_code::kSucceeded;
  }
  if (words.front() == "verbs") {
    for (const auto& [name, verb] : verbs()) fmt::print("{:<12} {}\n", name, verb.summary);
    return exit_code::kSucceeded;
  }
  if (words.front() == "version") {
    fmt::print("Usage: sgd-launch version   (or --version)\n");
    return exit_code::kSucceeded;
  }
  const auto known = verbs().find(words.front());
  if (known == verbs().end()) return refuse(exit_code::kUsage, unknown_word(words.front()));
  words.erase(words.begin());
  words.push_back("--help");
  return known->second.run(words);
}

}  // namespace sgd::cli
