#include "launcher/cli/verb_table.hpp"

#include <catch2/catch.hpp>

using sgd::cli::unknown_word;
using sgd::cli::verb_first;
using Words = std::vector<std::string>;

TEST_CASE("options that many verbs have may stand before the verb") {
  CHECK(verb_first({"--address", "h:1", "nodes", "list"}) == Words{"nodes", "--address", "h:1", "list"});
  CHECK(verb_first({"--json", "--address=h:1", "ps"}) == Words{"ps", "--json", "--address=h:1"});
  CHECK(verb_first({"--address", "h:1", "run", "-n", "2", "train.py"}) ==
        Words{"run", "--address", "h:1", "-n", "2", "train.py"});
  CHECK(verb_first({"--address", "h:1", "token", "create", "--name", "a"}) ==
        Words{"token", "create", "--address", "h:1", "--name", "a"});
  for (const Words& same :
       {Words{}, Words{"--address"}, Words{"--address", "h:1"}, Words{"--address", "h:1", "job.json"},
        Words{"--address", "nodes"}, Words{"nodes", "--json"}, Words{"-n", "2", "status"}})
    CHECK(verb_first(same) == same);
}

TEST_CASE("a word that is nothing is told what it may have meant, with all verbs") {
  const std::string text = unknown_word("stauts");
  CHECK_THAT(text,
             Catch::StartsWith("cannot tell what \"stauts\" is: did you mean the verb status? A job file ends in"));
  for (const char* verb : {"run", "resume", "submit", "ps", "plan", "coordinator", "agent", "token", "join", "help"})
    CHECK(text.find(verb) != std::string::npos);
  CHECK(unknown_word("xyzzy").find("did you mean") == std::string::npos);
  CHECK_THAT(unknown_word("show", "config"), Catch::Contains("did you mean sgd-launch config show?"));
  CHECK_THAT(unknown_word("sh", "train.sh"),
             Catch::Equals("\"sh\" is a program: a command comes after --, as in sgd-launch -n 2 -- sh ..."));
  CHECK_THAT(unknown_word("run"), Catch::StartsWith("\"run\" is a verb, which comes first: sgd-launch run"));
}
