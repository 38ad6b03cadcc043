#include "launcher/cli/first_node.hpp"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/json/lenient.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/process/clock.hpp"

namespace sgd::cli {
namespace {

constexpr Duration kLingerLimit = std::chrono::seconds(5);

/// With their slots.
std::map<std::string, int> connected(const nlohmann::ordered_json& answer) {
  std::map<std::string, int> nodes;
  for (const auto& node : member(answer, "nodes"))
    if (read_or(node, "state", "") == "connected") nodes[read_or(node, "node", "")] = read_or(node, "slots", 0);
  return nodes;
}

}  // namespace

std::string uneven_nodes(const std::map<std::string, int>& slots, int here, bool is_elastic) {
  constexpr std::size_t kNamesBytes = 200;
  std::string others;
  for (const auto& [node, count] : slots)
    if (count > here || (count < here && !is_elastic)) {
      if (others.size() > kNamesBytes) {
        others += ", ...";
        break;
      }
      others += fmt::format("{}{} has {}", others.empty() ? "" : ", ", node, count);
    }
  if (others.empty()) return {};
  return fmt::format(
      "the launchers were given different numbers of workers: this node has {}, {}. Give all of them the "
      "same --nproc-per-node (-n)",
      here, others);
}

FirstNode::Gathered FirstNode::end(int exit_code) {
  exit_code_ = exit_code;
  return Gathered::kEnded;
}

FirstNode::Gathered FirstNode::gather() {
  ClusterLine line = launcher_.line();
  for (;;) {
    if (const auto signal = line.take_signal()) {
      if (!is_user_signal(*signal)) return end(exit_code::kSignalBase + *signal);
      launcher_.print_not_passed(*signal, "the run has not started");
    }
    if (const auto refusal = launcher_.children().refusal()) {
      if (gives_way(refusal->words)) return Gathered::kIsAnother;
      return end(refuse(exit_code::kFailed, refusal->words));
    }
    // Until ours listens, it may be another launcher's coordinator that answers.
    is_serving_ = is_serving_ || launcher_.children().has_said("coordinator", "listening on");
    if (is_serving_)
      if (const auto gathered = look_for_nodes(line)) return *gathered;
    line.wait(NodeLauncher::kLook);
  }
}

/// Where nobody has said who is first, it is the launcher that has the port; this one is another, then.
bool FirstNode::gives_way(const std::string& why) const {
  return !launcher_.plan().rank && why.find(std::strerror(EADDRINUSE)) != std::string::npos;
}

std::optional<FirstNode::Gathered> FirstNode::look_for_nodes(ClusterLine& line) {
  const rendezvous::NodesPlan& plan = launcher_.plan();
  const auto answer = line.ask({{"request", "nodes"}}, NodeLauncher::kDialLimit);
  const std::map<std::string, int> there = answer ? connected(answer.value()) : std::map<std::string, int>();
  const int count = static_cast<int>(there.size());
  if (there.contains(launcher_.node())) launcher_.children().settled();
  if (const std::string why = uneven_nodes(there, launcher_.workers_here(), plan.least < plan.most); !why.empty())
    return end(refuse(exit_code::kUsage, why));
  if (count >= plan.most) return Gathered::kEnough;
  const TimePoint now = process::monotonic_now();
  if (count >= plan.least) {
    if (!last_call_) last_call_ = now + plan.last_call;
    if (now >= *last_call_) return Gathered::kEnough;
    launcher_.print_waiting(fmt::format("{} of at most {} nodes are here, enough to begin; more may come within {}",
                                        count, plan.most, format_duration(plan.last_call)),
                            "");
    return std::nullopt;
  }
  last_call_.reset();
  const Duration waited = launcher_.waited();
  if (waited < NodeLauncher::kQuiet) return std::nullopt;  // They are on their way.
  const std::string unreached = answer ? ""
                                       : fmt::format("; node 0 does not reach it itself ({}): is this machine {}?",
                                                     answer.error().message, plan.head.host);
  if (waited >= plan.join_limit)
    return end(refuse(exit_code::kNotPlaced,
                      fmt::format("{} of {} nodes came to {} within {}{}{}", count, plan.least, to_text(plan.head),
                                  format_duration(plan.join_limit), missing(there), unreached)));
  launcher_.print_waiting(fmt::format("{} of {} nodes are at {}, waiting for {} more{}", count, plan.least,
                                      to_text(plan.head), plan.least - count, missing(there)),
                          launcher_.so_far() + unreached + refused_twin());
  return std::nullopt;
}

std::string FirstNode::missing(const std::map<std::string, int>& there) const {
  const rendezvous::NodesPlan& plan = launcher_.plan();
  std::string names;
  for (int rank = 0; plan.rank && rank < plan.most && names.size() < 200; ++rank)
    if (!there.contains(rendezvous::node_name(rank, rank == 0, "", 0, 0)))
      names += fmt::format("{}{}", names.empty() ? ": node " : ", ", rank);
  return names;
}

/// What the coordinator says of a machine that has another one's rank; empty: there is none.
std::string FirstNode::refused_twin() {
  const std::string words = launcher_.children().last_words("coordinator");
  const bool is_twin = words.find(": refused: an agent with the name") != std::string::npos;
  return is_twin ? fmt::format("; two launchers have one --node-rank: {}", words) : std::string();
}

void FirstNode::linger() {
  ClusterLine line = launcher_.line();
  const TimePoint deadline = process::monotonic_now() + kLingerLimit;
  while (process::monotonic_now() < deadline) {
    if (const auto signal = line.take_signal(); signal && !is_user_signal(*signal)) return;
    const auto answer = line.ask({{"request", "nodes"}}, NodeLauncher::kDialLimit);
    std::map<std::string, int> there = answer ? connected(answer.value()) : std::map<std::string, int>();
    there.erase(launcher_.node());
    if (answer.ok() && there.empty()) return;
    line.wait(NodeLauncher::kLook);
  }
}

}  // namespace sgd::cli
