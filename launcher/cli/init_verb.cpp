// `sgd-launch init`: makes a cluster's authority, the coordinator's identity, and one for the person who
// asks, as its first administrator. An existing one is kept: nothing is ever replaced.

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "launcher/cli/member_name.hpp"
#include "launcher/cli/plain_verb.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/state_places.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/net/certificate.hpp"
#include "launcher/net/cluster_state.hpp"
#include "launcher/net/identity_files.hpp"
#include "launcher/net/private_files.hpp"
#include "launcher/net/wall_clock.hpp"

namespace sgd::cli {
namespace {

constexpr const char* kUnit = "/usr/lib/systemd/system/sgd-launch-coordinator.service";

void print_item(bool is_new, const std::string& what, const std::string& where) {
  fmt::print("{} {}: {}\n", is_new ? "made" : "kept", what, where);
}

/// The authority of `state_dir`, made if there is none.
Result<net::CertificateAuthority> authority(const std::string& state_dir, bool& is_new) {
  auto ca = net::CertificateAuthority::load(net::ca_folder(state_dir));
  is_new = !ca && ca.error().code == ENOENT;
  if (!is_new) return ca;
  net::CertificateAuthority made = net::CertificateAuthority::create(net::unix_now_s());
  if (const Status saved = made.save(net::ca_folder(state_dir)); !saved) return saved.error();
  return made;
}

/// Whether `folder` has an identity of `ca`. Error: it has another one, or a damaged one.
Result<bool> has_identity(const std::string& folder, const net::CertificateAuthority& ca) {
  const auto files = net::load_identity(folder);
  if (!files && files.error().code == ENOENT) return false;
  if (!files) return files.error();
  if (files.value().ca != ca.certificate())
    return Error{
        fmt::format("{} holds an identity of another cluster, which is not replaced: move it away, or set "
                    "XDG_CONFIG_HOME",
                    folder)};
  return true;
}

/// Whether the person has no identity of `ca` in `folder`, or one whose certificate is near its end: who may make one
/// from nothing may make it anew.
Result<bool> needs_user(const std::string& folder, const net::CertificateAuthority& ca) {
  const auto has_one = has_identity(folder, ca);
  if (!has_one) return has_one.error();
  if (!has_one.value()) return true;
  const auto files = net::load_identity(folder);
  if (!files) return files.error();
  const auto identity = net::identity_in(files.value().certificate);
  return identity.ok() && net::renew_at_s(identity.value()) <= net::unix_now_s();
}

/// Errors: the identity that is there lacks some of `hosts`.
Status check_hosts(const std::string& folder, const std::vector<std::string>& hosts) {
  const auto files = net::load_identity(folder);
  if (!files) return files.error();
  const auto has = net::host_names_in(files.value().certificate);
  if (!has) return has.error();
  for (const std::string& host : hosts)
    if (std::find(has.value().begin(), has.value().end(), host) == has.value().end())
      return Error{fmt::format("the coordinator's identity is there and does not name {}: remove {} to make a new one",
                               host, net::identity_file(folder))};
  return {};
}

/// Once more by root, when a service has the folder: what is in there is its account's, what is in root's home is
/// root's.
template <typename Function>
auto as_ourselves(const std::string& state_dir, const Function& function) -> decltype(function()) {
  if (const Status own = net::act_as_ourselves(); !own) return own.error();
  auto result = function();
  if (const Status acting = net::act_as_owner_of(state_dir); !acting) return acting.error();
  return result;
}

/// `user`: where the person's identity is.
Status make_administrator(const std::string& state_dir, const net::CertificateAuthority& ca, const std::string& user) {
  const auto files = net::issue_identity(state_dir, ca, {net::Role::kClient, user_name(), true, {}}, net::unix_now_s());
  if (!files) return files.error();
  return as_ourselves(state_dir, [&] { return net::save_identity(user, files.value()); });
}

Status init(const std::string& state_dir, const std::vector<std::string>& hosts) {
  if (const Status acting = net::act_as_owner_of(state_dir); !acting) return acting;
  if (const Status made = net::make_private_folder(state_dir); !made) return made;
  const auto lock = net::FolderLock::take(state_dir, kStateLockWaitMs);
  if (!lock) return lock.error();
  bool is_new_ca = false;
  const auto ca = authority(state_dir, is_new_ca);
  if (!ca) return ca.error();
  const std::string own = net::coordinator_identity_folder(state_dir);
  const std::string user = user_identity_dir();
  const auto has_own = has_identity(own, ca.value());
  const auto is_new_user = as_ourselves(state_dir, [&] { return needs_user(user, ca.value()); });
  if (!has_own) return has_own.error();
  if (!is_new_user) return is_new_user.error();
  if (has_own.value())
    if (const Status named = check_hosts(own, hosts); !named) return named;
  print_item(is_new_ca, "the cluster's authority", net::ca_folder(state_dir));
  if (!has_own.value()) {
    std::vector<std::string> names = hosts;
    if (std::find(names.begin(), names.end(), host_name()) == names.end()) names.push_back(host_name());
    const auto made = net::make_identity(state_dir, ca.value(), {net::Role::kCoordinator, host_name(), false, names},
                                         own, net::unix_now_s());
    if (!made) return made.error();
  }
  print_item(!has_own.value(), "the coordinator's identity", own);
  if (is_new_user.value())
    if (const Status made = make_administrator(state_dir, ca.value(), user); !made) return made;
  print_item(is_new_user.value(), fmt::format("the identity of {}, an administrator", user_name()), user);
  return {};
}

}  // namespace

int init_verb(const std::vector<std::string>& arguments) {
  std::string state_dir = coordinator_state_dir();
  std::vector<std::string> hosts;
  std::vector<std::string> words;
  Diagnostics diagnostics;
  const Option names = {{"--name"},
                        "HOST",
                        "name or address of the coordinator, for other tools; may be repeated",
                        "",
                        [&hosts](const std::string& text) {
                          hosts.push_back(text);
                          return text.empty() ? std::string("expected a host") : std::string();
                        }};
  const auto ended =
      parse_plain_verb({"init",
                        "[options]",
                        "sgd-launch init --name coordinator.example",
                        {text_option({"--state-dir"}, "DIR", "the coordinator's folder", state_dir), names},
                        0},
                       arguments, words, diagnostics);
  if (ended) return *ended;
  print(diagnostics);
  if (diagnostics.has_errors()) return exit_code::kUsage;
  state_dir = absolute(state_dir);
  if (const Status made = init(state_dir, hosts); !made) return refuse(exit_code::kUsage, made.error().message);
  std::fflush(stdout);  // What was made is read in front of what comes next, in one file, too.
  if (::getuid() == 0 && ::access(kUnit, F_OK) == 0)
    fmt::print(stderr,
               "next: SGD_LISTEN=0.0.0.0:7070 in /etc/default/sgd-launch, where other machines are to reach it\n"
               "      systemctl enable --now sgd-launch-coordinator\n");
  else
    fmt::print(stderr, "next: sgd-launch coordinator --listen 0.0.0.0:7070\n");
  fmt::print(stderr,
             "      sgd-launch token create > FILE      for each node; then, on the node, with that file:\n"
             "      sgd-launch join COORDINATOR:7070 --token-file FILE\n");
  return exit_code::kSucceeded;
}

}  // namespace sgd::cli
