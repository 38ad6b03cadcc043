#include "launcher/cli/verb_table.hpp"

#include <catch2/catch.hpp>

#include "test/unit/common/temporary_folder.hpp"

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

TEST_CASE("a word that is nothing is told what it may have meant, or all verbs") {
  CHECK(unknown_word("stauts") == "\"stauts\" is no verb; did you mean status? (sgd-launch help verbs lists all)");
  CHECK(unknown_word("versoin") == "\"versoin\" is no verb; did you mean version? (sgd-launch help verbs lists all)");
  const std::string text = unknown_word("xyzzy");
  CHECK_THAT(text,
             Catch::StartsWith("cannot tell what \"xyzzy\" is: a job file ends in .json, a command comes after --, "
                               "and the verbs are agent, ") &&
                 Catch::Contains("events, help, init") && Catch::EndsWith("validate, version, warm"));
  for (const char* verb : {"run", "resume", "submit", "ps", "plan", "coordinator", "token", "join"})
    CHECK(text.find(verb) != std::string::npos);
  CHECK(text.find("did you mean") == std::string::npos);
  CHECK_THAT(unknown_word("show", "config"), Catch::Contains("did you mean sgd-launch config show?"));
  CHECK_THAT(unknown_word("sh", "train.sh"),
             Catch::Equals("\"sh\" is a program: a command comes after --, as in sgd-launch -n 2 -- sh ..."));
  CHECK_THAT(unknown_word("run"), Catch::StartsWith("\"run\" is a verb, which comes first: sgd-launch run"));
}

TEST_CASE("a word that is nearly a job file's name is told which") {
  const sgd::test::TemporaryFolder folder;
  folder.write("job.json", "{}");
  for (const char* word : {"/job.jsn", "/job", "/jbo.jsno"}) {
    INFO(word);
    const std::string given = folder.path() + word;
    CHECK(unknown_word(given) ==
          "\"" + given + "\" is no job file, whose name ends in .json; did you mean " + folder.path("job.json") + "?");
  }
  CHECK_THAT(unknown_word(folder.path("job.txt")), Catch::StartsWith("cannot tell what"));
}

TEST_CASE("verbs, and those of two words, say what they are for") {
  CHECK(sgd::cli::summary_of("status") == "says what a run is doing");
  CHECK(sgd::cli::summary_of("token create") != sgd::cli::summary_of("token list"));
  CHECK(sgd::cli::summary_of("nodes drain") == sgd::cli::summary_of("nodes"));
  CHECK(sgd::cli::summary_of("xyzzy").empty());
}
