#include "worker/torch/stack_trace.hpp"

#include <execinfo.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>

#include <fmt/format.h>

#include "worker/link/stack_signal.hpp"

namespace sgd::worker {
namespace {

constexpr int kFramesMax = 128;
constexpr std::size_t kPathBytesMax = 4096;

/// What the handler needs, ready before it can run: it may not allocate.
struct Target {
  char folder[kPathBytesMax];
  char path[kPathBytesMax];
  const Progress* progress = nullptr;
  pid_t process = 0;
  pid_t thread = 0;
};
Target target;

/// Text on the stack, without the C library's formatting, which is not safe in a handler.
class Line {
 public:
  Line& operator<<(const char* text) {
    while (*text != '\0' && used_ < sizeof bytes_) bytes_[used_++] = *text++;
    return *this;
  }
  Line& digits(std::int64_t number, int width) {
    char reversed[24];
    int count = 0;
    const bool negative = number < 0;
    auto left = static_cast<std::uint64_t>(negative ? -number : number);
    do {
      reversed[count++] = static_cast<char>('0' + left % 10);
      left /= 10;
    } while ((left != 0 || count < width) && count < 22);
    if (negative) reversed[count++] = '-';
    while (count > 0 && used_ < sizeof bytes_) bytes_[used_++] = reversed[--count];
    return *this;
  }
  void write_to(int fd) const { (void)!::write(fd, bytes_, used_); }

 private:
  char bytes_[256];
  std::size_t used_ = 0;
};

void write_stack(int fd) {
  timespec time{};
  (void)::clock_gettime(CLOCK_REALTIME, &time);
  const Progress& progress = *target.progress;
  Line line;
  line << "time ";
  line.digits(time.tv_sec, 1) << ".";
  line.digits(time.tv_nsec / 1000, 6) << " step ";
  line.digits(progress.step.load(std::memory_order_relaxed), 1)
      << " phase " << name_of(progress.phase.load(std::memory_order_relaxed))
      << (progress.waiting.load(std::memory_order_relaxed) ? " in a collective\n" : "\n");
  line.write_to(fd);
  void* frames[kFramesMax];
  const int count = ::backtrace(frames, kFramesMax);
  ::backtrace_symbols_fd(frames, count, fd);
  (void)!::write(fd, "\n", 1);
}

extern "C" void on_stack_signal(int) {
  const int saved_errno = errno;
  if (::syscall(SYS_gettid) != target.thread) {
    // A library's thread got it: it is meant for the training thread.
    (void)::syscall(SYS_tgkill, target.process, target.thread, kStackSignal);
  } else {
    (void)::mkdir(target.folder, 0755);
    const int fd = ::open(target.path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd >= 0) {
      write_stack(fd);
      (void)::close(fd);
    }
  }
  errno = saved_errno;
}

void set_handler(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  (void)::sigaction(kStackSignal, &action, nullptr);
}

}  // namespace

void ignore_stack_signal() {
  set_handler(SIG_IGN);
}

StackTracing::StackTracing(const std::string& run_dir, Generation generation, Rank rank, const Progress& progress) {
  const std::string folder = run_dir + "/errors";
  const std::string path = fmt::format("{}/gen-{:04}-rank-{:04}.stack", folder, generation, rank);
  if (run_dir.empty() || path.size() >= kPathBytesMax) return;
  std::memcpy(target.folder, folder.c_str(), folder.size() + 1);
  std::memcpy(target.path, path.c_str(), path.size() + 1);
  target.progress = &progress;
  target.process = ::getpid();
  target.thread = static_cast<pid_t>(::syscall(SYS_gettid));
  void* frame = nullptr;
  (void)::backtrace(&frame, 1);  // Loads what the first call loads: a handler may not.
  set_handler(on_stack_signal);
}

StackTracing::~StackTracing() {
  ignore_stack_signal();
}

}  // namespace sgd::worker
