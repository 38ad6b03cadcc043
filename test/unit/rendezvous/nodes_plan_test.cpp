// How many machines there are, which one this is, where they meet: by torchrun's words, by Slurm, by Kubernetes.

#include "launcher/rendezvous/nodes_plan.hpp"

#include <catch2/catch.hpp>

#include "launcher/rendezvous/host_list.hpp"

using namespace sgd;
using namespace std::chrono_literals;
using rendezvous::Environment;
using rendezvous::NodesPlan;
using rendezvous::NodesWords;

namespace {

struct Planned {
  std::optional<NodesPlan> plan;
  std::string said;
};

Planned plan(const NodesWords& words, const Environment& environment = {}) {
  Diagnostics diagnostics;
  Planned planned{rendezvous::plan_nodes(words, environment, diagnostics), ""};
  for (const Diagnostic& item : diagnostics.items) planned.said += (planned.said.empty() ? "" : "\n") + item.text();
  return planned;
}

Environment slurm(const std::string& nodes, const std::string& tasks, const std::string& rank) {
  return {{"SLURM_JOB_ID", "1207"},
          {"SLURM_STEP_ID", "3"},
          {"SLURM_STEP_NUM_NODES", nodes},
          {"SLURM_STEP_NUM_TASKS", tasks},
          {"SLURM_STEP_NODELIST", "gpu[08-11]"},
          {"SLURM_NODEID", rank}};
}

}  // namespace

TEST_CASE("nodes: torchrun's static way") {
  NodesWords words;
  words.nodes = "2";
  words.rank = "1";
  words.master_addr = "head.example";
  words.master_port = "29501";
  const Planned planned = plan(words);
  REQUIRE(planned.plan);
  CHECK(planned.said.empty());
  CHECK(planned.plan->least == 2);
  CHECK(planned.plan->most == 2);
  CHECK(planned.plan->rank == 1);
  CHECK(to_text(planned.plan->head) == "head.example:29501");
  CHECK_FALSE(planned.plan->shares_home);
  words.master_port.clear();
  CHECK(plan(words).plan->head.port == 29500);
  words.rank.clear();
  CHECK_FALSE(plan(words).plan->rank);
  words.master_addr = "127.0.0.1";
  CHECK(plan(words).plan->shares_home);
}

TEST_CASE("nodes: torchrun's elastic way") {
  NodesWords words;
  words.nodes = "1:4";
  words.endpoint = "[fd00::1]:4000";
  words.id = "mine";
  words.conf = "join_timeout=7,last_call_timeout=2,read_timeout=3";
  const Planned planned = plan(words);
  REQUIRE(planned.plan);
  CHECK(planned.plan->least == 1);
  CHECK(planned.plan->most == 4);
  CHECK(planned.plan->head.host == "fd00::1");
  CHECK(planned.plan->head.port == 4000);
  CHECK(planned.plan->id == "mine");
  CHECK(planned.plan->join_limit == 7s);
  CHECK(planned.plan->last_call == 2s);
  CHECK(planned.said == "--rdzv-conf: warning: \"read_timeout\" is not used");
  words.endpoint = "fd00::1";
  CHECK(plan(words).plan->head.host == "fd00::1");
  CHECK(plan(words).plan->head.port == 29400);
  words.endpoint = "head";
  CHECK(to_text(plan(words).plan->head) == "head:29400");
}

TEST_CASE("nodes: one machine is no plan, and what cannot be meant is said") {
  struct Row {
    NodesWords words;
    Environment environment;
    std::string said;
  };
  const auto with = [](const std::string& nodes, const std::string& rank, const std::string& master = "",
                       const std::string& port = "") {
    NodesWords words;
    words.nodes = nodes;
    words.rank = rank;
    words.master_addr = master;
    words.master_port = port;
    return words;
  };
  NodesWords alone = with("2", "0", "head");
  alone.is_standalone = true;
  NodesWords bad_conf = with("2", "0", "head");
  bad_conf.conf = "join_timeout=soon";
  const Row rows[] = {
      {{}, {}, ""},
      {with("1", "0", "head"), {}, ""},
      {alone, {}, ""},
      {{}, {{"JOB_COMPLETION_INDEX", "3"}}, ""},                        // Pods that have nothing to do with each other.
      {{}, {{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NUM_NODES", "4"}}, ""},  // A batch script, and no srun.
      {{}, slurm("1", "1", "0"), ""},
      {with("two", ""), {}, "--nnodes: error: expected a number of nodes, or MIN:MAX, got \"two\""},
      {with("3:2", ""), {}, "--nnodes: error: expected a number of nodes, or MIN:MAX, got \"3:2\""},
      {with("0", ""), {}, "--nnodes: error: expected a number of nodes, or MIN:MAX, got \"0\""},
      {with("", "1"), {}, "--node-rank: error: node 1 of one node: say how many there are, --nnodes N"},
      {with("2", "0"),
       {},
       "--nnodes: error: 2 nodes have to know where they meet: --master-addr HOST, the first node's, or "
       "--rdzv-endpoint "
       "HOST:PORT"},
      {with("1:2", ""),
       {},
       "--nnodes: warning: no other node can join without --master-addr HOST, the first node's, or --rdzv-endpoint "
       "HOST:PORT"},
      {with("2", "2", "head"), {}, "--node-rank: error: expected 0 to 1, since there are 2 nodes, got \"2\""},
      {with("2", "0", "head", "0x"),
       {},
       "--master-port: error: expected a port that all machines know, 1 to 65535, got \"0x\""},
      {bad_conf, {}, "--rdzv-conf: error: expected join_timeout=SECONDS, got \"join_timeout=soon\""},
      {{},
       slurm("4", "8", "0"),
       "SLURM_STEP_NUM_TASKS: error: srun has started 8 tasks on 4 nodes, and one launcher belongs on each, which "
       "starts the "
       "workers: srun --ntasks-per-node=1, and --nproc-per-node for the workers"},
      {{}, slurm("4", "4", "4"), "SLURM_NODEID: error: expected 0 to 3, got \"4\""},
      {with("", "0"), slurm("4", "4", "2"),
       "--node-rank: error: this is node 2 of the step (SLURM_NODEID), and all meet at node 0, gpu08: leave it out, or "
       "say where they meet, --master-addr HOST"},
      {with("", "", "gpu09"), slurm("4", "8", "0"),
       "SLURM_STEP_NUM_TASKS: error: srun has started 8 tasks on 4 nodes, and one launcher belongs on each, which "
       "starts the "
       "workers: srun --ntasks-per-node=1, and --nproc-per-node for the workers"},
  };
  for (const Row& row : rows) {
    const Planned planned = plan(row.words, row.environment);
    CHECK_FALSE(planned.plan);
    CHECK(planned.said == row.said);
  }
}

TEST_CASE("nodes: Slurm says all of it, or the rest") {
  const Planned planned = plan({}, slurm("4", "4", "2"));
  REQUIRE(planned.plan);
  CHECK(planned.said.empty());
  CHECK(planned.plan->least == 4);
  CHECK(planned.plan->most == 4);
  CHECK(planned.plan->rank == 2);
  CHECK(planned.plan->head.host == "gpu08");
  CHECK(planned.plan->head.port >= 15000);
  CHECK(planned.plan->head.port < 25000);
  CHECK(planned.plan->id == "slurm-1207.3");
  CHECK(planned.plan->shares_home);
  CHECK(planned.plan->source == "Slurm");
  CHECK(plan({}, slurm("4", "4", "0")).plan->head.port == planned.plan->head.port);
  Environment federated = slurm("4", "4", "2");
  federated["SLURM_JOB_ID"] = "2147483647";
  CHECK(plan({}, federated).plan->head.port == 18060);  // 15000 + (31 times that, and 3) % 10000.
  NodesWords words;
  words.nodes = "2:4";
  CHECK(plan(words, slurm("4", "4", "2")).plan->least == 2);
  words.endpoint = "other:1234";  // Who names a place means it.
  words.rank = "3";
  CHECK(to_text(plan(words, slurm("4", "4", "2")).plan->head) == "other:1234");
  CHECK(plan(words, slurm("4", "4", "2")).plan->rank == 3);
  words.rank = "2";
  words.endpoint.clear();
  CHECK(plan(words, slurm("4", "4", "2")).plan->rank == 2);
}

TEST_CASE("nodes: a step of Slurm that meets at a place that is named is as large as Slurm says") {
  NodesWords words;
  words.endpoint = "gpu09:1234";
  const Planned planned = plan(words, slurm("4", "4", "2"));
  REQUIRE(planned.plan);
  CHECK(planned.said.empty());
  CHECK(planned.plan->least == 4);
  CHECK(planned.plan->most == 4);
  CHECK(to_text(planned.plan->head) == "gpu09:1234");
  CHECK_FALSE(planned.plan->rank);  // Node 0 of the step may be another one than the first here.
  CHECK(planned.plan->shares_home);
  words.rank = "1";
  CHECK(plan(words, slurm("4", "4", "2")).plan->rank == 1);
}

TEST_CASE("nodes: a pod of an indexed Kubernetes job knows its rank, and where its secret is") {
  NodesWords words;
  words.nodes = "3";
  words.master_addr = "train-0.train";
  const Planned planned =
      plan(words, {{"JOB_COMPLETION_INDEX", "2"}, {"SGD_RDZV_SECRET_FILE", "/etc/rendezvous/secret"}});
  REQUIRE(planned.plan);
  CHECK(planned.plan->rank == 2);
  CHECK(planned.plan->source == "Kubernetes");
  CHECK(planned.plan->secret_file == "/etc/rendezvous/secret");
  words.rank = "1";
  CHECK(plan(words, {{"JOB_COMPLETION_INDEX", "2"}}).plan->rank == 1);
}

TEST_CASE("nodes: agents are named so that ranks follow the machines' order") {
  const auto name = [](std::optional<int> rank, bool is_head, std::uint32_t chance = 0xbeef) {
    return rendezvous::node_name(rank, is_head, "host", 12, chance);
  };
  CHECK(name(7, false) == "node0007");
  CHECK(name({}, true) == "node0000");
  CHECK(name({}, false) == "other-host-12-0000beef");
  CHECK(name({}, true) < name({}, false));
  CHECK(name({}, false, 1) != name({}, false, 2));  // Two containers, each with this host name and this pid.
}

TEST_CASE("host list: Slurm's expressions") {
  using Hosts = std::vector<std::string>;
  const auto expand = [](const std::string& text) { return rendezvous::expand_host_list(text); };
  CHECK(expand("login").value() == Hosts{"login"});
  CHECK(expand("a,b-c").value() == Hosts{"a", "b-c"});
  CHECK(expand("node[08-10,12],login1").value() == Hosts{"node08", "node09", "node10", "node12", "login1"});
  CHECK(expand("r[1-2]n[1,3].x").value() == Hosts{"r1n1.x", "r1n3.x", "r2n1.x", "r2n3.x"});
  CHECK(expand("n[9-11]").value() == Hosts{"n9", "n10", "n11"});
  for (const char* text : {"", ",", "a,", "n[", "n]", "n[]", "n[a-b]", "n[3-1]", "n[1-]", "]n[1", "n[1-999999999]",
                           "n[1-99999][1-99999]", "n[1-99999999999999999999]"}) {
    INFO(text);
    CHECK_FALSE(expand(text).ok());
  }
  CHECK(expand("n[1-100000]").value().size() == rendezvous::kHostsMax);
  CHECK_FALSE(expand("n[1-100000],m").ok());
}
