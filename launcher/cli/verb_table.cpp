#include "launcher/cli/verb_table.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <system_error>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/job/read_file.hpp"
#include "common/json/suggest.hpp"
#include "launcher/cli/help_text.hpp"
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

/// What stands in the place of a verb and is none of the table, and verbs of two words.
const std::map<std::string, std::string>& more_summaries() {
  static const std::map<std::string, std::string> kMore = {
      {"help", "says what a verb does, and its options"},
      {"version", "prints the version"},
      {"token create", "makes a token, with which one machine or person joins a cluster"},
      {"token list", "lists the tokens of a cluster, and who has used them"},
      {"token revoke", "makes a token worthless that nobody has used"},
      {"tune status", "shows the trials of an experiment"},
      {"tune best", "shows the best trial of an experiment, and how to run it again"},
      {"tune plot", "draws the metric of an experiment's trials"},
      {"tune export", "writes the trials of an experiment in the format of another tool"}};
  return kMore;
}

/// The job file that `word` is nearly the name of: "job.jsn" and "job" beside job.json; empty: none.
std::string nearly_job_file(const std::string& word) {
  namespace fs = std::filesystem;
  const fs::path given(word);
  const std::string ending = given.extension().string();
  if (!ending.empty() && !json::nearest(ending, {".json"})) return {};
  const std::string named = fs::path(given).replace_extension(".json").string();
  std::error_code ignored;  // Then it is not there.
  if (fs::is_regular_file(named, ignored)) return fmt::format("; did you mean {}?", named);
  return ending.empty() ? "" : job::did_you_mean_file(named);
}

std::vector<std::string> verb_names() {
  std::vector<std::string> names = {"help", "version"};
  for (const auto& [name, verb] : verbs()) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::string summary_of(const std::string& verb) {
  if (const auto more = more_summaries().find(verb); more != more_summaries().end()) return more->second;
  const auto known = verbs().find(verb.substr(0, verb.find(' ')));
  return known == verbs().end() ? "" : known->second.summary;
}

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
  const bool is_path = word.find('/') != std::string::npos;
  if (is_path ? ::access(word.c_str(), X_OK) == 0 : path != nullptr && process::find_program(word, path).ok())
    return fmt::format("\"{0}\" is a program: a command comes after --, as in sgd-launch -n 2 -- {0} ...", word);
  if (const std::string meant = nearly_job_file(word); !meant.empty())
    return fmt::format("\"{}\" is no job file, whose name ends in .json{}", word, meant);
  if (const auto near = json::nearest(word, verb_names()))
    return fmt::format("\"{}\" is no verb; did you mean {}? (sgd-launch help verbs lists all)", word, *near);
  return fmt::format(
      "cannot tell what \"{}\" is: a job file ends in .json, a command comes after --, and the verbs are {}", word,
      fmt::join(verb_names(), ", "));
}

int help_verb(std::vector<std::string> words) {
  if (words.empty() || words.front() == "help" || words.front() == "--help" || words.front() == "-h") {
    print_help("", run_help());
    return exit_code::kSucceeded;
  }
  if (words.front() == "verbs") {
    for (const std::string& name : verb_names()) fmt::print("{:<12} {}\n", name, summary_of(name));
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
