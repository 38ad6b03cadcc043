#include "launcher/warm/setting_match.hpp"

#include <catch2/catch.hpp>

namespace sgd::warm {
namespace {

keeper::StartForkServer python_server() {
  keeper::StartForkServer server;
  server.argv = {"/usr/bin/python3", "-u", "server.py", "train.py"};
  server.job = {{"command", {"/usr/bin/python3", "-u", "train.py"}}, {"preload", "auto"}};
  server.environment.defaults = {{"OMP_NUM_THREADS", "1"}};
  server.environment.set = {{"DATA", "/data"}};
  server.environment.appended = {{"PYTHONPATH", "/modules"}};
  return server;
}

Setting setting() {
  return with_server({{{"HOME", "/home/one"}, {"PWD", "/home/one"}, {"SHLVL", "1"}}, "/home/one", {}}, python_server());
}

}  // namespace

TEST_CASE("warm setting: ranks begin with the environment, its defaults and what the job sets") {
  Setting given = setting();
  given.environment["PYTHONPATH"] = "/mine";
  given.environment["DATA"] = "/other";
  const auto environment = environment_of_ranks(given, python_server());
  CHECK(environment.at("OMP_NUM_THREADS") == "1");
  CHECK(environment.at("DATA") == "/data");
  CHECK(environment.at("PYTHONPATH") == "/mine:/modules");
  given.environment["OMP_NUM_THREADS"] = "4";
  CHECK(environment_of_ranks(given, python_server()).at("OMP_NUM_THREADS") == "4");
}

TEST_CASE(
    "warm setting: an interpreter of a whole path serves its own setting, from any folder and terminal, any script") {
  Setting wanted = setting();
  CHECK_FALSE(mismatch(setting(), wanted));
  wanted.workdir = "/tmp";
  wanted.environment["PWD"] = "/tmp";
  wanted.environment["SSH_TTY"] = "/dev/pts/1";
  wanted.environment.erase("SHLVL");
  keeper::StartForkServer server = python_server();
  server.log_path = "elsewhere.log";
  CHECK_FALSE(mismatch(setting(), with_server(wanted, server)));
  CHECK(is_of_same_script(setting(), with_server(wanted, server)));
  server.job["command"] = {"/usr/bin/python3", "-u", "other.py", "20"};
  server.argv = {"/usr/bin/python3", "-u", "server.py", "other.py", "20"};
  CHECK_FALSE(mismatch(setting(), with_server(wanted, server)));
  CHECK_FALSE(is_of_same_script(setting(), with_server(wanted, server)));
}

TEST_CASE("warm setting: what a module may have read when it was imported must be the same") {
  Setting wanted = setting();
  SECTION("a variable that differs") {
    wanted.environment["HOME"] = "/home/two";
    CHECK(mismatch(setting(), wanted)->reason == "the variable HOME differs");
  }
  SECTION("a variable more") {
    wanted.environment["MKL_DEBUG"] = "1";
    CHECK(mismatch(setting(), wanted)->reason == "the variable MKL_DEBUG differs");
  }
  SECTION("a variable less, which the job sets no more") {
    keeper::StartForkServer server = python_server();
    server.environment.defaults.clear();
    wanted = with_server(wanted, server);
    CHECK(mismatch(setting(), wanted)->reason == "the variable OMP_NUM_THREADS differs");
  }
  SECTION("what is to be preloaded") {
    keeper::StartForkServer server = python_server();
    server.job["preload"] = {"torch"};
    wanted = with_server(wanted, server);
    CHECK(mismatch(setting(), wanted)->reason == "--preload differs");
  }
  CHECK(mismatch(setting(), wanted)->is_near);
}

TEST_CASE("warm setting: what is looked up in a folder serves that folder alone") {
  struct Case {
    std::string program;
    std::map<std::string, std::string> variables;
    std::string part;  // Empty: it serves any folder.
  };
  const std::vector<Case> cases = {{".venv/bin/python3", {}, ".venv/bin/python3"},
                                   {"/usr/bin/python3", {{"PYTHONPATH", "src"}}, "PYTHONPATH"},
                                   {"/usr/bin/python3", {{"PYTHONPATH", ":/x"}}, "PYTHONPATH"},
                                   {"/usr/bin/python3", {{"PYTHONPATH", "/x:"}}, "PYTHONPATH"},
                                   {"/usr/bin/python3", {{"PYTHONUSERBASE", "user"}}, "PYTHONUSERBASE"},
                                   {"python3", {{"PATH", "/usr/bin:bin"}}, "PATH"},
                                   {"python3", {{"PATH", "/usr/bin:/bin"}}, ""},
                                   {"/usr/bin/python3", {{"PATH", "bin"}, {"PYTHONPATH", "/x:/y"}}, ""},
                                   {"/usr/bin/python3", {{"PYTHONPATH", ""}}, ""}};
  for (const Case& one : cases) {
    CAPTURE(one.program, one.variables);
    keeper::StartForkServer server = python_server();
    server.argv.front() = one.program;
    Setting held = with_server(setting(), server);
    held.environment.insert(one.variables.begin(), one.variables.end());
    Setting wanted = held;
    CHECK_FALSE(mismatch(held, wanted));
    wanted.workdir = "/home/one/other";
    const auto differs = mismatch(held, wanted);
    CHECK(differs.has_value() == !one.part.empty());
    if (differs)
      CHECK(differs->reason ==
            "it was started in another folder, and " + one.part + " is relative to it: give whole paths");
    server.workdir = "/home/one";  // Of the job file: where the interpreter starts.
    CHECK_FALSE(mismatch(held, with_server(wanted, server)));
  }
}

TEST_CASE("warm setting: another interpreter is not even near") {
  keeper::StartForkServer server = python_server();
  SECTION("another program") {
    server.argv.front() = "/venv/bin/python3";
    server.job["command"] = {"/venv/bin/python3", "-u", "train.py"};
  }
  SECTION("another option") {
    server.argv = {"/usr/bin/python3", "server.py", "train.py"};
    server.job["command"] = {"/usr/bin/python3", "train.py"};
  }
  const auto differs = mismatch(setting(), with_server(setting(), server));
  REQUIRE(differs);
  CHECK_FALSE(differs->is_near);
  Setting broken = setting();
  broken.server = "nothing";
  CHECK(mismatch(setting(), broken));
}

}  // namespace sgd::warm
