#include "launcher/core/process_rules.hpp"

#include <catch2/catch.hpp>

#include <csignal>

using namespace sgd;
using namespace std::chrono_literals;

namespace {

keeper::Spawn spawn_by(const nlohmann::json& process, int local_rank, Rank rank = 1) {
  cluster::DesiredRun run;
  run.run = "r1";
  run.restart_count = 2;
  run.job = nlohmann::json{{"command", {"true"}}, {"process", process}};
  keeper::Spawn spawn;
  spawn.rank = rank;
  spawn.error_file = "/own.json";
  core::apply_process_rules(run, local_rank, spawn);
  return spawn;
}

}  // namespace

TEST_CASE("process rules: torchrun's codes by local rank") {
  CHECK(core::stream_code("3", 7) == 3);
  CHECK(core::stream_code("0:3,12:1", 12) == 1);
  CHECK(core::stream_code("0:3,12:1", 2) == 0);
  CHECK(core::stream_code("", 0) == 0);
  struct Row {
    const char* redirects;
    const char* tee;
    bool out;
    bool err;
  };
  for (const Row& row : {Row{"0", "0", true, true}, Row{"1", "0", false, true}, Row{"3", "0", false, false},
                         Row{"3", "2", false, true}, Row{"1:3", "1:1", true, false}}) {
    const keeper::Spawn spawn = spawn_by({{"redirects", row.redirects}, {"tee", row.tee}}, 1);
    INFO(row.redirects << " " << row.tee);
    CHECK(spawn.out.is_shown == row.out);
    CHECK(spawn.err.is_shown == row.err);
    CHECK(spawn.out.path.empty());
  }
  CHECK_FALSE(spawn_by({{"local_ranks_shown", {0}}}, 1).out.is_shown);
  CHECK(spawn_by({{"local_ranks_shown", {0}}}, 0).err.is_shown);
}

TEST_CASE("process rules: files as torchrun's") {
  const keeper::Spawn spawn =
      spawn_by({{"log_dir", "/logs"}, {"rendezvous_id", "id"}, {"stdout_filters", {"loss"}}}, 1);
  CHECK(spawn.out.path == "/logs/id_r1/attempt_2/1/stdout.log");
  CHECK(spawn.err.path == "/logs/id_r1/attempt_2/1/stderr.log");
  CHECK(spawn.error_file == "/logs/id_r1/attempt_2/1/error.json");
  CHECK(spawn.out.filtered_path == "/logs/id_r1/attempt_2/filtered_stdout.log");
  CHECK(spawn.err.filtered_path.empty());
  CHECK(spawn_by({{"log_dir", "/dev/null"}}, 1).error_file == "/own.json");
}

TEST_CASE("process rules: what stands in front of a rank's lines in a file of several") {
  const auto prefix_by = [](const nlohmann::json& process) {
    cluster::DesiredRun run;
    run.job = nlohmann::json{{"command", {"true"}}, {"process", process}};
    return core::line_prefix(run, "n1", 5, 1);
  };
  CHECK(prefix_by(nlohmann::json::object()) == "[default1]:");
  CHECK(prefix_by({{"role", "trainer"}}) == "[trainer1]:");
  CHECK(prefix_by({{"prefix", "${rank}/${local_rank} ${hostname} ${role_name}${time}${stream}: "}}) ==
        "5/1 n1 default: ");
  CHECK(prefix_by({{"prefix", ""}}).empty());
}

TEST_CASE("process rules: input, terminals, signals") {
  CHECK(spawn_by({{"terminal", "rank0"}}, 0, 0).has_input);
  CHECK_FALSE(spawn_by({{"terminal", "rank0"}}, 1, 1).has_input);
  CHECK_FALSE(spawn_by({{"terminal", "none"}}, 0, 0).has_input);
  CHECK(spawn_by({{"terminal", "all"}}, 1, 1).has_terminal);
  const nlohmann::json job = {{"process", {{"signals", {"SIGINT", "SIGUSR1"}}, {"shutdown_timeout", "3s"}}}};
  CHECK(core::passes_signal(job, SIGINT));
  CHECK(core::passes_signal(job, SIGUSR1));
  CHECK_FALSE(core::passes_signal(job, SIGTERM));
  CHECK_FALSE(core::passes_signal({{"training", 1}}, SIGINT));
  CHECK(core::shutdown_timeout(job) == 3s);
  CHECK(core::shutdown_timeout({{"training", 1}}) == 0s);
}
