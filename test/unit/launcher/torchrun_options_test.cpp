// torchrun's options and variables: each sets something, or is refused, or says what happens instead.

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <tuple>

#include <catch2/catch.hpp>

#include "keeper_test_support.hpp"
#include "launcher/cli/run_options.hpp"
#include "launcher/cli/torchrun_options.hpp"
#include "launcher/cli/verb_table.hpp"

using namespace sgd;

namespace {

using Words = std::vector<std::string>;

struct Parsed {
  cli::RunOptions options;
  Words sets;
  Words said;  ///< Errors and warnings.
};

/// In a folder with the scripts train.py and train.
Parsed parse(const Words& words) {
  const keeper_test::TemporaryDir dir;
  const auto before = std::filesystem::current_path();
  for (const char* name : {"train.py", "train"}) std::ofstream(dir.file(name)) << "\n";
  std::filesystem::current_path(dir.file(""));
  Diagnostics diagnostics;
  Parsed parsed;
  parsed.options = cli::parse_run_options(words, diagnostics);
  std::filesystem::current_path(before);
  for (const auto& set : parsed.options.overrides.sets) parsed.sets.push_back(set.path + "=" + set.value);
  for (const Diagnostic& item : diagnostics.items) parsed.said.push_back(item.text());
  return parsed;
}

/// A variable of the environment while this lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

}  // namespace

TEST_CASE("torchrun: a line works as it is") {
  ::unsetenv("VIRTUAL_ENV");
  CHECK(parse({"--nproc_per_node=2", "--nnodes", "1", "--standalone", "--max-restarts", "3", "--tee", "3", "train.py",
               "--lr", "1"})
            .options.command == Words{"python3", "-u", "train.py", "--lr", "1"});
  CHECK(parse({"--nproc-per-node", "2", "-m", "pkg.train", "-x"}).options.command ==
        Words{"python3", "-u", "-m", "pkg.train", "-x"});
  CHECK(parse({"--no-python", "./prog", "-x"}).options.command == Words{"./prog", "-x"});
  CHECK(parse({"--run-path", "--no-python", "train.py"}).options.command == Words{"python3", "-u", "train.py"});
  CHECK(parse({"-ppn", "2", "train", "--nnodes", "7"}).options.command ==
        Words{"python3", "-u", "train", "--nnodes", "7"});
  const keeper_test::TemporaryDir environment;
  const std::string own = environment.file("bin/python3");
  const std::string root = std::filesystem::path(own).parent_path().parent_path();
  {
    const Variable active("VIRTUAL_ENV", root.c_str());
    CHECK(parse({"train.py"}).options.command == Words{"python3", "-u", "train.py"});  // It has none.
    std::filesystem::create_directory(environment.file("bin"));
    std::ofstream(own) << "\n";
    CHECK(parse({"train.py"}).options.command == Words{own, "-u", "train.py"});
    CHECK(parse({"-m", "pkg"}).options.command == Words{own, "-u", "-m", "pkg"});
    const Variable python("PYTHON_EXEC", "/opt/python");
    CHECK(parse({"train.py"}).options.command == Words{"/opt/python", "-u", "train.py"});
  }
}

TEST_CASE("torchrun: what each option sets") {
  struct Row {
    Words options;
    Words sets;
  };
  const Row rows[] = {
      {{"--nproc-per-node", "3"}, {"num_workers=3"}},
      {{"--max_restarts", "2"}, {"recovery.max_failures=2"}},
      {{"--role", "trainer"}, {R"(process.role="trainer")"}},
      {{"--rdzv-id", "7"}, {R"(process.rendezvous_id="7")"}},
      {{"--log-dir", "l"}, {R"(process.log_dir="l")"}},
      {{"-r", "3"}, {R"(process.redirects="3")"}},
      {{"--redirects", "0:3"}, {R"(process.redirects="0:3")"}},
      {{"--tee=0:3,1:2"}, {R"(process.tee="0:3,1:2")"}},
      {{"-t", "3"}, {R"(process.tee="3")"}},
      {{"--cpu-bind", "none"}, {"process.cpu_bind=none"}},
      {{"--prefix", "[${rank}]"}, {R"(process.prefix="[${rank}]")"}},
      {{"--preload", "none"}, {"process.preload=none"}},
      {{"--preload", "auto"}, {"process.preload=auto"}},
      {{"--rdzv-conf", ""}, {}},
      {{"--local-ranks-filter", "0,2"}, {"process.local_ranks_shown=[0,2]"}},
      {{"--local-ranks-filter="}, {}},
      {{"--duplicate-stdout-filters", "a,b,,c"}, {R"(process.stdout_filters=["a","b,c"])"}},
      {{"--duplicate-stderr-filters", "e"}, {R"(process.stderr_filters=["e"])"}},
      {{"--log-line-prefix-template", "[${rank}]"}, {R"(process.prefix="[${rank}]")"}},
      {{"--signals-to-handle", "SIGTERM,SIGUSR1"}, {R"(process.signals=["SIGTERM","SIGUSR1"])"}},
      {{"--shutdown-timeout", "30"}, {"process.shutdown_timeout=30s"}},
      {{"--virtual-local-rank"}, {"process.virtual_local_rank=true"}},
      {{"--numa-binding", "node"}, {"process.cpu_bind=numa"}},
      {{"--numa-binding", "exclusive"}, {"process.cpu_bind=cores"}},
      {{"--master-addr", "::1", "--master-port", "29500"},
       {R"(process.master_addr="::1")", "process.master_port=29500"}},
      {{"--master-port", "0"}, {}},
      {{"--rdzv-endpoint", "h:29400"}, {R"(process.master_addr="h")", "process.master_port=29400"}},
      {{"--rdzv-endpoint", "[::1]"}, {R"(process.master_addr="[::1]")"}},
      {{"--rdzv-endpoint", "h:29400", "--rdzv-backend", "c10d"}, {}},
      {{"--rdzv-endpoint", "h:29400", "--standalone"}, {}},
      {{"--preload", "torch,numpy"}, {R"(process.preload=["torch","numpy"])"}},
      {{"--backend", "sgd"}, {"process.backend=sgd"}},
      {{"--start-method", "fork", "--node-rank", "0", "--use-env", "--event-log-handler", "null"}, {}},
  };
  for (const Row& row : rows) {
    INFO(row.options.front());
    Words words = row.options;
    words.emplace_back("train.py");
    const Parsed parsed = parse(words);
    CHECK(parsed.sets == row.sets);
    CHECK(parsed.said == Words());
  }
}

TEST_CASE("torchrun: what is said, and what is refused") {
  struct Row {
    Words words;
    const char* said;
  };
  const Row rows[] = {
      {{"--rdzv-backend", "etcd", "train.py"}, "--rdzv-backend: warning: etcd is not used"},
      {{"--rdzv-conf", "timeout=1", "train.py"}, "--rdzv-conf: warning: not used"},
      {{"--monitor-interval", "1", "train.py"}, "--monitor-interval: warning: not used"},
      {{"--event-log-handler", "console", "train.py"}, "--event-log-handler: warning: not used"},
      {{"--local-addr", "10.0.0.1", "train.py"}, "--local-addr: warning: not used"},
      {{"--nnodes", "1:4", "train.py"}, "--nnodes: warning: no other node can join"},
      {{"--nnodes", "2", "train.py"}, "--nnodes: error: 2 nodes have to know where they meet"},
      {{"--nnodes", "3:2", "train.py"}, "--nnodes: error: expected a number of nodes"},
      {{"--node-rank", "1", "train.py"}, "--node-rank: error: node 1 of one node"},
      {{"--logs-specs", "x", "train.py"}, "--logs-specs: error: names a Python class"},
      {{"--start-method", "thread", "train.py"}, "--start-method: error: expected spawn"},
      {{"--numa-binding", "socket", "train.py"}, "--numa-binding: error: \"socket\" is not supported"},
      {{"--no-python", "-m", "x"}, "--no-python: error: and --module exclude each other"},
      {{"--nproc-per-node", "xpu", "train.py"}, "--num-workers: error: there is no way to count XPUs"},
      {{"--rdzv-endpoint", "h:port", "train.py"}, "--rdzv-endpoint: error: expected HOST:PORT"},
      {{"--role", "\xff", "train.py"}, "--role: error: expected UTF-8, got \"\xff\""},
      {{"--rdzv-id", "\xff", "train.py"}, "--rdzv-id: error: expected UTF-8"},
      {{"--master-addr", "\xff", "train.py"}, "--master-addr: error: expected UTF-8"},
      {{"--rdzv-endpoint", "\xff", "train.py"}, "--rdzv-endpoint: error: expected UTF-8"},
      {{"--signals-to-handle", "SIGTERM,\xff", "train.py"}, "--signals-to-handle: error: expected UTF-8"},
      {{"--preload", "\xff", "train.py"}, "--preload: error: expected UTF-8"},
      {{"nowhere.py"}, "sgd-launch: error: there is no script \"nowhere.py\" here"},
      {{"trian.py"}, "sgd-launch: error: there is no script \"trian.py\" here; did you mean train.py?"},
  };
  for (const Row& row : rows) {
    INFO(row.said);
    const Parsed parsed = parse(row.words);
    REQUIRE(parsed.said.size() == 1);
    CHECK_THAT(parsed.said.front(), Catch::StartsWith(row.said));
  }
}

TEST_CASE("torchrun: its variables are read for scripts, and the command line wins") {
  const Variable workers("PET_NPROC_PER_NODE", "3");
  const Variable role("PET_ROLE", "r");
  const Variable standalone("PET_STANDALONE", "1");
  const Variable module("PET_MODULE", "0");
  CHECK(parse({"train.py"}).sets == Words{"num_workers=3", R"(process.role="r")"});
  CHECK(parse({"train.py"}).options.nodes.is_standalone);
  CHECK_FALSE(parse({"train.py"}).options.is_module);
  CHECK(parse({"-n", "2", "--role", "s", "train.py"}).sets == Words{"num_workers=2", R"(process.role="s")"});
  CHECK(parse({"a.json"}).sets.empty());
}

TEST_CASE("torchrun: a variable that is not UTF-8 is named") {
  for (const char* name : {"PET_ROLE", "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"}) {
    const Variable variable(name, "\xff");
    CHECK(parse({"train.py"}).said == Words{std::string(name) + ": error: expected UTF-8, got \"\xff\""});
  }
}

TEST_CASE("torchrun: each variable does what its option does") {
  struct Row {
    const char* name;
    const char* value;
    Words option;
  };
  const Row rows[] = {
      {"PET_NNODES", "2", {"--nnodes", "2"}},
      {"PET_NPROC_PER_NODE", "3", {"--nproc-per-node", "3"}},
      {"PET_NODE_RANK", "1", {"--node-rank", "1"}},
      {"PET_MASTER_ADDR", "h", {"--master-addr", "h"}},
      {"PET_MASTER_PORT", "29500", {"--master-port", "29500"}},
      {"PET_LOCAL_ADDR", "10.0.0.1", {"--local-addr", "10.0.0.1"}},
      {"PET_RDZV_BACKEND", "etcd", {"--rdzv-backend", "etcd"}},
      {"PET_RDZV_ENDPOINT", "h:29400", {"--rdzv-endpoint", "h:29400"}},
      {"PET_RDZV_ID", "7", {"--rdzv-id", "7"}},
      {"PET_RDZV_CONF", "join_timeout=5", {"--rdzv-conf", "join_timeout=5"}},
      {"PET_STANDALONE", "1", {"--standalone"}},
      {"PET_MAX_RESTARTS", "2", {"--max-restarts", "2"}},
      {"PET_MONITOR_INTERVAL", "5", {"--monitor-interval", "5"}},
      {"PET_START_METHOD", "thread", {"--start-method", "thread"}},
      {"PET_EVENT_LOG_HANDLER", "console", {"--event-log-handler", "console"}},
      {"PET_ROLE", "trainer", {"--role", "trainer"}},
      {"PET_MODULE", "1", {"--module"}},
      {"PET_NO_PYTHON", "1", {"--no-python"}},
      {"PET_RUN_PATH", "1", {"--run-path"}},
      {"PET_LOG_DIR", "l", {"--log-dir", "l"}},
      {"PET_REDIRECTS", "0:3,1:2", {"--redirects", "0:3,1:2"}},
      {"PET_TEE", "3", {"--tee", "3"}},
      {"PET_LOCAL_RANKS_FILTER", "0,2", {"--local-ranks-filter", "0,2"}},
      {"PET_DUPLICATE_STDOUT_FILTERS", "a,b", {"--duplicate-stdout-filters", "a,b"}},
      {"PET_DUPLICATE_STDERR_FILTERS", "e", {"--duplicate-stderr-filters", "e"}},
      {"PET_LOGS_SPECS", "x", {"--logs-specs", "x"}},
      {"PET_NUMA_BINDING", "node", {"--numa-binding", "node"}},
      {"PET_SIGNALS_TO_HANDLE", "SIGTERM,SIGUSR1", {"--signals-to-handle", "SIGTERM,SIGUSR1"}},
      {"PET_SHUTDOWN_TIMEOUT", "30", {"--shutdown-timeout", "30"}},
      {"PET_VIRTUAL_LOCAL_RANK", "1", {"--virtual-local-rank"}},
  };
  ::unsetenv("VIRTUAL_ENV");
  const Parsed neither = parse({"train.py"});
  for (const Row& row : rows) {
    INFO(row.name);
    Words words = row.option;
    words.emplace_back("train.py");
    const Parsed option = parse(words);
    const Variable variable(row.name, row.value);
    const Parsed read = parse({"train.py"});
    CHECK(read.sets == option.sets);
    CHECK(read.options.command == option.options.command);
    CHECK(read.said.size() == option.said.size());
    const rendezvous::NodesWords &nodes = read.options.nodes, &by_option = option.options.nodes;
    CHECK(std::tie(nodes.nodes, nodes.rank, nodes.local_addr, nodes.endpoint, nodes.conf, nodes.is_standalone) ==
          std::tie(by_option.nodes, by_option.rank, by_option.local_addr, by_option.endpoint, by_option.conf,
                   by_option.is_standalone));
    const bool is_heard =
        read.sets != neither.sets || read.options.command != neither.options.command || read.said != neither.said ||
        nodes.nodes != neither.options.nodes.nodes || nodes.rank != neither.options.nodes.rank ||
        nodes.local_addr != neither.options.nodes.local_addr || nodes.endpoint != neither.options.nodes.endpoint ||
        nodes.conf != neither.options.nodes.conf || nodes.is_standalone != neither.options.nodes.is_standalone ||
        read.options.is_run_path != neither.options.is_run_path;
    CHECK(is_heard);
  }
}

TEST_CASE("torchrun: what is wrong with a variable is said of the variable") {
  struct Row {
    const char* name;
    const char* value;
    const char* said;
  };
  const Row rows[] = {
      {"PET_NNODES", "3:2", "PET_NNODES: error: expected a number of nodes"},
      {"PET_NODE_RANK", "1", "PET_NODE_RANK: error: node 1 of one node"},
      {"PET_NPROC_PER_NODE", "xpu", "PET_NPROC_PER_NODE: error: there is no way to count XPUs"},
      {"PET_RDZV_ENDPOINT", "h:port", "PET_RDZV_ENDPOINT: error: expected HOST:PORT"},
      {"PET_MONITOR_INTERVAL", "1", "PET_MONITOR_INTERVAL: warning: not used"},
      {"PET_START_METHOD", "thread", "PET_START_METHOD: error: expected spawn"},
      {"PET_STANDALONE", "false", "PET_STANDALONE: error: expected 0 or 1, got \"false\""},
  };
  for (const Row& row : rows) {
    INFO(row.name);
    const Variable variable(row.name, row.value);
    const Words said = parse({"train.py"}).said;
    REQUIRE(said.size() == 1);
    CHECK_THAT(said.front(), Catch::StartsWith(row.said));
  }
  // What only the check of the job finds is told of where a key was set.
  const Variable tee("PET_TEE", "9");
  const Variable place("PET_RDZV_ENDPOINT", "h:29400");
  const auto sources_of = [](const Words& words) {
    Words sources;
    for (const auto& set : parse(words).options.overrides.sets) sources.push_back(set.path + " by " + set.source);
    return sources;
  };
  CHECK(sources_of({"train.py"}) == Words{"process.master_addr by PET_RDZV_ENDPOINT",
                                          "process.master_port by PET_RDZV_ENDPOINT", "process.tee by PET_TEE"});
  CHECK(sources_of({"--tee", "3", "train.py"}).back() == "process.tee by --tee");
}

TEST_CASE("torchrun: the variables without PET_") {
  const Variable prefix("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "[${rank}] ");
  const Variable time("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7");
  CHECK(parse({"train.py"}).sets == Words{"process.shutdown_timeout=7s", R"(process.prefix="[${rank}] ")"});
  CHECK(parse({"--shutdown-timeout", "1", "train.py"}).sets.back() == "process.shutdown_timeout=1s");
  CHECK(parse({"train.py"}).said.empty());
  const Variable timer("TORCHELASTIC_ENABLE_FILE_TIMER", "1");
  const Variable port("TORCHELASTIC_HEALTH_CHECK_PORT", "5000");
  const Words said = parse({"train.py"}).said;
  REQUIRE(said.size() == 2);
  CHECK_THAT(said[0], Catch::StartsWith("TORCHELASTIC_ENABLE_FILE_TIMER: warning: not used"));
  CHECK_THAT(said[1], Catch::StartsWith("TORCHELASTIC_HEALTH_CHECK_PORT: warning: not used"));
}

TEST_CASE("torchrun: words for a number of workers") {
  const Variable none("CUDA_VISIBLE_DEVICES", "");
  const int cores = cli::workers_per_node("cpu", true).value();
  CHECK(cores >= 1);
  CHECK(cli::workers_per_node("auto", true).value() == cores);
  CHECK_FALSE(cli::workers_per_node("gpu", true).ok());
  const Variable two("CUDA_VISIBLE_DEVICES", "4,6");
  CHECK(cli::workers_per_node("auto", true).value() == 2);
  CHECK(cli::workers_per_node("gpu", true).value() == 2);
  CHECK(cli::workers_per_node("auto", false).value() == cores);
}
