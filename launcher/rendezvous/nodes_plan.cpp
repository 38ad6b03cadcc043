#include "launcher/rendezvous/nodes_plan.hpp"

#include <cstdint>
#include <vector>

#include <fmt/format.h>

#include "launcher/rendezvous/host_list.hpp"

namespace sgd::rendezvous {
namespace {

constexpr int kSlurmPortFirst = 15000;  // Below what systems give to those who ask for any port.
constexpr int kSlurmPorts = 10000;

std::string value_of(const Environment& environment, const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? std::string() : found->second;
}

class Planner {
 public:
  Planner(const NodesWords& words, const Environment& environment, Diagnostics& diagnostics)
      : words_(words), environment_(environment), diagnostics_(diagnostics) {}

  std::optional<NodesPlan> plan() {
    if (words_.is_standalone) return alone();
    plan_.secret_file =
        words_.secret_file.empty() ? value_of(environment_, "SGD_RDZV_SECRET_FILE") : words_.secret_file;
    plan_.is_open = words_.is_open;
    plan_.id = words_.id;
    const bool is_in_step = whole_number(value_of(environment_, "SLURM_STEP_NUM_NODES")).value_or(1) > 1;
    const bool is_named = !words_.master_addr.empty() || !words_.endpoint.empty();
    if (words_.nodes.empty() && !is_in_step) return alone();
    if (!words_.nodes.empty()) take_count();
    if (failed_) return std::nullopt;
    if (is_in_step && (!is_named || words_.nodes.empty())) take_slurm_count();
    if (is_in_step && !is_named && !failed_) take_slurm();
    if (plan_.most < 2) return alone();
    if (is_named) take_place();
    take_rank();
    take_conf();
    if (plan_.head.host.empty() && !failed_) return without_a_place();
    return failed_ ? std::nullopt : std::optional(plan_);
  }

 private:
  void fail(const std::string& option, const std::string& message) {
    failed_ = true;
    diagnostics_.error(option, 0, 0, message);
  }

  /// What is said of nodes has no meaning for one.
  std::optional<NodesPlan> alone() {
    if (!words_.rank.empty() && words_.rank != "0")
      fail("--node-rank", fmt::format("node {} of one node: say how many there are, --nnodes N", words_.rank));
    const auto ignored = [this](const char* option, const char* why) {
      diagnostics_.warn(option, 0, 0, fmt::format("not used: {}", why));
    };
    if (!words_.conf.empty()) ignored("--rdzv-conf", "ranks of one machine meet at once");
    if (!words_.local_addr.empty() && words_.local_addr != "127.0.0.1" && words_.local_addr != "localhost")
      ignored("--local-addr", "the ranks of one machine meet at its loopback address, or at --master-addr");
    return std::nullopt;
  }

  void take_count() {
    const std::size_t colon = words_.nodes.find(':');
    const auto least = whole_number(words_.nodes.substr(0, colon));
    const auto most = colon == std::string::npos ? least : whole_number(words_.nodes.substr(colon + 1));
    if (!least || !most || *least < 1 || *most < *least)
      return fail("--nnodes", fmt::format("expected a number of nodes, or MIN:MAX, got \"{}\"", words_.nodes));
    plan_.least = *least;
    plan_.most = *most;
  }

  /// A step of Slurm has a launcher on each of its nodes.
  void take_slurm_count() {
    const int nodes = *whole_number(value_of(environment_, "SLURM_STEP_NUM_NODES"));
    const std::string tasks = value_of(environment_, "SLURM_STEP_NUM_TASKS");
    plan_.source = "Slurm";
    plan_.shares_home = true;
    if (!tasks.empty() && whole_number(tasks) != nodes)
      return fail(
          "SLURM_STEP_NUM_TASKS",
          fmt::format("srun has started {} tasks on {} nodes, and one launcher belongs on each, which starts the "
                      "workers: srun --ntasks-per-node=1, and --nproc-per-node for the workers",
                      tasks, nodes));
    if (words_.nodes.empty()) plan_.least = plan_.most = nodes;
  }

  /// And node 0 is where they meet.
  void take_slurm() {
    const int nodes = *whole_number(value_of(environment_, "SLURM_STEP_NUM_NODES"));
    const auto hosts = expand_host_list(value_of(environment_, "SLURM_STEP_NODELIST"));
    const auto rank = whole_number(value_of(environment_, "SLURM_NODEID"));
    if (!hosts) return fail("SLURM_STEP_NODELIST", hosts.error().message);
    if (!rank || *rank >= nodes)
      return fail("SLURM_NODEID",
                  fmt::format("expected 0 to {}, got \"{}\"", nodes - 1, value_of(environment_, "SLURM_NODEID")));
    if (!words_.rank.empty() && whole_number(words_.rank) != rank)
      return fail(
          "--node-rank",
          fmt::format("this is node {} of the step (SLURM_NODEID), and all meet at node 0, {}: leave it out, or "
                      "say where they meet, --master-addr HOST",
                      *rank, hosts.value().front()));
    const std::string job = value_of(environment_, "SLURM_JOB_ID");
    const std::string step = value_of(environment_, "SLURM_STEP_ID");
    plan_.rank = rank;
    // Numbers of federated clusters fill an int.
    const std::int64_t mix = std::int64_t{whole_number(job).value_or(0)} * 31 + whole_number(step).value_or(0);
    plan_.head = {hosts.value().front(), kSlurmPortFirst + static_cast<int>(mix % kSlurmPorts)};
    if (plan_.id.empty()) plan_.id = fmt::format("slurm-{}.{}", job, step);
  }

  void take_place() {
    const bool by_endpoint = !words_.endpoint.empty();
    const std::string& text = by_endpoint ? words_.endpoint : words_.master_addr;
    const char* option = by_endpoint ? "--rdzv-endpoint" : "--master-addr";
    plan_.head.port = by_endpoint ? NodesPlan::kDefaultRendezvousPort : NodesPlan::kDefaultPort;
    std::size_t colon = text.rfind(':');
    const bool is_bare_ipv6 = colon != std::string::npos && text.find(':') != colon && text.front() != '[';
    if (text.ends_with(']') || is_bare_ipv6) colon = std::string::npos;
    plan_.head.host = text.substr(0, colon);
    if (plan_.head.host.starts_with('[') && plan_.head.host.ends_with(']'))
      plan_.head.host = plan_.head.host.substr(1, plan_.head.host.size() - 2);
    if (plan_.head.host.empty()) return fail(option, fmt::format("expected HOST or HOST:PORT, got \"{}\"", text));
    if (colon != std::string::npos) take_port(option, text.substr(colon + 1));
    if (!words_.master_port.empty() && !by_endpoint) take_port("--master-port", words_.master_port);
    plan_.shares_home = plan_.shares_home || net::is_loopback(plan_.head);
  }

  void take_port(const char* option, const std::string& text) {
    const auto port = whole_number(text);
    if (!port || *port < 1 || *port > 65535)
      return fail(option, fmt::format("expected a port that all machines know, 1 to 65535, got \"{}\"", text));
    plan_.head.port = *port;
  }

  void take_rank() {
    std::string text = words_.rank;
    const char* source = "--node-rank";
    if (text.empty() && !plan_.rank) {
      source = "JOB_COMPLETION_INDEX";  // Of a pod of an indexed Kubernetes job.
      text = value_of(environment_, source);
      if (!text.empty()) plan_.source = "Kubernetes";
    }
    if (text.empty()) return;
    plan_.rank = whole_number(text);
    if (!plan_.rank || *plan_.rank >= plan_.most)
      fail(source,
           fmt::format("expected 0 to {}, since there are {} nodes, got \"{}\"", plan_.most - 1, plan_.most, text));
  }

  /// torchrun's "key=value,key=value", of which two have a meaning here.
  void take_conf() {
    std::size_t begin = 0;
    while (begin < words_.conf.size()) {
      const std::size_t end = std::min(words_.conf.find(',', begin), words_.conf.size());
      const std::string part = words_.conf.substr(begin, end - begin);
      begin = end + 1;
      const std::size_t equals = part.find('=');
      const std::string key = part.substr(0, equals);
      const int seconds = equals == std::string::npos ? -1 : whole_number(part.substr(equals + 1)).value_or(-1);
      if (key != "join_timeout" && key != "last_call_timeout") {
        diagnostics_.warn("--rdzv-conf", 0, 0, fmt::format("\"{}\" is not used", key));
        continue;
      }
      if (seconds < 0) {
        fail("--rdzv-conf", fmt::format("expected {}=SECONDS, got \"{}\"", key, part));
        continue;
      }
      (key == "join_timeout" ? plan_.join_limit : plan_.last_call) = std::chrono::seconds(seconds);
    }
  }

  /// One node may be enough, and then nothing needs to be known of others.
  std::optional<NodesPlan> without_a_place() {
    const char* remedy = "--master-addr HOST, the first node's, or --rdzv-endpoint HOST:PORT";
    if (plan_.least > 1)
      fail("--nnodes", fmt::format("{} nodes have to know where they meet: {}", plan_.least, remedy));
    else
      diagnostics_.warn("--nnodes", 0, 0, fmt::format("no other node can join without {}", remedy));
    return failed_ ? std::nullopt : alone();
  }

  const NodesWords& words_;
  const Environment& environment_;
  Diagnostics& diagnostics_;
  NodesPlan plan_;
  bool failed_ = false;
};

}  // namespace

std::optional<NodesPlan> plan_nodes(const NodesWords& words, const Environment& environment, Diagnostics& diagnostics) {
  return Planner(words, environment, diagnostics).plan();
}

std::string node_name(const std::optional<int>& rank, bool is_head, const std::string& host, int pid,
                      std::uint32_t chance) {
  if (rank) return fmt::format("node{:04}", *rank);
  return is_head ? "node0000" : fmt::format("other-{}-{}-{:08x}", host, pid, chance);
}

}  // namespace sgd::rendezvous
