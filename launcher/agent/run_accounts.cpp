#include "launcher/agent/run_accounts.hpp"

#include <fmt/format.h>

#include "launcher/agent/key_guard.hpp"

namespace sgd::agent {

void RunAccounts::find(const RunId& run, OnFound on_found) {
  if (!are_others()) return on_found(std::optional<process::Account>());
  const auto known = owners_.find(run);
  const bool is_fixed = rule_.kind == AccountRule::Kind::kFixed;
  const std::string owner = known == owners_.end() ? std::string() : known->second;
  if (!is_fixed && owner.empty())
    return on_found(
        Error{"it has no owner, and this node gives each run the account of its owner: start the agent with --run-as "
              "ACCOUNT, "
              "or with --allow-root to run everybody's as root"});
  lookup_.find(is_fixed ? rule_.name : owner, kRunLookupLimit,
               [this, is_fixed, owner, on_found = std::move(on_found)](Result<process::Account> found) {
                 if (!is_fixed) found = accept(owner, std::move(found));
                 if (!found) return on_found(found.error());
                 on_found(std::optional(std::move(found).value()));
               });
}

Result<process::Account> RunAccounts::accept(const std::string& owner, Result<process::Account> found) const {
  if (!found) {
    return Error{fmt::format("{}, and this node gives each run the account of its owner: create it, or start the agent "
                             "with --run-as ACCOUNT, or with --allow-root to run everybody's as root",
                             found.error().message),
                 found.error().code};
  }
  if (found.value().uid < kFirstPerson) {
    return Error{
        fmt::format("its owner is called \"{}\", which is an account of this node's system (uid {}): no run gets that "
                    "by its owner's name. Start the agent with --run-as ACCOUNT, or with --allow-root to run "
                    "everybody's as root",
                    owner, found.value().uid)};
  }
  const std::string key = rule_.identity.empty()
                              ? std::string()
                              : open_key(found.value().uid, key_places(rule_.identity, found.value().home));
  if (!key.empty())
    return Error{fmt::format(
        "its owner's account {} {}, which no job may have: submit as somebody else, or keep the key elsewhere", owner,
        key)};
  return found;
}

}  // namespace sgd::agent
