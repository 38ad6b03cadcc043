// sgd-launch: picks the verb. No decision about runs is made here.

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "common/base/time.hpp"
#include "common/exit_codes.hpp"
#include "launcher/cli/last_words.hpp"
#include "launcher/cli/run_options.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/keeper/keeper_main.hpp"

int main(int argc, char** argv) {
  using namespace sgd::cli;
  std::vector<std::string> words(argv + 1, argv + argc);
  const std::string verb = words.empty() ? "" : words.front();
  try {
    if (verb == "keeper" && words.size() <= 2)  // Started by ourselves only.
      return sgd::keeper::keeper_main(words.size() == 1 ? sgd::Duration{}
                                                        : sgd::parse_duration(words[1]).value_or(sgd::Duration{}));
    (void)::unsetenv("SGD_AGENT_WAIT");  // Said of another agent, where we are ourselves part of a run.
    if (words.empty() || verb == "help" || verb == "--help" || verb == "-h") {
      fmt::print(words.empty() ? stderr : stdout, "{}", run_help());
      return words.empty() ? sgd::exit_code::kUsage : sgd::exit_code::kSucceeded;
    }
    if (verb == "version" || verb == "--version") {
      fmt::print("sgd-launch {}\n", SGD_VERSION);
      return sgd::exit_code::kSucceeded;
    }
    static const std::map<std::string, int (*)(const std::vector<std::string>&)> kVerbs = {
        {"run", run_verb},       {"resume", resume_verb},           {"status", status_verb}, {"logs", logs_verb},
        {"stop", stop_verb},     {"checkpoints", checkpoints_verb}, {"runs", runs_verb},     {"nodes", nodes_verb},
        {"events", events_verb}, {"submit", submit_verb},           {"ps", ps_verb},         {"plan", plan_verb},
        {"config", config_verb}, {"coordinator", coordinator_verb}, {"agent", agent_verb},   {"init", init_verb},
        {"token", token_verb},   {"revoke", revoke_verb},           {"join", join_verb}};
    const auto known = kVerbs.find(verb);
    if (known == kVerbs.end()) return run_verb(words);
    words.erase(words.begin());
    return known->second(words);
  } catch (const std::exception&) {
    const char* details = std::getenv("SGD_DETAILS");
    fmt::print(stderr, "sgd-launch: error: {}\n",
               last_words(verb, std::current_exception(), details != nullptr && *details == '1'));
    return sgd::exit_code::kFailed;
  }
}
