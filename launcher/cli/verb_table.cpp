#include "launcher/cli/verb_table.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/json/suggest.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/run_options.hpp"
#include "launcher/cli/verbs.hpp"

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
  static const std::map<std::string, Verb> kVerbs = {{"run", run_verb},         {"resume", resume_verb},
                                                     {"status", status_verb},   {"logs", logs_verb},
                                                     {"stop", stop_verb},       {"checkpoints", checkpoints_verb},
                                                     {"nodes", nodes_verb},     {"events", events_verb},
                                                     {"metrics", metrics_verb}, {"plot", plot_verb},
                                                     {"runs", runs_verb},       {"submit", submit_verb},
                                                     {"ps", ps_verb},           {"plan", plan_verb},
                                                     {"config", config_verb},   {"coordinator", coordinator_verb},
                                                     {"agent", agent_verb},     {"init", init_verb},
                                                     {"token", token_verb},     {"revoke", revoke_verb},
                                                     {"join", join_verb},       {"validate", validate_verb},
                                                     {"warm", warm_verb},       {"tune", tune_verb}};
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

std::string unknown_word(const std::string& word) {
  std::string list;
  for (const std::string& name : verb_names()) list += (list.empty() ? "" : ", ") + name;
  const auto near = json::nearest(word, verb_names());
  return fmt::format(
      "cannot tell what \"{}\" is: a job file ends in .json, a command comes after --, and the verbs are {}{}", word,
      list, near ? fmt::format("; did you mean the verb {}?", *near) : "");
}

int help_verb(std::vector<std::string> words) {
  if (words.empty() || words.front() == "help") {
    fmt::print("{}", run_help());
    return exit_code::kSucceeded;
  }
  const auto known = verbs().find(words.front());
  if (known == verbs().end()) return refuse(exit_code::kUsage, unknown_word(words.front()));
  words.erase(words.begin());
  words.push_back("--help");
  return known->second(words);
}

}  // namespace sgd::cli
