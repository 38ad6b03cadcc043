#include "worker/torch/fork_server.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
#include <sys/pidfd.h>  // glibc 2.36 declares its functions without C linkage.
}

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iterator>
#include <string>
#include <utility>

#include "common/exit_codes.hpp"
#include "common/messages/fork_server.hpp"
#include "worker/link/socket.hpp"
#include "worker/torch/clock.hpp"
#include "worker/torch/device.hpp"
#include "worker/torch/error_report.hpp"
#include "worker/torch/lost_file.hpp"
#include "worker/torch/rank_process.hpp"
#include "worker/torch/warm_up.hpp"

namespace sgd::worker {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPacketBytesMax = 128 << 10;
constexpr int kForkDeadlineMs = 5000;
constexpr Duration kReparentDeadline = std::chrono::seconds(5);

int thread_count() {
  return static_cast<int>(std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator()));
}

Status reply(int control_fd, const fork_server::FromForkServer& message, int descriptor = -1) {
  return send_packet(control_fd, fork_server::encode(message), descriptor);
}

/// Reads one int from `fd` within the fork's deadline.
Result<int> read_int(int fd, const char* from_whom) {
  pollfd watched{fd, POLLIN, 0};
  int ready = 0;
  do {
    ready = ::poll(&watched, 1, kForkDeadlineMs);
  } while (ready < 0 && errno == EINTR);
  int value = 0;
  if (ready == 1 && ::read(fd, &value, sizeof value) == sizeof value) return value;
  return Error{std::string("no answer from ") + from_whom, ready == 0 ? ETIMEDOUT : EPIPE};
}

// In the rank ---------------------------------------------------------------------------------

/// Waits until the middle process is gone, and makes this process die with the keeper.
void adopt_keeper(pid_t middle_pid, pid_t keeper_pid) {
  const auto end = time_now() + kReparentDeadline;
  while (::getppid() == middle_pid) {
    if (time_now() > end) _exit(worker_exit::kEnvironment);
    ::sched_yield();
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The keeper may have died before the line above; its death is announced to nobody then.
  if (::getppid() != keeper_pid) _exit(worker_exit::kEnvironment);
}

void reset_signals() {
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  ignore_signals();
  explain_lost_files();
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

/// For the rank's stdout and stderr; -1: as they are.
struct OutputFds {
  int out = -1;
  int err = -1;
};

void set_descriptors(OutputFds output) {
  const int null_fd = ::open("/dev/null", O_RDONLY);
  ::dup2(null_fd, STDIN_FILENO);
  if (output.out >= 0) ::dup2(output.out, STDOUT_FILENO);
  if (output.err >= 0) ::dup2(output.err, STDERR_FILENO);
  ::closefrom(STDERR_FILENO + 1);  // Kernels before Linux 5.9 have no call for it, and the C library reads /proc.
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // A killed rank has lost no whole line.
}

[[noreturn]] void be_rank(const fork_server::Fork& settings, OutputFds output, pid_t middle_pid,
                          const Preloaded& preloaded) {
  adopt_keeper(middle_pid, settings.keeper_pid);
  ::setpgid(0, 0);
  reset_signals();
  set_descriptors(output);
  for (const auto& [name, value] : settings.env) ::setenv(name.c_str(), value.c_str(), 1);
  if (!settings.cpus.empty()) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    for (const int cpu : settings.cpus) CPU_SET(cpu, &allowed);
    if (::sched_setaffinity(0, sizeof allowed, &allowed) != 0)
      std::fprintf(stderr, "sgd-worker: cannot bind to the assigned cores: %s\n", std::strerror(errno));
  }
  set_intra_op_threads(settings.threads);
  _exit(run_rank(preloaded));
}

// In the server -------------------------------------------------------------------------------

/// The middle process: forks the rank, tells its pid, and lives until the server has its pidfd.
[[noreturn]] void be_middle(const fork_server::Fork& settings, OutputFds output, int to_server,
                            const Preloaded& preloaded) {
  const pid_t middle_pid = ::getpid();
  const pid_t rank_pid = ::fork();
  if (rank_pid == 0) be_rank(settings, output, middle_pid, preloaded);
  const int told = rank_pid > 0 ? static_cast<int>(rank_pid) : -errno;
  (void)!::write(to_server, &told, sizeof told);
  int released = 0;
  (void)!::read(to_server, &released, sizeof released);  // Ends with the server's end of the pair, too.
  _exit(0);
}

struct ForkedRank {
  pid_t pid = -1;
  UniqueFd pidfd;
};

Result<ForkedRank> fork_rank(const fork_server::Fork& settings, OutputFds output, const Preloaded& preloaded) {
  if (const int threads = thread_count(); threads != 1)
    return Error{"the fork server has " + std::to_string(threads) + " threads, so it cannot fork", EAGAIN};
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return system_error("cannot make a socket pair");
  const UniqueFd mine(ends[0]);
  UniqueFd middles(ends[1]);
  const pid_t middle_pid = ::fork();
  if (middle_pid < 0) return system_error("cannot fork");
  if (middle_pid == 0) {
    ::close(ends[0]);
    be_middle(settings, output, ends[1], preloaded);
  }
  middles.reset();
  Result<int> told = read_int(mine.get(), "the middle process");
  ForkedRank forked_rank;
  if (told && told.value() > 0) {
    forked_rank.pid = told.value();
    forked_rank.pidfd = UniqueFd(::pidfd_open(forked_rank.pid, 0));
  }
  const int pidfd_error = errno;
  const int release = 0;
  (void)!::write(mine.get(), &release, sizeof release);
  if (!told) ::kill(middle_pid, SIGKILL);
  while (::waitpid(middle_pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (!told) return told.error();
  if (forked_rank.pid < 0) return Error{"cannot fork: " + std::string(std::strerror(-told.value())), -told.value()};
  if (forked_rank.pidfd.get() < 0) return Error{"cannot open the rank's pidfd", pidfd_error};
  return forked_rank;
}

Status handle_prepare(int control_fd, const fork_server::Prepare& prepare, Preloaded& preloaded) {
  try {
    preloaded = warm_up(prepare.job);
  } catch (...) {
    const Failure failure = describe(std::current_exception());
    fork_server::PrepareFailed failed;
    failed.exit_code = failure.exit_code;
    failed.message = failure.message;
    return reply(control_fd, failed);
  }
  fork_server::Prepared prepared;
  prepared.threads = thread_count();
  if (has_begun_cuda()) {
    std::fputs("sgd-worker: a plug-in has started CUDA where ranks are forked: each is started by itself\n", stderr);
    prepared.threads = std::max(prepared.threads, 2);  // None is forked from a process of several.
  }
  return reply(control_fd, prepared);
}

Status handle_fork(int control_fd, const fork_server::Fork& settings, OutputFds output, const Preloaded& preloaded) {
  Result<ForkedRank> forked_rank = fork_rank(settings, output, preloaded);
  if (forked_rank) {
    fork_server::Forked forked;
    forked.generation = settings.generation;
    forked.rank = settings.rank;
    forked.pid = forked_rank.value().pid;
    return reply(control_fd, forked, forked_rank.value().pidfd.get());
  }
  fork_server::ForkFailed failed;
  failed.generation = settings.generation;
  failed.rank = settings.rank;
  failed.error = forked_rank.error().code;
  failed.message = forked_rank.error().message;
  return reply(control_fd, failed);
}

}  // namespace

int run_fork_server(int control_fd) {
  Preloaded preloaded;
  std::string packet;
  for (;;) {
    Received received = receive_packet(control_fd, packet, kPacketBytesMax);
    if (received.state == Received::State::kEnd) return worker_exit::kDone;
    Result<fork_server::ToForkServer> message = fork_server::decode_to_fork_server(packet);
    Status answered;
    if (!message) {
      std::fprintf(stderr, "sgd-worker: bad message from the keeper: %s\n", message.error().message.c_str());
      return worker_exit::kEnvironment;
    }
    if (const auto* prepare = std::get_if<fork_server::Prepare>(&message.value())) {
      answered = handle_prepare(control_fd, *prepare, preloaded);
    } else if (const auto* settings = std::get_if<fork_server::Fork>(&message.value())) {
      OutputFds output;
      if (!received.descriptors.empty())
        output = {received.descriptors[0].get(), received.descriptors[received.descriptors.size() > 1 ? 1 : 0].get()};
      answered = handle_fork(control_fd, *settings, output, preloaded);
    }
    if (!answered) return worker_exit::kDone;  // The keeper is gone; so is the need for ranks.
  }
}

}  // namespace sgd::worker
