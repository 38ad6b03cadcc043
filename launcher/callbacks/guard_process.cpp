#include "launcher/callbacks/guard_process.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include <fmt/format.h>

#include "launcher/callbacks/fresh_file.hpp"
#include "launcher/process/close_on_exec.hpp"
#include "launcher/process/process_tree.hpp"
#include "launcher/process/spawn.hpp"

namespace sgd::callbacks {
namespace {

/// Away from the terminal and deaf to its signals: what ends a run is the launcher's decision.
void stand_apart() {
  (void)::setsid();  // Ignoring: refused where we lead a session or a group already, which is as good.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGTTOU, SIGTTIN, SIGTSTP})
    (void)::signal(signal, SIG_IGN);
  (void)::signal(SIGCHLD, SIG_DFL);  // Ignored, it would make the kernel reap our children.
  (void)::prctl(PR_SET_PDEATHSIG, 0);
}

}  // namespace

bool is_started_by_launcher() {
  int type = 0;
  socklen_t size = sizeof type;
  return ::getsockopt(process::kControlFd, SOL_SOCKET, SO_TYPE, &type, &size) == 0;
}

std::optional<GuardFiles> enter_guard(const std::string& run_dir) {
  if (!process::close_on_exec_from(process::kControlFd)) return std::nullopt;
  stand_apart();
  if (!process::become_subreaper()) return std::nullopt;
  const int folder = ::open(run_dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return std::nullopt;
  GuardFiles files;
  // The folder's descriptor in place of its name, and its name for people.
  files.run_dir = fmt::format("/proc/self/fd/{}", folder);
  std::error_code error;
  files.shown = std::filesystem::read_symlink(files.run_dir, error).string();
  if (error) files.shown = run_dir;
  if (!make_folder(files.run_dir + "/callbacks")) return std::nullopt;
  return files;
}

}  // namespace sgd::callbacks
