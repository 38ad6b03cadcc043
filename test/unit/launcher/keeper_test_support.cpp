#include "keeper_test_support.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <catch2/catch.hpp>

#include "launcher/keeper/keeper_main.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/process/pidfd.hpp"
#include "launcher/process/process_tree.hpp"
#include "launcher/process/unix_socket.hpp"

namespace sgd::keeper_test {

using process::monotonic_now;

TemporaryDir::TemporaryDir() {
  char path[] = "/tmp/sgd-test-XXXXXX";
  if (::mkdtemp(path) == nullptr) FAIL("no temporary folder");
  path_ = path;
}

TemporaryDir::~TemporaryDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

long memory_kib(int pid, const std::string& key) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size() + 1, key + ":") == 0) return std::atol(line.c_str() + key.size() + 1);
  }
  return -1;
}

Duration cpu_time_of(int pid) {
  clockid_t clock{};
  timespec time{};
  REQUIRE(::clock_getcpuclockid(pid, &clock) == 0);
  REQUIRE(::clock_gettime(clock, &time) == 0);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

bool wait_gone(int pid, Duration limit) {
  auto pidfd = process::pidfd_open(pid);
  if (!pidfd) return true;
  pollfd entry{pidfd.value().get(), POLLIN, 0};
  return ::poll(&entry, 1, process::poll_timeout_ms(monotonic_now(), monotonic_now() + limit)) == 1;
}

bool wait_until(Duration limit, const std::function<bool()>& done) {
  const TimePoint deadline = monotonic_now() + limit;
  while (!done()) {
    if (monotonic_now() >= deadline) return false;
    (void)::poll(nullptr, 0, 1);
  }
  return true;
}

std::string wait_file(const std::string& path, Duration limit) {
  std::string text;
  (void)wait_until(limit, [&] {
    text = read_file(path);
    return !text.empty();
  });
  return text;
}

TestKeeper::TestKeeper(Duration console_patience) {
  // Strays must come to us, so that a test that leaves one can see it.
  REQUIRE(process::become_subreaper().ok());
  auto ends = process::socket_pair(SOCK_STREAM);
  REQUIRE(ends.ok());
  socket_ = std::move(ends.value().first);
  pid_ = ::fork();
  REQUIRE(pid_ >= 0);
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // As after exec: the keeper has no other end of its link, or it would never see that the test has gone.
    if (ends.value().second.get() != 3) ::dup2(ends.value().second.get(), 3);
    ::close_range(4, ~0U, 0);
    ::_exit(keeper::keeper_main({}, console_patience));
  }
  ends.value().second.reset();
  pidfd_ = std::move(process::pidfd_open(pid_)).value();
  char buffer[4096];
  auto received = process::receive_with_descriptors(socket_.get(), buffer);
  REQUIRE(received.ok());
  descriptors = std::move(received.value().descriptors);
  reader_.append({buffer, received.value().bytes});
  auto frame = reader_.next();
  REQUIRE(frame.ok());
  REQUIRE(frame.value().has_value());
  take_frame(*frame.value());
  REQUIRE(wait<keeper::Started>().pid == pid_);
}

TestKeeper::~TestKeeper() {
  drop_link();
  if (pidfd_) (void)wait_keeper();
  for (const auto& entry : process::descendants(::getpid())) {
    if (!entry.zombie) FAIL_CHECK("process " << entry.pid << " was left behind");
  }
  (void)process::kill_descendants({}, std::chrono::seconds(10));
}

void TestKeeper::send(const keeper::ToKeeper& message) {
  const std::string frame = keeper::encode(message);
  for (std::size_t done = 0; done < frame.size();) {
    auto sent = process::send_with_descriptors(socket_.get(), std::string_view(frame).substr(done), {});
    if (!sent) return;  // The keeper is gone; whoever waits for its answer says so.
    done += sent.value();
  }
}

void TestKeeper::spawn_shell(Rank rank, const std::string& script, const std::string& log_path) {
  keeper::Spawn spawn;
  spawn.generation = 1;
  spawn.rank = rank;
  spawn.argv = {"/bin/sh", "-c", script};
  spawn.log_path = log_path;
  send(spawn);
}

bool TestKeeper::read_some(Duration limit) {
  pollfd entry{socket_.get(), POLLIN, 0};
  if (::poll(&entry, 1, process::poll_timeout_ms(monotonic_now(), monotonic_now() + limit)) <= 0) return false;
  static char buffer[1 << 20];
  const ssize_t count = ::recv(socket_.get(), buffer, sizeof buffer, 0);
  if (count <= 0) {
    closed = true;
    return false;
  }
  reader_.append({buffer, static_cast<std::size_t>(count)});
  for (;;) {
    auto frame = reader_.next();
    REQUIRE(frame.ok());
    if (!frame.value()) return true;
    take_frame(*frame.value());
  }
}

void TestKeeper::take_frame(const Frame& frame) {
  if (frame.kind == FrameKind::kJson) {
    auto message = keeper::decode_from_keeper(frame.bytes);
    REQUIRE(message.ok());
    messages.push_back(std::move(message).value());
    return;
  }
  REQUIRE(frame.bytes.size() > keeper::kOutputHeaderBytes);
  const auto head = keeper::decode_output_head(frame.bytes);
  REQUIRE(head);
  REQUIRE(head.value().generation == 1);
  const Rank rank = head.value().rank;
  const std::string_view bytes = std::string_view(frame.bytes).substr(keeper::kOutputHeaderBytes);
  if (head.value().is_open) {
    open_lines[rank].emplace_back(bytes);
  } else {
    REQUIRE(bytes.back() == '\n');  // Whole lines only.
    output[rank].append(bytes);
    if (head.value().stream == keeper::Stream::kErr) errors[rank].append(bytes);
  }
  unacknowledged += static_cast<std::int64_t>(frame.bytes.size() - keeper::kOutputHeaderBytes);
  REQUIRE(unacknowledged <= 2 * keeper::kOutputWindowBytes);
  if (!acknowledge) return;
  send(keeper::OutputAck{unacknowledged});
  unacknowledged = 0;
}

void TestKeeper::require_until(const char* what, Duration limit, const std::function<bool()>& done) {
  const TimePoint deadline = monotonic_now() + limit;
  while (!done()) {
    if (closed) FAIL("the keeper closed its link while the test waited for " << what);
    const TimePoint now = monotonic_now();
    if (now >= deadline) FAIL("no " << what << " within " << format_duration(limit));
    (void)read_some(deadline - now);
  }
}

process::ExitStatus TestKeeper::wait_keeper(Duration limit) {
  pollfd entry{pidfd_.get(), POLLIN, 0};
  if (::poll(&entry, 1, process::poll_timeout_ms(monotonic_now(), monotonic_now() + limit)) != 1) {
    FAIL_CHECK("the keeper does not end");
    (void)process::pidfd_send_signal(pidfd_.get(), SIGKILL);
    (void)::poll(&entry, 1, 5000);
  }
  auto status = process::wait_exit(pidfd_.get());
  pidfd_.reset();
  return status.ok() && status.value() ? *status.value() : process::ExitStatus{};
}

}  // namespace sgd::keeper_test
