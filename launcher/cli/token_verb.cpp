// `sgd-launch token create|list|revoke`: join tokens of the cluster whose coordinator has its folder on this
// machine.

#include <algorithm>
#include <cerrno>
#include <ctime>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/json/lenient.hpp"
#include "common/json/nlohmann.hpp"
#include "common/json/suggest.hpp"
#include "launcher/cli/help_text.hpp"
#include "launcher/cli/member_name.hpp"
#include "launcher/cli/plain_verb.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/state_places.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/net/certificate.hpp"
#include "launcher/net/cluster_state.hpp"
#include "launcher/net/private_files.hpp"
#include "launcher/net/token_store.hpp"
#include "launcher/net/wall_clock.hpp"

namespace sgd::cli {
namespace {

constexpr Duration kTtlMax = std::chrono::hours(24 * 7);

std::string local_time(std::int64_t unix_s) {
  const auto seconds = static_cast<std::time_t>(unix_s);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  char text[32];
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts));
}

Option state_dir_option(std::string& state_dir) {
  return text_option({"--state-dir"}, "DIR", "the coordinator's folder", state_dir);
}

struct WantedToken {
  std::string state_dir = coordinator_state_dir();
  net::Role role = net::Role::kAgent;
  std::string name;
  bool is_admin = false;
  Duration ttl = std::chrono::minutes(15);
};

/// Whoever works under another account, or on another machine, has a cluster and no use for a new one.
Error no_authority(const std::string& state_dir, const Error& why) {
  const std::string where =
      "tokens are made on the coordinator's machine, by its account (another folder: --state-dir)";
  if (why.code == ENOENT)
    return Error{
        fmt::format("no cluster's authority in {}: {}; sgd-launch init makes a new cluster", state_dir, where)};
  return why.code == EACCES ? Error{why.message + ": " + where} : why;
}

Result<net::JoinToken> create(const WantedToken& wanted) {
  if (const Status acting = net::act_as_owner_of(wanted.state_dir); !acting) return acting.error();
  const auto ca = net::CertificateAuthority::load(net::ca_folder(wanted.state_dir));
  if (!ca) return no_authority(wanted.state_dir, ca.error());
  const auto ca_key = net::public_key_digest_in(ca.value().certificate());
  if (!ca_key) return ca_key.error();
  const auto lock = net::FolderLock::take(wanted.state_dir, kStateLockWaitMs);
  if (!lock) return lock.error();
  const net::JoinToken token = net::make_join_token(ca_key.value(), wanted.role);
  const Status noted = note_action(wanted.state_dir, "token_create",
                                   {{"token", net::to_hex(token.id)},
                                    {"role", net::role_name(wanted.role)},
                                    {"name", wanted.name},
                                    {"admin", wanted.is_admin}});
  if (!noted) return noted.error();
  auto store = net::load_tokens(wanted.state_dir);
  if (!store) return store.error();
  const auto valid_s = std::chrono::duration_cast<std::chrono::seconds>(wanted.ttl).count();
  const Status added = store.value().add(token, wanted.name, wanted.is_admin, net::unix_now_s(), valid_s);
  if (!added) return added.error();
  if (const Status saved = net::save_tokens(wanted.state_dir, store.value()); !saved) return saved.error();
  return token;
}

int create_token(const std::vector<std::string>& arguments) {
  WantedToken wanted;
  Diagnostics diagnostics;
  std::vector<std::string> words;
  const Option role = {{"--role"}, "ROLE", "agent (default) or client", "", [&wanted](const std::string& text) {
                         const auto known = net::role_of(text);
                         const bool is_given = known == net::Role::kAgent || known == net::Role::kClient;
                         if (is_given) wanted.role = *known;
                         return is_given ? std::string() : fmt::format("expected agent or client, got \"{}\"", text);
                       }};
  const Option name = {{"--name"},
                       "NAME",
                       "the only name it is valid for, even if that is taken or revoked; required for a client",
                       "",
                       [&wanted](const std::string& text) {
                         wanted.name = text;
                         return net::is_name(text) ? std::string() : fmt::format("\"{}\" is no name", text);
                       }};
  const Option ttl = {
      {"--ttl"}, "TIME", "how long it is valid (default: 15m; at most a week)", "", [&wanted](const std::string& text) {
        const auto time = parse_duration(text);
        if (time) wanted.ttl = *time;
        return time && *time >= std::chrono::seconds(1) && *time <= kTtlMax
                   ? std::string()
                   : fmt::format("expected a time from 1s to 168h, got \"{}\"", text);
      }};
  const auto ended = parse_plain_verb(
      {"token create",
       "[options]",
       "sgd-launch token create --name node1 > node1.token",
       {role, name, flag({"--admin"}, "for a client: it may act on the runs of others", wanted.is_admin), ttl,
        state_dir_option(wanted.state_dir)},
       0},
      arguments, words, diagnostics);
  if (ended) return *ended;
  if (wanted.is_admin && wanted.role != net::Role::kClient) diagnostics.error("--admin", 0, 0, "is for --role client");
  if (wanted.role == net::Role::kClient && wanted.name.empty())
    diagnostics.error("--name", 0, 0,
                      "is missing: a client's token carries the name, which says whose runs and which account are its");
  print(diagnostics);
  if (diagnostics.has_errors()) return exit_code::kUsage;
  wanted.state_dir = absolute(wanted.state_dir);
  const auto token = create(wanted);
  if (!token) return refuse(exit_code::kFailed, token.error().message);
  fmt::print("{}\n", net::to_text(token.value()));
  fmt::print(stderr, "token {} for one {}{}, good for {}: sgd-launch join COORDINATOR:PORT --token-file FILE\n",
             net::to_hex(token.value().id), net::role_name(wanted.role), wanted.name.empty() ? "" : " " + wanted.name,
             format_duration(wanted.ttl));
  return exit_code::kSucceeded;
}

std::string state_of(const net::StoredToken& token, std::int64_t now_s) {
  if (token.used_s != 0) return "used by " + token.used_by;
  return token.expires_s <= now_s ? "expired" : "open";
}

int list_tokens(const std::vector<std::string>& arguments) {
  std::string state_dir = coordinator_state_dir();
  bool as_json = false;
  Diagnostics diagnostics;
  std::vector<std::string> words;
  const auto ended = parse_plain_verb({"token list",
                                       "[options]",
                                       "sgd-launch token list",
                                       {flag({"--json"}, "one JSON object", as_json), state_dir_option(state_dir)},
                                       0},
                                      arguments, words, diagnostics);
  if (ended) return *ended;
  print(diagnostics);
  if (diagnostics.has_errors()) return exit_code::kUsage;
  const auto store = net::load_tokens(absolute(state_dir));
  if (!store) return refuse(exit_code::kFailed, store.error().message);
  const std::int64_t now_s = net::unix_now_s();
  nlohmann::ordered_json all = {{"schema_version", 1}, {"tokens", nlohmann::ordered_json::array()}};
  if (!as_json) fmt::print("{:<16} {:<8} {:<20} {:<6} {:<19} state\n", "token", "role", "name", "admin", "expires");
  for (const net::StoredToken& token : store.value().tokens()) {
    if (!as_json) {
      fmt::print("{:<16} {:<8} {:<20} {:<6} {:<19} {}\n", token.id, token.role, token.name.empty() ? "-" : token.name,
                 token.is_admin ? "yes" : "no", local_time(token.expires_s), state_of(token, now_s));
      continue;
    }
    all["tokens"].push_back({{"token", token.id},
                             {"role", token.role},
                             {"name", token.name},
                             {"admin", token.is_admin},
                             {"created_s", token.created_s},
                             {"expires_s", token.expires_s},
                             {"used_s", token.used_s},
                             {"used_by", token.used_by}});
  }
  if (as_json) fmt::print("{}\n", dump_text(all, 2));
  return exit_code::kSucceeded;
}

int revoke_token(const std::vector<std::string>& arguments) {
  std::string state_dir = coordinator_state_dir();
  Diagnostics diagnostics;
  std::vector<std::string> words;
  const auto ended = parse_plain_verb(
      {"token revoke", "TOKEN [options]", "sgd-launch token revoke 52c1a80b1f3d6e77", {state_dir_option(state_dir)}, 1},
      arguments, words, diagnostics);
  if (ended) return *ended;
  if (words.empty()) diagnostics.error("token revoke", 0, 0, "name one of `sgd-launch token list`");
  print(diagnostics);
  if (diagnostics.has_errors()) return exit_code::kUsage;
  state_dir = absolute(state_dir);
  if (const Status acting = net::act_as_owner_of(state_dir); !acting)
    return refuse(exit_code::kFailed, acting.error().message);
  const auto lock = net::FolderLock::take(state_dir, kStateLockWaitMs);
  if (!lock) return refuse(exit_code::kFailed, lock.error().message);
  auto store = net::load_tokens(state_dir);
  if (!store) return refuse(exit_code::kFailed, store.error().message);
  if (!store.value().remove(words.front())) return refuse(exit_code::kNotFound, "no token " + words.front());
  if (const Status noted = note_action(state_dir, "token_revoke", {{"token", words.front()}}); !noted)
    return refuse(exit_code::kFailed, noted.error().message);
  if (const Status saved = net::save_tokens(state_dir, store.value()); !saved)
    return refuse(exit_code::kFailed, saved.error().message);
  fmt::print("{}: revoked\n", words.front());
  return exit_code::kSucceeded;
}

}  // namespace

int token_verb(const std::vector<std::string>& arguments) {
  const std::string which = arguments.empty() ? "" : arguments.front();
  const std::vector<std::string> rest(arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  if (which == "create") return create_token(rest);
  if (which == "list") return list_tokens(rest);
  if (which == "revoke") return revoke_token(rest);
  if (which == "--help" || which == "-h") {
    print_help("token",
               "Usage: sgd-launch token (create | list | revoke) [options]\n"
               "  options of each: sgd-launch token create --help, and so on\n");
    return exit_code::kSucceeded;
  }
  if (which.empty()) return refuse(exit_code::kUsage, "token: say what to do: create, list or revoke");
  const auto near = json::nearest(which, {"create", "list", "revoke"});
  return refuse(exit_code::kUsage, fmt::format("token: expected create, list or revoke, got \"{}\"{}", which,
                                               near ? fmt::format("; did you mean {}?", *near) : ""));
}

}  // namespace sgd::cli
