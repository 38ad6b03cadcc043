#pragma once
// In whose name the processes of each run are started here, and its files are made: an agent that runs as root gives
// each run the account of its owner, or all the same one.

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>

#include "common/base/result.hpp"
#include "common/messages/cluster.hpp"
#include "launcher/process/account.hpp"
#include "launcher/process/account_lookup.hpp"

namespace sgd::agent {

struct AccountRule {
  enum class Kind {
    kOwn,    ///< That of the agent.
    kRoot,   ///< That of the agent, which is root's: of runs whose owner may be root, and of no others.
    kOwner,  ///< The one that is called as the run's owner; never root, nor one of the system's.
    kFixed,  ///< `name`.
  };
  Kind kind = Kind::kOwn;
  std::string name = {};
  std::string identity = {};  ///< Folder of the node's key: no run gets an account that could open it. Empty: no key.
};

[[nodiscard]] constexpr bool gives_others(AccountRule::Kind kind) {
  return kind == AccountRule::Kind::kOwner || kind == AccountRule::Kind::kFixed;
}

class RunAccounts {
 public:
  /// Before the agent serves anybody.
  static constexpr Duration kLookupLimit = std::chrono::seconds(1);
  /// Beside the loop: only the run waits.
  static constexpr Duration kRunLookupLimit = std::chrono::seconds(10);
  static constexpr uid_t kFirstPerson = 1000;  ///< Below are the accounts of services (Debian's policy, 9.2.2).

  /// Nothing: the agent's own. Error: why the run has none here.
  using OnFound = std::function<void(Result<std::optional<process::Account>>)>;

  RunAccounts(boost::asio::io_context& io, AccountRule rule,
              process::AccountLookup::LookUp look_up = process::look_up_account)
      : rule_(std::move(rule)), lookup_(io, std::move(look_up)) {}

  /// Whose a run is, as the coordinator has found out.
  struct Owner {
    std::string name;
    bool may_be_root = false;
  };

  void note(const cluster::DesiredRun& desired) { owners_[desired.run] = {desired.owner, desired.may_be_root}; }
  void forget(const RunId& run) { owners_.erase(run); }
  /// For a run that was noted. `on_found` is called inside where nobody has to be asked.
  void find(const RunId& run, OnFound on_found);
  /// The same for a run that may be submitted.
  void find_for(const Owner& owner, OnFound on_found);
  /// Others than the agent have processes here.
  [[nodiscard]] bool are_others() const { return gives_others(rule_.kind); }

 private:
  [[nodiscard]] Result<process::Account> accept(const std::string& owner, Result<process::Account> found) const;

  AccountRule rule_;
  process::AccountLookup lookup_;
  std::map<RunId, Owner> owners_;
};

}  // namespace sgd::agent
