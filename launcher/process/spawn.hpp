#pragma once
// Starts one program: what lies between fork and exec, and the words when exec fails.
//   caller --fork--> child: groups, death signal, affinity, signals, folder, descriptors --exec--> program
//      ^------------------------ errno over a close-on-exec pipe --------------------------'
// The child gets descriptors 0, 1, 2 and, if asked, 3; nothing else of ours leaks into it.
// Whoever starts it owns the pid and the pidfd and must reap it: nothing here kills or waits
// for a program that has started.

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "launcher/process/account.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::process {

/// Where the child stands towards the terminal's and our signals.
enum class ChildGroup {
  kOwnGroup,    ///< A new process group: a Ctrl-C for us does not reach it.
  kOwnSession,  ///< A new session as well, away from the terminal.
  kSame,        ///< Ours.
};

/// The descriptor number of SpawnOptions::control_fd in the child.
inline constexpr int kControlFd = 3;

struct SpawnOptions {
  std::vector<std::string> argv;           ///< The program, by path or looked up in PATH, and its arguments.
  std::map<std::string, std::string> env;  ///< Added to what it begins with.
  std::map<std::string, std::string> env_defaults = {};  ///< Added unless it is there.
  std::map<std::string, std::string> env_appended = {};  ///< Folders behind those that are there, as in PATH.
  /// It begins with our environment; else with that of a fixed list (basic_environment()).
  bool inherits_environment = true;
  std::string workdir;        ///< Empty: ours.
  std::vector<int> cpus;      ///< Affinity; empty: ours.
  std::string cgroup = {};    ///< Folder of a control group that it begins in; empty: ours.
  int input_fd = -1;          ///< Becomes stdin; -1: /dev/null.
  int output_fd = -1;         ///< Becomes stdout and stderr; -1: ours.
  int error_fd = -1;          ///< Becomes stderr in its place; -1: none.
  bool has_terminal = false;  ///< `output_fd` is a terminal, and becomes the controlling one of its own session.
  int control_fd = -1;        ///< Becomes descriptor 3; -1: none.
  ChildGroup group = ChildGroup::kOwnGroup;
  bool dies_with_us = true;  ///< SIGKILL when the calling thread ends; not with an account.
  /// Who the child is; needs CAP_SETUID and CAP_SETGID. It cannot get more rights than that (no_new_privs), begins with
  /// environment_of() in place of ours and, without a `workdir`, in its home or, where that cannot be entered, in "/".
  std::optional<Account> account;
};

struct Child {
  pid_t pid = -1;
  UniqueFd pidfd;
};

/// "NAME=value" of all that the child's environment will have.
[[nodiscard]] std::vector<std::string> environment_of_child(const SpawnOptions& options);

/// Error codes are errno of the step that failed: ENOENT missing, EACCES not executable, ENOEXEC wrong
/// architecture.
[[nodiscard]] Result<Child> spawn(const SpawnOptions& options);

/// The file that `program` names: itself when it has a slash, else the first executable one in `search_path`
/// (as PATH).
[[nodiscard]] Result<std::string> find_program(const std::string& program, const std::string& search_path);

/// Why exec of `path` failed with `code`, in words that name the file.
[[nodiscard]] Error explain_exec_failure(const std::string& path, int code);

}  // namespace sgd::process
