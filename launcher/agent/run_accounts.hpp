#pragma once
// In whose name the processes of each run are started here, and its files are made: an agent that runs as root gives
// each run the account of its owner, or all the same one.

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>

#include "common/base/result.hpp"
#include "common/messages/cluster.hpp"
#include "launcher/process/account.hpp"

namespace sgd::agent {

struct AccountRule {
  enum class Kind {
    kOwn,    ///< That of the agent.
    kOwner,  ///< The one that is called as the run's owner; never root, nor one of the system's.
    kFixed,  ///< `name`.
  };
  Kind kind = Kind::kOwn;
  std::string name = {};
  std::string identity = {};  ///< Folder of the node's key: no run gets an account that could open it. Empty: no key.
};

class RunAccounts {
 public:
  static constexpr Duration kLookupLimit = std::chrono::seconds(1);
  static constexpr uid_t kFirstPerson = 1000;  ///< Below are the accounts of services (Debian's policy, 9.2.2).

  explicit RunAccounts(AccountRule rule) : rule_(std::move(rule)) {}

  /// Looks up the account of a run of which nothing is here yet.
  void note(const cluster::DesiredRun& desired);
  void forget(const RunId& run) { accounts_.erase(run); }
  /// Nothing: the agent's own. Error: why the run has none here.
  [[nodiscard]] Result<std::optional<process::Account>> of(const RunId& run) const;
  /// Whether `uid` is that of a run that is here.
  [[nodiscard]] bool has_user(uid_t uid) const;
  /// Others than the agent have processes here.
  [[nodiscard]] bool are_others() const { return rule_.kind != AccountRule::Kind::kOwn; }

 private:
  [[nodiscard]] Result<process::Account> choose(const std::string& owner) const;

  AccountRule rule_;
  std::map<RunId, Result<process::Account>> accounts_;
};

}  // namespace sgd::agent
