// `sgd-launch revoke SERIAL|NAME`: somebody is no longer let in, and loses the connections that stand.

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

struct WantedRevocation {
  std::string state_dir = coordinator_state_dir();
  std::string who;
  bool may_be_unknown = false;
};

/// Who it is now, whose name or serial is given; null: nobody knows.
const net::PeerIdentity* holder_in(const net::IssuedLog& issued, const std::string& who) {
  if (is_serial(who)) return issued.holder_of(who);
  const net::PeerIdentity* agent = issued.holder(net::Role::kAgent, who);
  return agent != nullptr ? agent : issued.holder(net::Role::kClient, who);
}

Status shut_out(const WantedRevocation& wanted, const net::IssuedLog& issued, const net::PeerIdentity* holder) {
  const bool by_serial = is_serial(wanted.who);
  const std::string folder = net::coordinator_identity_folder(wanted.state_dir);
  auto list = net::RevokedList::load(folder);
  if (!list) return list.error();
  const std::int64_t now_s = net::unix_now_s();
  auto about = nlohmann::ordered_json::object();
  about[by_serial ? "serial" : "name"] = wanted.who;
  if (holder != nullptr) about["role"] = net::role_name(holder->role);
  if (const Status noted = note_action(wanted.state_dir, "revoke", about); !noted) return noted;
  const Status added =
      by_serial ? list.value().add({wanted.who, "", now_s}) : net::revoke_name(list.value(), issued, wanted.who, now_s);
  if (!added) return added;
  if (const Status saved = list.value().save(folder, now_s); !saved) return saved;
  const Status closed = by_serial ? Status{} : remove_open_tokens(wanted.state_dir, wanted.who);
  if (closed) return {};
  return Error{fmt::format("{} is revoked, but join tokens for the name are still open: {}", wanted.who,
                           closed.error().message)};
}

/// The exit code; what is wrong is said.
int revoke(const WantedRevocation& wanted) {
  const std::string &state_dir = wanted.state_dir, &who = wanted.who;
  if (const Status acting = net::act_as_owner_of(state_dir); !acting)
    return refuse(exit_code::kFailed, acting.error().message);
  const auto lock = net::FolderLock::take(state_dir, kStateLockWaitMs);
  if (!lock) return refuse(exit_code::kFailed, lock.error().message);
  const auto issued = net::IssuedLog::load(state_dir);
  if (!issued) return refuse(exit_code::kFailed, issued.error().message);
  const bool by_serial = is_serial(who);
  const net::PeerIdentity* holder = holder_in(issued.value(), who);
  if (holder == nullptr && !wanted.may_be_unknown)
    return refuse(exit_code::kNotFound,
                  fmt::format("no certificate was issued {} {}", by_serial ? "with serial" : "to", who));
  if (holder != nullptr && holder->role == net::Role::kCoordinator)
    return refuse(exit_code::kUsage,
                  "the coordinator's own certificate cannot be revoked by itself: make a new cluster");
  if (const Status done = shut_out(wanted, issued.value(), holder); !done)
    return refuse(exit_code::kFailed, done.error().message);
  const bool is_told = by_serial && holder != nullptr;
  fmt::print("{}: revoked\n", is_told ? net::describe({holder->role, holder->name, who, false, 0, 0}) : who);
  if (is_told && holder->serial != who)
    fmt::print(stderr, "it was renewed since: `sgd-launch revoke {}` revokes all of them\n", holder->name);
  return exit_code::kSucceeded;
}

}  // namespace

int revoke_verb(const std::vector<std::string>& arguments) {
  WantedRevocation wanted;
  Diagnostics diagnostics;
  std::vector<std::string> words;
  const auto ended =
      parse_plain_verb({"revoke",
                        "SERIAL|NAME [options]",
                        "sgd-launch revoke node1",
                        {flag({"--unknown"}, "also somebody of whom issued.jsonl says nothing", wanted.may_be_unknown),
                         text_option({"--state-dir"}, "DIR", "the coordinator's folder", wanted.state_dir)},
                        1},
                       arguments, words, diagnostics);
  if (ended) return *ended;
  if (words.empty()) diagnostics.error("revoke", 0, 0, "name somebody, or a certificate by its serial");
  print(diagnostics);
  if (diagnostics.has_errors()) return exit_code::kUsage;
  wanted.state_dir = absolute(wanted.state_dir);
  wanted.who = words.front();
  if (!is_serial(wanted.who) && !net::is_name(wanted.who))
    return refuse(exit_code::kNotFound, fmt::format("\"{}\" is neither a name nor a serial", wanted.who));
  return revoke(wanted);
}

}  // namespace sgd::cli
