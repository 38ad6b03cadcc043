#include "launcher/agent/run_accounts.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "launcher/agent/key_guard.hpp"

namespace sgd::agent {

void RunAccounts::note(const cluster::DesiredRun& desired) {
  const bool is_wanted = desired.want != cluster::Want::kClear && desired.want != cluster::Want::kGone;
  const auto known = accounts_.find(desired.run);
  if (!are_others() || !is_wanted || (known != accounts_.end() && known->second)) return;
  accounts_.insert_or_assign(desired.run, choose(desired.owner));
}

Result<process::Account> RunAccounts::choose(const std::string& owner) const {
  if (rule_.kind == AccountRule::Kind::kFixed) return process::find_account(rule_.name, kLookupLimit);
  if (owner.empty()) return Error{"it has no owner, and this node gives each run the account of its owner"};
  auto account = process::find_account(owner, kLookupLimit);
  if (!account) {
    return Error{
        fmt::format(
            "{}, and this node gives each run the account of its owner: create it, or start the agent with --run-as",
            account.error().message),
        account.error().code};
  }
  if (account.value().uid < kFirstPerson) {
    return Error{
        fmt::format("its owner is called \"{}\", which is an account of this node's system (uid {}): no run gets that "
                    "by its owner's name",
                    owner, account.value().uid)};
  }
  const std::string key = rule_.identity.empty()
                              ? std::string()
                              : open_key(account.value().uid, key_places(rule_.identity, account.value().home));
  if (!key.empty())
    return Error{fmt::format(
        "its owner's account {} {}, which no job may have: submit as somebody else, or keep the key elsewhere", owner,
        key)};
  return account;
}

Result<std::optional<process::Account>> RunAccounts::of(const RunId& run) const {
  if (!are_others()) return std::optional<process::Account>();
  const auto known = accounts_.find(run);
  if (known == accounts_.end()) return Error{"the run's owner is not known here"};
  if (!known->second) return known->second.error();
  return std::optional<process::Account>(known->second.value());
}

bool RunAccounts::has_user(uid_t uid) const {
  return std::any_of(accounts_.begin(), accounts_.end(),
                     [&](const auto& one) { return one.second.ok() && one.second.value().uid == uid; });
}

}  // namespace sgd::agent
