// `sgd-launch join HOST:PORT --token-file FILE`: this machine or this person becomes a member of a cluster.
// The token is read from a file, never from the command line, which everybody on the machine can see.

#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iostream>
#include <optional>

#include <fmt/format.h>
#include <boost/asio/io_context.hpp>

#include "common/exit_codes.hpp"
#include "launcher/cli/cluster_client.hpp"
#include "launcher/cli/member_name.hpp"
#include "launcher/cli/plain_verb.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/state_places.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/net/enrolment.hpp"
#include "launcher/net/identity_files.hpp"
#include "launcher/net/private_files.hpp"

namespace sgd::cli {
namespace {

constexpr std::size_t kTokenBytesMax = 1024;

Result<net::JoinToken> read_token(const std::string& path) {
  std::ifstream file;
  if (path != "-") {
    file.open(path);
    if (!file) return system_error("cannot open " + path);
  }
  std::istream& in = path == "-" ? std::cin : file;
  std::string text(kTokenBytesMax, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  Result<net::JoinToken> token = net::parse_join_token(text);
  if (!token) return Error{fmt::format("{}: {}", path == "-" ? "standard input" : path, token.error().message)};
  return token;
}

Result<net::PeerIdentity> enrol(const net::Address& coordinator, const net::JoinToken& token, const std::string& folder,
                                const std::string& name) {
  boost::asio::io_context io{1};
  net::Enrolment enrolment(io, coordinator, folder);
  std::optional<Result<net::PeerIdentity>> outcome;
  enrolment.join(token, name, token.role == net::Role::kAgent ? host_name() : user_name(),
                 [&outcome](const Result<net::PeerIdentity>& result) { outcome = result; });
  while (!outcome) io.run_one();  // It has its own deadline.
  return *outcome;
}

/// An agent looks for it in its own folder, and nowhere else.
const char* another_folder(net::Role role) {
  return role == net::Role::kAgent
             ? "name another folder with --identity DIR/identity, and start its agent with --state-dir DIR"
             : "name another folder with --identity DIR";
}

/// Asked before the token is sent: it is good for one answer, which must have a place.
Status check_writable(const std::string& folder) {
  if (const Status made = net::make_private_folder(folder); !made) return made;
  const std::string probe = net::identity_file(folder) + ".writable";
  if (const Status written = net::write_file(probe, "", net::Readers::kOwner); !written) return written;
  (void)::unlink(probe.c_str());  // Ignoring: it is empty.
  return {};
}

/// Where nobody answers, the reason names the coordinator itself.
std::string why_not_joined(const std::string& coordinator, const std::string& reason) {
  return reason.starts_with("cannot reach ") ? reason : fmt::format("{}: {}", coordinator, reason);
}

}  // namespace

int join_verb(const std::vector<std::string>& arguments) {
  std::string token_file;
  std::string folder;
  std::string name;
  Diagnostics diagnostics;
  std::vector<std::string> words;
  const auto ended = parse_plain_verb(
      {"join",
       "HOST:PORT --token-file FILE [options]",
       "sgd-launch join coordinator.example:7070 --token-file node1.token",
       {text_option({"--token-file"}, "FILE", "output of `sgd-launch token create`; -: standard input", token_file),
        text_option({"--identity"}, "DIR", "folder for certificate and key (default: the agent's, or yours)", folder),
        text_option({"--name"}, "NAME", "name in the cluster (default: the token's, the host's or yours)", name)},
       1},
      arguments, words, diagnostics);
  if (ended) return *ended;
  const auto coordinator = words.empty() ? std::nullopt : parse_address(words.front());
  if (!coordinator)
    diagnostics.error("join", 0, 0, "name the coordinator: sgd-launch join HOST:PORT --token-file FILE");
  if (coordinator && coordinator->is_local_socket())
    diagnostics.error("join", 0, 0, "is not needed at a Unix socket: the kernel says who comes; name HOST:PORT");
  if (token_file.empty()) diagnostics.error("--token-file", 0, 0, "is missing: a file with the token, or -");
  print(diagnostics);
  if (diagnostics.has_errors()) return exit_code::kUsage;
  const auto token = read_token(token_file);
  if (!token) return refuse(exit_code::kUsage, token.error().message);
  if (folder.empty())
    folder = token.value().role == net::Role::kAgent ? agent_state_dir() + "/identity" : user_identity_dir();
  folder = absolute(folder);
  const auto before = net::load_identity(folder);
  const bool is_free = !before && (before.error().code == ENOENT || before.error().code == ENOTDIR);
  if (!is_free)
    return refuse(exit_code::kUsage, fmt::format("{} holds an identity, which is not replaced: remove it first, or {}",
                                                 folder, another_folder(token.value().role)));
  if (const Status writable = check_writable(folder); !writable)
    return refuse(exit_code::kUsage, fmt::format("{}; the token is not used: {}", writable.error().message,
                                                 another_folder(token.value().role)));
  const auto identity = enrol(*coordinator, token.value(), folder, name);
  if (!identity) return refuse(exit_code::kUnreachable, why_not_joined(words.front(), identity.error().message));
  fmt::print("joined as {} {}: {}\n", net::role_name(identity.value().role), identity.value().name, folder);
  return exit_code::kSucceeded;
}

}  // namespace sgd::cli
