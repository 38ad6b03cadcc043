// `sgd-launch doctor`: what this machine, and the cluster if there is one, lacks for training. Reads, asks, and changes
// nothing.

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>
#include <boost/asio/io_context.hpp>

#include "common/exit_codes.hpp"
#include "common/json/lenient.hpp"
#include "launcher/cli/cluster_client.hpp"
#include "launcher/cli/member_name.hpp"
#include "launcher/cli/plain_verb.hpp"
#include "launcher/cli/program_files.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/state_places.hpp"
#include "launcher/cli/terminal_text.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/doctor/checks.hpp"
#include "launcher/doctor/read_facts.hpp"
#include "launcher/net/certificate.hpp"
#include "launcher/net/client_link.hpp"
#include "launcher/net/cluster_state.hpp"
#include "launcher/net/identity_files.hpp"
#include "launcher/net/wall_clock.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/process/random_seed.hpp"
#include "launcher/process/runtime_dir.hpp"

namespace sgd::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr Duration kCoordinatorPatience = std::chrono::seconds(10);

/// Nothing: there is no identity in `folder`, or none that this account may see.
std::optional<doctor::Certificate> certificate_in(const std::string& folder, const std::string& whose,
                                                  const std::string& fix, bool is_renewed) {
  const auto files = net::load_identity(folder);
  if (!files && (files.error().code == ENOENT || files.error().code == EACCES)) return std::nullopt;
  doctor::Certificate found{whose, net::identity_file(folder), fix, {}, 0, 0, is_renewed};
  if (!files) {
    found.trouble = files.error().message;
    return found;
  }
  const auto identity = net::identity_in(files.value().certificate);
  if (!identity) {
    found.trouble = identity.error().message;
    return found;
  }
  found.issued_s = identity.value().issued_s;
  found.expires_s = identity.value().expires_s;
  return found;
}

std::vector<doctor::Certificate> certificates_here() {
  const std::string user = user_identity_dir();
  const std::string coordinator = coordinator_state_dir();
  const std::string agent = agent_state_dir() + "/identity";
  std::vector<doctor::Certificate> found;
  const auto add = [&found](std::optional<doctor::Certificate> one) {
    if (one) found.push_back(std::move(*one));
  };
  add(certificate_in(user, "your identity",
                     "sgd-launch token create --role client --name " + user_name() + " by an admin, rm -r " + user +
                         ", then sgd-launch join",
                     false));
  add(certificate_in(net::coordinator_identity_folder(coordinator), "the coordinator's identity",
                     "systemctl restart sgd-launch-coordinator", true));
  add(certificate_in(
      agent, "this node's identity",
      "sgd-launch token create --name " + host_name() + " by an admin, rm -r " + agent + ", then sgd-launch join",
      true));
  return found;
}

/// Who greets says its version and its clock; its nodes are asked for then.
doctor::Cluster ask_about(const net::Address& address) {
  doctor::Cluster cluster;
  cluster.address = to_text(address);
  auto tls = user_tls(address);
  if (!tls) {
    cluster.trouble = tls.error().message;
    return cluster;
  }
  boost::asio::io_context io{1};
  net::ClientLink link(io, address, core::Random(process::random_seed()), std::move(tls).value());
  const TimePoint begun = process::monotonic_now();
  bool is_done = false;
  net::ClientLink::Handlers handlers;
  handlers.on_open = [&link] { link.send({{"type", "request"}, {"id", 1}, {"request", "nodes"}}); };
  handlers.on_message = [&](const Json& message) {
    if (read_or(message, "id", 0) != 1) return;
    is_done = true;
    if (!read_or(message, "ok", false)) cluster.trouble = read_or(message, "error", "its answer is none");
    for (const Json& node : member(message, "nodes"))
      cluster.nodes.push_back({read_or(node, "node", ""), read_or(node, "version", ""), read_or(node, "state", ""),
                               read_or(node, "reason", "")});
  };
  handlers.on_chunk = [](const std::string&) {};
  handlers.on_lost = [&](const std::string& reason) {
    if (!is_done) cluster.trouble = no_coordinator(address, reason);
    is_done = true;
  };
  handlers.on_welcome = [&](const Json& welcome) {
    cluster.version = read_or(welcome, "version", "");
    cluster.round_trip_s = to_seconds(process::monotonic_now() - begun);
    const double theirs = read_or(welcome, "unix_s", 0.0);
    if (theirs > 0) cluster.clock_ahead_s = theirs - process::unix_seconds();
  };
  link.start(std::move(handlers));
  const auto deadline = std::chrono::steady_clock::now() + kCoordinatorPatience;
  while (!is_done && std::chrono::steady_clock::now() < deadline) io.run_one_until(deadline);
  if (!is_done)
    cluster.trouble = fmt::format("the coordinator at {} did not answer within {}", cluster.address,
                                  format_duration(kCoordinatorPatience));
  return cluster;
}

doctor::Facts facts_here(const std::string& runs, const std::optional<net::Address>& coordinator) {
  const char* search_path = std::getenv("PATH");
  const char* temporary = std::getenv("TMPDIR");
  doctor::FactSources sources;
  sources.folders = {{"runs", runs},
                     {"temporary files", temporary != nullptr && *temporary != '\0' ? temporary : "/tmp"},
                     {"sockets", process::runtime_place()}};
  std::error_code error;
  for (const auto& [what, path] :
       {std::pair("the coordinator", coordinator_state_dir()), {"the agent", agent_state_dir()}})
    if (std::filesystem::is_directory(path, error)) sources.folders.emplace_back(what, path);
  sources.account = user_name();
  sources.worker = worker_program();
  sources.search_path = search_path == nullptr ? "" : search_path;
  doctor::Facts facts = doctor::read_facts(sources);
  facts.version = SGD_VERSION;
  facts.certificates = certificates_here();
  if (coordinator) facts.cluster = ask_about(*coordinator);
  facts.now_s = net::unix_now_s();
  return facts;
}

}  // namespace

int doctor_verb(const std::vector<std::string>& arguments) {
  bool as_json = false;
  std::string address;
  std::string runs = "runs";
  std::vector<std::string> words;
  Diagnostics diagnostics;
  const auto ended = parse_plain_verb(
      {"doctor",
       "[options]",
       "sgd-launch doctor --address head:7070",
       {flag({"--json"}, "one JSON object", as_json),
        text_option({"--runs-dir"}, "DIR", "where runs are kept (default: runs)", runs), address_option(address)},
       0},
      arguments, words, diagnostics);
  if (ended) return *ended;
  const auto coordinator = cluster_address(address, diagnostics);
  print(diagnostics);
  if (diagnostics.has_errors()) return exit_code::kUsage;
  const std::vector<doctor::Finding> findings = doctor::check(facts_here(runs, coordinator));
  if (as_json)
    fmt::print("{}\n", dump_text(doctor::as_json(findings), 2));
  else
    fmt::print("{}", for_terminal(doctor::as_text(findings), Steering::kNone));
  return doctor::is_anything_missing(findings) ? exit_code::kFailed : exit_code::kSucceeded;
}

}  // namespace sgd::cli
