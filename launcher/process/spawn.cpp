#include "launcher/process/spawn.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/process/v2/posix/default_launcher.hpp>
#include <boost/process/v2/process.hpp>

#include "launcher/process/close_on_exec.hpp"
#include "launcher/process/cpu_set.hpp"
#include "launcher/process/own_children.hpp"
#include "launcher/process/pidfd.hpp"

namespace sgd::process {
namespace {

namespace bp = boost::process::v2;

/// Everything the child needs, computed before the fork: nothing may be allocated after it.
struct ChildPlan {
  std::vector<std::string> strings;  ///< Owns the text behind `env`.
  std::vector<const char*> env;      ///< Null-terminated.
  const char* workdir = nullptr;     ///< Null: unchanged.
  CpuMask cpus;                      ///< Empty: unchanged.
  int input_fd = -1;
  int output_fd = -1;
  int error_fd = -1;
  bool has_terminal = false;
  int control_fd = -1;
  int cgroup_fd = -1;  ///< The cgroup.procs of its group; -1: unchanged.
  ChildGroup group = ChildGroup::kOwnGroup;
  pid_t parent = 0;
  bool dies_with_us = true;
  const Account* account = nullptr;  ///< Null: ours.
};

/// Blocks every signal around the fork, so that no handler of ours runs in the child, where
/// it would write into pipes that the parent still uses.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

bool default_signals() {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) (void)::sigaction(signal, &action, nullptr);  // KILL and STOP refuse.
  sigset_t none;
  sigemptyset(&none);
  return ::sigprocmask(SIG_SETMASK, &none, nullptr) == 0;
}

/// For good. System calls, since the library's functions tell all threads, of which the child has only one.
bool become(const Account& account) {
  if (::syscall(SYS_setgroups, account.groups.size(), account.groups.data()) != 0) return false;
  if (::syscall(SYS_setresgid, account.gid, account.gid, account.gid) != 0) return false;
  if (::syscall(SYS_setresuid, account.uid, account.uid, account.uid) != 0) return false;
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}

/// Runs in the child; async-signal-safe calls only. Leaves errno of the step that failed.
bool prepare_child(const ChildPlan& plan) {
  if (plan.group == ChildGroup::kOwnGroup && ::setpgid(0, 0) != 0) return false;
  if (plan.group == ChildGroup::kOwnSession && ::setsid() < 0) return false;
  if (plan.dies_with_us) {
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return false;
    if (::getppid() != plan.parent) ::_exit(127);  // The parent died before it could be watched.
  }
  if (!plan.cpus.empty() && ::sched_setaffinity(0, plan.cpus.bytes(), plan.cpus.data()) != 0) return false;
  if (plan.cgroup_fd >= 0 && ::write(plan.cgroup_fd, "0", 1) != 1) return false;
  if (plan.account != nullptr && !become(*plan.account)) return false;
  if (plan.workdir != nullptr && ::chdir(plan.workdir) != 0) return false;
  if (plan.account != nullptr && plan.workdir == nullptr && ::chdir(plan.account->home.c_str()) != 0 &&
      ::chdir("/") != 0)
    return false;
  // Boost's own closing of descriptors has an off-by-one and closes none: they go at exec.
  if (!close_on_exec_from(3)) return false;
  if (plan.output_fd >= 0 && (::dup2(plan.output_fd, 1) < 0 || ::dup2(plan.output_fd, 2) < 0)) return false;
  if (plan.error_fd >= 0 && ::dup2(plan.error_fd, 2) < 0) return false;
  if (::dup2(plan.input_fd, 0) < 0) return false;
  if (plan.has_terminal && ::ioctl(1, TIOCSCTTY, 0) != 0) return false;
  if (plan.control_fd == kControlFd && ::fcntl(kControlFd, F_SETFD, 0) != 0) return false;
  if (plan.control_fd >= 0 && plan.control_fd != kControlFd && ::dup2(plan.control_fd, kControlFd) < 0) return false;
  return default_signals();
}

/// Our initializer for Boost.Process: environment before the fork, everything else after it.
struct Initializer {
  ChildPlan& plan;

  template <class Launcher>
  boost::system::error_code on_setup(Launcher& launcher, const boost::filesystem::path&, const char* const*&) {
    launcher.env = plan.env.data();
    if (plan.control_fd >= 0) launcher.fd_whitelist.push_back(kControlFd);
    return {};
  }
  template <class Launcher>
  boost::system::error_code on_exec_setup(Launcher&, const boost::filesystem::path&, const char* const*&) {
    if (prepare_child(plan)) return {};
    return boost::system::error_code(errno, boost::system::system_category());
  }
  template <class Launcher>
  void on_exec_error(Launcher&, const boost::filesystem::path&, const char* const*&, const boost::system::error_code&) {
    ::_exit(127);  // The launcher's own exit() would run our exit handlers and flush our streams in the child.
  }
};

std::string variable_of(const std::map<std::string, std::string>& env, const char* name) {
  if (const auto found = env.find(name); found != env.end()) return found->second;
  const char* value = ::getenv(name);
  return value != nullptr ? value : "/usr/local/bin:/usr/bin:/bin";
}

void merge_environment(const SpawnOptions& options, ChildPlan& plan) {
  plan.strings = environment_of_child(options);
  for (const std::string& text : plan.strings) plan.env.push_back(text.c_str());
  plan.env.push_back(nullptr);
}

/// Which step failed is not in errno, so the steps before exec are looked at again.
Error explain_spawn_failure(const SpawnOptions& options, const std::string& path, int code) {
  struct stat info {};
  if (!options.workdir.empty() && (::stat(options.workdir.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) ||
                                   ::access(options.workdir.c_str(), X_OK) != 0)) {
    return {"working directory " + options.workdir + " cannot be entered: " + std::strerror(code), code};
  }
  if (code == EACCES && options.account)
    return {
        fmt::format("{} may not execute {}: for them, it or a folder above it is closed", options.account->name, path),
        code};
  if (code == EPERM && options.account && ::geteuid() != 0)
    return {fmt::format("cannot start {} as {}: this needs root, or CAP_SETUID and CAP_SETGID", path,
                        options.account->name),
            code};
  if (code == EINVAL && !options.cpus.empty()) return {"the cores given to " + path + " are not available here", code};
  if (code == EAGAIN || code == ENOMEM) {
    return {"cannot start " + path + ": no room for another process: " + std::strerror(code), code};
  }
  const bool relative = path.front() != '/' && !options.workdir.empty();
  return explain_exec_failure(relative ? options.workdir + "/" + path : path, code);
}

/// What Boost throws: its event loop, or its own pidfd, could not be made. A child that runs by then would be nobody's.
Error end_unwatched(const std::string& path, pid_t pid, const boost::system::error_code& refused) {
  if (pid <= 0) return {fmt::format("cannot start {}: {}", path, refused.message()), refused.value()};
  // Boost does not tell why it had none. Where we get one, the loop that is gone had taken the last descriptor.
  const auto watched = pidfd_open(pid);
  (void)::kill(pid, SIGKILL);  // Ignoring: it may have ended by itself.
  (void)::waitpid(pid, nullptr, 0);
  const int code = watched ? EMFILE : watched.error().code;
  return {fmt::format("cannot start {}: it cannot be watched: {}", path, std::strerror(code)), code};
}

Result<pid_t> launch(const std::string& path, const std::vector<std::string>& argv, ChildPlan& plan,
                     const SpawnOptions& options) {
  std::vector<const char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(argument.c_str());
  arguments.push_back(nullptr);
  bp::posix::default_launcher launcher;
  boost::system::error_code error;
  try {
    boost::asio::io_context context;
    // Makes the loop's own descriptors: where they come after the child's, Boost loses that when there is no room.
    const boost::asio::posix::stream_descriptor loop(context);
    SignalsBlocked blocked;
    auto process =
        launcher(context.get_executor(), error, boost::filesystem::path(path), arguments.data(), Initializer{plan});
    // tidy: allow detach: the caller owns the child by its pidfd; this object's destructor would kill it.
    (void)process.detach();
  } catch (const boost::system::system_error& refused) {
    return end_unwatched(path, launcher.pid, refused.code());
  }
  if (!error) return static_cast<pid_t>(launcher.pid);
  if (launcher.pid > 0) (void)::waitpid(launcher.pid, nullptr, 0);  // The launcher leaves a failed child as a zombie.
  return explain_spawn_failure(options, path, error.value());
}

}  // namespace

std::vector<std::string> environment_of_child(const SpawnOptions& options) {
  std::vector<std::string> base;
  if (options.account) {
    base = environment_of(*options.account, environ);
  } else if (!options.inherits_environment) {
    base = basic_environment(environ);
  } else {
    for (char** entry = environ; *entry != nullptr; ++entry) base.emplace_back(*entry);
  }
  std::map<std::string, std::string> added = options.env_defaults;
  const auto name_of = [](const std::string& entry) { return entry.substr(0, entry.find('=')); };
  for (const std::string& entry : base) added.erase(name_of(entry));
  for (const auto& [name, value] : options.env) added[name] = value;
  for (const auto& [name, folder] : options.env_appended) {
    if (!added.contains(name)) {
      const auto there = std::find_if(base.begin(), base.end(), [&](const auto& one) { return name_of(one) == name; });
      added[name] = there == base.end() ? "" : there->substr(name.size() + 1);
    }
    std::string& path = added[name];
    path += (path.empty() ? "" : ":") + folder;
  }
  std::vector<std::string> entries;
  for (std::string& entry : base)
    if (!added.contains(name_of(entry))) entries.push_back(std::move(entry));
  for (const auto& [name, value] : added) entries.push_back(name + "=" + value);
  return entries;
}

Result<Child> spawn(const SpawnOptions& options) {
  if (options.argv.empty()) return Error{"no program to start", ENOENT};
  SGD_ASSERT(options.input_fd == -1 || options.input_fd > 2);
  SGD_ASSERT(options.output_fd == -1 || options.output_fd > 2);
  SGD_ASSERT(options.error_fd == -1 || options.error_fd > 2);
  SGD_ASSERT(options.control_fd == -1 || options.control_fd > 2);
  auto path = find_program(options.argv.front(), variable_of(options.env, "PATH"));
  if (!path) return path.error();
  UniqueFd null_fd(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null_fd) return system_error("cannot open /dev/null");
  // Descriptor 3 is overwritten in the child, so it must not be the launcher's own error pipe.
  UniqueFd reserved;
  if (::fcntl(kControlFd, F_GETFD) == -1) {
    reserved.reset(::fcntl(null_fd.get(), F_DUPFD_CLOEXEC, kControlFd));
    if (!reserved) return system_error("cannot reserve descriptor 3");
  }
  UniqueFd cgroup;
  if (!options.cgroup.empty()) {
    cgroup.reset(::open((options.cgroup + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
    if (!cgroup) return system_error("cannot open the control group " + options.cgroup);
  }
  ChildPlan plan;
  merge_environment(options, plan);
  plan.cgroup_fd = cgroup.get();
  plan.workdir = options.workdir.empty() ? nullptr : options.workdir.c_str();
  plan.cpus = CpuMask(options.cpus);
  plan.output_fd = options.output_fd;
  plan.error_fd = options.error_fd;
  plan.has_terminal = options.has_terminal;
  plan.control_fd = options.control_fd;
  plan.input_fd = options.input_fd >= 0 ? options.input_fd : null_fd.get();
  plan.group = options.has_terminal ? ChildGroup::kOwnSession : options.group;
  plan.parent = ::getpid();
  plan.dies_with_us = options.dies_with_us && !options.account;
  plan.account = options.account ? &*options.account : nullptr;
  auto pid = launch(path.value(), options.argv, plan, options);
  if (!pid) return pid.error();
  note_own_child(pid.value());
  // Its number cannot be reused before we reap it, so opening the pidfd now is safe.
  auto pidfd = pidfd_open(pid.value());
  if (!pidfd) {
    (void)::kill(pid.value(), SIGKILL);  // Ignoring: it may have ended by itself.
    (void)::waitpid(pid.value(), nullptr, 0);
    return pidfd.error();
  }
  return Child{pid.value(), std::move(pidfd).value()};
}

}  // namespace sgd::process
