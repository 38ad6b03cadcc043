#include "launcher/agent/run_accounts.hpp"

#include <cerrno>

#include <fmt/format.h>

#include "launcher/agent/key_guard.hpp"

namespace sgd::agent {

void RunAccounts::find(const RunId& run, OnFound on_found) {
  const auto known = owners_.find(run);
  find_for(known == owners_.end() ? Owner{} : known->second, std::move(on_found));
}

void RunAccounts::find_for(const Owner& owner, OnFound on_found) {
  if (rule_.kind == AccountRule::Kind::kRoot && !owner.may_be_root)
    return on_found(Error{
        fmt::format("this node runs jobs as root (--allow-root), and those of root and of admins alone: {} is neither. "
                    "Start the agent with --run-as ACCOUNT, which all jobs get, or without --allow-root",
                    owner.name.empty() ? "who gives no name" : owner.name)});
  if (!are_others()) return on_found(std::optional<process::Account>());
  const bool is_fixed = rule_.kind == AccountRule::Kind::kFixed;
  if (!is_fixed && owner.name.empty())
    return on_found(
        Error{"it has no owner, and this node gives each run the account of its owner: start the agent with --run-as "
              "ACCOUNT"});
  lookup_.find(is_fixed ? rule_.name : owner.name, kRunLookupLimit,
               [this, is_fixed, name = owner.name, on_found = std::move(on_found)](Result<process::Account> found) {
                 if (!is_fixed) found = accept(name, std::move(found));
                 if (!found) return on_found(found.error());
                 on_found(std::optional(std::move(found).value()));
               });
}

Result<process::Account> RunAccounts::accept(const std::string& owner, Result<process::Account> found) const {
  if (!found && found.error().code != ENOENT) return found;
  if (!found) {
    return Error{fmt::format("{}, and this node gives each run the account of its owner: create it, or start the agent "
                             "with --run-as ACCOUNT",
                             found.error().message),
                 found.error().code};
  }
  if (found.value().uid < kFirstPerson) {
    return Error{fmt::format(
        "its owner is called \"{}\", which is an account of this node's system (uid {}): no run gets that "
        "by its owner's name. Start the agent with --run-as ACCOUNT, or with --allow-root for jobs of root and "
        "of admins",
        owner, found.value().uid)};
  }
  const std::string key = rule_.identity.empty()
                              ? std::string()
                              : open_key(found.value().uid, key_paths(rule_.identity, found.value().home));
  if (!key.empty())
    return Error{fmt::format(
        "its owner's account {} {}, which no job may have: submit as somebody else, or keep the key elsewhere", owner,
        key)};
  return found;
}

}  // namespace sgd::agent
