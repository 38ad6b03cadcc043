#pragma once
// Accounts of this machine, in whose name programs are started: looked up, and what their programs may know of us.

#include <sys/types.h>

#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/base/time.hpp"

namespace sgd::process {

struct Account {
  std::string name;
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;  ///< All of them, `gid` too.
  std::string home;
  std::string shell;
};

/// Wherever the system keeps its accounts, which may be another machine. Errors: there is no account of this name
/// (code ENOENT); no answer within `limit` (ETIMEDOUT).
[[nodiscard]] Result<Account> find_account(const std::string& name, Duration limit);

/// The same without a limit: for a thread of its own.
[[nodiscard]] Result<Account> look_up_account(const std::string& name);

/// What is said when it is not answered within `limit`.
[[nodiscard]] Error no_answer(const std::string& name, Duration limit);

/// And where nobody can be asked.
[[nodiscard]] Error not_looked_up(const std::string& name, const Error& why);

/// NAME=value of what programs of `account` begin with: who they are, and of `ours` (ends with null) what says how this
/// machine computes and speaks, such as PATH, LANG and CUDA_VISIBLE_DEVICES. Secrets of ours stay here.
[[nodiscard]] std::vector<std::string> environment_of(const Account& account, const char* const* ours);

/// The same for programs of our own account that are somebody else's all the same.
[[nodiscard]] std::vector<std::string> basic_environment(const char* const* ours);

/// Whose process `pid` is.
[[nodiscard]] Result<uid_t> user_of_process(pid_t pid);

}  // namespace sgd::process
