#include "launcher/process/capture_output.hpp"

#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "launcher/process/clock.hpp"
#include "launcher/process/pidfd.hpp"
#include "launcher/process/spawn.hpp"

namespace sgd::process {
namespace {

constexpr std::size_t kTextBytesMax = 4 << 20;
constexpr int kReapMs = 10'000;  // After SIGKILL.

std::string read_all(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return {};
  std::string text(std::min(static_cast<std::size_t>(info.st_size), kTextBytesMax), '\0');
  const ssize_t count = ::pread(fd, text.data(), text.size(), 0);
  text.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace

Result<CapturedOutput> capture_output(std::vector<std::string> argv, Duration patience) {
  const UniqueFd output(::memfd_create("answer", MFD_CLOEXEC));
  if (output.get() < 0) return system_error("cannot hold the answer of " + argv.front());
  SpawnOptions options;
  options.argv = std::move(argv);
  options.output_fd = output.get();
  auto child = spawn(options);
  if (!child) return child.error();
  pollfd watched{child.value().pidfd.get(), POLLIN, 0};
  const TimePoint now = monotonic_now();
  CapturedOutput said;
  said.is_late = ::poll(&watched, 1, poll_timeout_ms(now, now + patience)) == 0;
  if (said.is_late) (void)::kill(child.value().pid, SIGKILL);
  (void)::poll(&watched, 1, kReapMs);
  const auto ended = wait_exit(child.value().pidfd.get());
  if (!ended) return ended.error();
  if (!ended.value()) {
    said.is_late = true;
    return said;
  }
  said.exit_code = ended.value()->exit_code;
  said.signal = ended.value()->signal;
  said.text = read_all(output.get());
  return said;
}

}  // namespace sgd::process
