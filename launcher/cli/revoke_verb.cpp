// `sgd-launch revoke SERIAL|NAME`: somebody is no longer let in, and loses the connections that stand.

#include <algorithm>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "launcher/cli/member_name.hpp"
#include "launcher/cli/plain_verb.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/state_places.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/net/cluster_state.hpp"
#include "launcher/net/identity_files.hpp"
#include "launcher/net/issued_log.hpp"
#include "launcher/net/private_files.hpp"
#include "launcher/net/token_store.hpp"
#include "launcher/net/wall_clock.hpp"

namespace sgd::cli {
namespace {

constexpr std::size_t kSerialDigits = 32;

bool is_serial(const std::string& text) {
  return text.size() == kSerialDigits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

/// Made before, they would give the name back.
Status remove_open_tokens(const std::string& state_dir, const std::string& name) {
  auto store = net::load_tokens(state_dir);
  if (!store) return store.error();
  return store.value().remove_open(name) == 0 ? Status{} : net::save_tokens(state_dir, store.value());
}

/// The exit code; what is wrong is said.
int revoke(const std::string& state_dir, const std::string& who) {
  if (const Status acting = net::act_as_owner_of(state_dir); !acting)
    return refuse(exit_code::kFailed, acting.error().message);
  const auto lock = net::FolderLock::take(state_dir, kStateLockWaitMs);
  if (!lock) return refuse(exit_code::kFailed, lock.error().message);
  const auto issued = net::IssuedLog::load(state_dir);
  if (!issued) return refuse(exit_code::kFailed, issued.error().message);
  const bool by_serial = is_serial(who);
  const net::PeerIdentity* holder = by_serial ? issued.value().holder_of(who) : nullptr;
  for (const net::Role role : {net::Role::kAgent, net::Role::kClient})
    if (!by_serial && holder == nullptr) holder = issued.value().holder(role, who);
  if (holder == nullptr)
    return refuse(exit_code::kNotFound,
                  fmt::format("no certificate was issued {} {}", by_serial ? "with serial" : "to", who));
  if (holder->role == net::Role::kCoordinator)
    return refuse(exit_code::kUsage,
                  "the coordinator's own certificate cannot be revoked by itself: make a new cluster");
  const std::string folder = net::coordinator_identity_folder(state_dir);
  auto list = net::RevokedList::load(folder);
  if (!list) return refuse(exit_code::kFailed, list.error().message);
  const std::int64_t now_s = net::unix_now_s();
  const Status noted =
      note_action(state_dir, "revoke", {{"role", net::role_name(holder->role)}, {by_serial ? "serial" : "name", who}});
  if (!noted) return refuse(exit_code::kFailed, noted.error().message);
  const Status added = list.value().add({by_serial ? who : "", by_serial ? "" : who, now_s});
  if (!added) return refuse(exit_code::kFailed, added.error().message);
  if (const Status saved = list.value().save(folder, now_s); !saved)
    return refuse(exit_code::kFailed, saved.error().message);
  if (const Status closed = by_serial ? Status{} : remove_open_tokens(state_dir, who); !closed)
    return refuse(exit_code::kFailed, closed.error().message);
  fmt::print("{}: revoked\n", by_serial ? net::describe({holder->role, holder->name, who, false, 0, 0}) : who);
  if (by_serial && holder->serial != who)
    fmt::print(stderr, "it was renewed since: `sgd-launch revoke {}` revokes all of them\n", holder->name);
  return exit_code::kSucceeded;
}

}  // namespace

int revoke_verb(const std::vector<std::string>& arguments) {
  std::string state_dir = coordinator_state_dir();
  Diagnostics diagnostics;
  std::vector<std::string> words;
  const auto ended = parse_plain_verb({"revoke",
                                       "SERIAL|NAME [options]",
                                       "sgd-launch revoke node1",
                                       {text_option({"--state-dir"}, "DIR", "the coordinator's folder", state_dir)},
                                       1},
                                      arguments, words, diagnostics);
  if (ended) return *ended;
  if (words.empty()) diagnostics.error("revoke", 0, 0, "name somebody, or a certificate by its serial");
  print(diagnostics);
  if (diagnostics.has_errors()) return exit_code::kUsage;
  return revoke(absolute(state_dir), words.front());
}

}  // namespace sgd::cli
