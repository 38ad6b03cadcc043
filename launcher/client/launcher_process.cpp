#include "launcher/client/launcher_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <sgd/trainer.hpp>

namespace sgd::client {
namespace {

/// Below are those that the child gets, also where this program runs without a standard input.
constexpr int kFirstFd = 10;
constexpr int kLifelineFd = 3;
constexpr Milliseconds kKilledLimit = std::chrono::seconds(10);

[[noreturn]] void fail(const std::string& what, int code) {
  throw LauncherLost(what + ": " + std::strerror(code));
}

OwnedFd above_standard(int fd, const char* what) {
  if (fd < 0) fail(what, errno);
  const OwnedFd given(fd);
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, kFirstFd);
  if (moved < 0) fail(what, errno);
  return OwnedFd(moved);
}

OwnedFd text_as_file(const std::string& text) {
  OwnedFd file = above_standard(::memfd_create("job", MFD_CLOEXEC), "cannot hold a job in memory");
  std::size_t written = 0;
  while (written < text.size()) {
    const ssize_t bytes = ::write(file.get(), text.data() + written, text.size() - written);
    if (bytes < 0 && errno != EINTR) fail("cannot hold a job in memory", errno);
    if (bytes > 0) written += static_cast<std::size_t>(bytes);
  }
  (void)::lseek(file.get(), 0, SEEK_SET);
  return file;
}

/// What the child begins with: descriptors 0 to 3, no signal blocked or ignored, a group of its own.
class SpawnAttributes {
 public:
  SpawnAttributes(const std::string& folder, int input, int output, int lifeline) {
    ::posix_spawn_file_actions_init(&actions_);
    if (!folder.empty()) ::posix_spawn_file_actions_addchdir_np(&actions_, folder.c_str());
    ::posix_spawn_file_actions_adddup2(&actions_, input, STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions_, output, STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions_, output, STDERR_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions_, lifeline, kLifelineFd);
    ::posix_spawn_file_actions_addclosefrom_np(&actions_, kLifelineFd + 1);
    ::posix_spawnattr_init(&attributes_);
    sigset_t signals;
    sigfillset(&signals);
    ::posix_spawnattr_setsigdefault(&attributes_, &signals);
    sigemptyset(&signals);
    ::posix_spawnattr_setsigmask(&attributes_, &signals);
    ::posix_spawnattr_setpgroup(&attributes_, 0);
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  }
  ~SpawnAttributes() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  SpawnAttributes(const SpawnAttributes&) = delete;
  SpawnAttributes& operator=(const SpawnAttributes&) = delete;

  [[nodiscard]] int spawn(pid_t& pid, const std::string& program, char** arguments) const {
    return ::posix_spawnp(&pid, program.c_str(), &actions_, &attributes_, arguments, environ);
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

}  // namespace

OwnedFd::~OwnedFd() {
  if (fd_ >= 0) ::close(fd_);
}

LauncherProcess::LauncherProcess(const LaunchSettings& settings) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) fail("cannot make a pipe", errno);
  const OwnedFd theirs = above_standard(ends[0], "cannot make a pipe");
  lifeline_ = above_standard(ends[1], "cannot make a pipe");
  const OwnedFd input = text_as_file(settings.input);
  const OwnedFd output = above_standard(
      ::open(settings.output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666), settings.output.c_str());
  std::vector<std::string> words = {settings.program};
  words.insert(words.end(), settings.arguments.begin(), settings.arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const SpawnAttributes spawn_attributes(settings.folder, input.get(), output.get(), theirs.get());
  if (const int error = spawn_attributes.spawn(pid_, settings.program, argv.data()); error != 0)
    fail("cannot start " + settings.program, error);
  pidfd_ = OwnedFd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  // Where this program ignores SIGCHLD it may be gone already.
  if (pidfd_.get() < 0) reap();
}

LauncherProcess::~LauncherProcess() {
  end(true, kKilledLimit);
}

void LauncherProcess::reap() {
  siginfo_t info{};
  int done = 0;
  do {
    done = pidfd_.get() >= 0 ? ::waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED)
                             : ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED);
  } while (done != 0 && errno == EINTR);
  has_ended_ = true;
  if (done == 0) code_ = info.si_code == CLD_EXITED ? info.si_status : -info.si_status;
}

bool LauncherProcess::has_ended(Milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!has_ended_) {
    const auto left = std::chrono::duration_cast<Milliseconds>(end - std::chrono::steady_clock::now());
    pollfd watched{pidfd_.get(), POLLIN, 0};
    const int ready = ::poll(&watched, 1, static_cast<int>(std::max<Milliseconds::rep>(left.count(), 0)));
    if (ready > 0) reap();
    if (ready == 0 || (ready < 0 && errno != EINTR)) return has_ended_;
  }
  return true;
}

void LauncherProcess::send(int signal) const {
  if (!has_ended_) (void)::syscall(SYS_pidfd_send_signal, pidfd_.get(), signal, nullptr, 0);
}

void LauncherProcess::end(bool at_once, Milliseconds limit) {
  if (has_ended(Milliseconds(0))) return;
  send(SIGTERM);
  if (at_once) send(SIGQUIT);  // Of a launcher that is stopping already: at once.
  if (has_ended(limit)) return;
  send(SIGKILL);  // Its keepers end what it has started.
  (void)has_ended(kKilledLimit);
}

}  // namespace sgd::client
