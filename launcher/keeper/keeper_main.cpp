#include "launcher/keeper/keeper_main.hpp"

#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include "launcher/keeper/keeper.hpp"
#include "launcher/keeper/spare.hpp"
#include "launcher/process/close_on_exec.hpp"
#include "launcher/process/process_tree.hpp"
#include "launcher/process/random_seed.hpp"
#include "launcher/process/spawn.hpp"

namespace sgd::keeper {
namespace {

int fail(int exit_code, const char* message) {
  (void)std::fprintf(stderr, "sgd-launch keeper: %s\n", message);
  return exit_code;
}

/// Away from the terminal and deaf to its signals: what ends a run is the agent's decision.
void leave_terminal() {
  (void)::setsid();  // Ignoring: refused where we lead a session or a group already, which is as good.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGTTOU, SIGTTIN, SIGTSTP}) {
    (void)::signal(signal, SIG_IGN);
  }
  // Killing us with the agent would leave the tree without anybody who kills it.
  (void)::prctl(PR_SET_PDEATHSIG, 0);
}

process::UniqueFd watch_child_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  (void)::signal(SIGCHLD, SIG_DFL);  // Ignored, it would make the kernel reap our children.
  if (::sigprocmask(SIG_SETMASK, &signals, nullptr) != 0) return {};
  return process::UniqueFd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
}

/// With an agent that may come back, descriptor 3 listens.
bool is_listening(int fd) {
  int listens = 0;
  socklen_t size = sizeof listens;
  return ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0;
}

/// Of a run: held here, so that it outlives every rank and keeps its pages between generations.
class Memory {
 public:
  explicit operator bool() const { return region_ && checkpoint_; }
  [[nodiscard]] std::vector<int> descriptors() const { return {region_.get(), checkpoint_.get()}; }

 private:
  process::UniqueFd region_{::memfd_create("sgd-shared-region", MFD_CLOEXEC)};
  process::UniqueFd checkpoint_{::memfd_create("sgd-memory-checkpoint", MFD_CLOEXEC)};
};

/// Nothing: descriptor 3 is no socket, or what every keeper needs cannot be had.
std::optional<process::UniqueFd> begin(process::UniqueFd& child_signals) {
  int type = 0;
  socklen_t size = sizeof type;
  if (::getsockopt(process::kControlFd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM)
    return std::nullopt;
  if (!process::close_on_exec_from(process::kControlFd)) return std::nullopt;
  leave_terminal();
  // What waits for the agent's socket is some hundred KiB at a time: fetched from the system and given back for each
  // read of a pipe, it would cost as much as what is done with it. What is larger goes back at once, and so does a
  // queue.
  (void)::mallopt(M_MMAP_THRESHOLD, static_cast<int>(2 * kConsoleRoom));
  (void)::mallopt(M_TRIM_THRESHOLD, static_cast<int>(4 * kConsoleRoom));
  process::UniqueFd control(process::kControlFd);
  child_signals = watch_child_signals();
  if (!child_signals || !process::become_subreaper()) return std::nullopt;
  return control;
}

constexpr const char* kNoBeginning =
    "descriptor 3 is no socket, or children cannot be watched; this verb is started by sgd-launch itself";

}  // namespace

int keeper_main(Duration agent_wait, Duration console_patience) {
  process::UniqueFd child_signals;
  auto begun = begin(child_signals);
  if (!begun) return fail(2, kNoBeginning);
  process::UniqueFd control = std::move(*begun);
  const Memory memory;
  if (!memory) return fail(1, "cannot create shared memory");
  if (is_listening(control.get())) {
    if (!process::set_nonblocking(control.get())) return fail(1, "cannot set up the agents' socket");
    return Keeper(AgentConnection(process::random_seed()[0] | 1), std::move(child_signals),
                  Keeper::AgentListener{std::move(control), agent_wait, memory.descriptors()})
        .run();
  }
  AgentConnection agent{std::move(control), console_patience};
  if (const Status sent = agent.send_started(Started{::getpid()}, memory.descriptors()); !sent)
    return fail(1, sent.error().message.c_str());
  return Keeper(std::move(agent), std::move(child_signals)).run();
}

int spare_keeper_main() {
  process::UniqueFd child_signals;
  auto holder = begin(child_signals);
  if (!holder) return fail(2, kNoBeginning);
  const Memory memory;
  if (!memory) return fail(1, "cannot create shared memory");
  auto adopted = Spare(std::move(*holder)).wait();
  if (!adopted) return 1;
  AgentConnection agent{std::move(adopted->agent)};
  if (const Status sent = agent.send_started(Started{::getpid()}, memory.descriptors()); !sent)
    return fail(1, sent.error().message.c_str());
  return Keeper(std::move(agent), std::move(child_signals), std::move(adopted->server)).run();
}

}  // namespace sgd::keeper
