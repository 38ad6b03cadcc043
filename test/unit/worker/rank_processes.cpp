#include "test/unit/worker/rank_processes.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <map>
#include <stdexcept>

#include "common/base/assert.hpp"

namespace sgd::worker::testing {
namespace {

constexpr std::size_t kMessageBytesMax = 64 << 10;
constexpr char kResult = 'R', kExchange = 'X';

struct Child {
  pid_t pid = -1;
  int fd = -1;
  bool done = false;
  std::string error;
};

void send_message(int fd, const std::string& message) {
  SGD_ASSERT(message.size() <= kMessageBytesMax);
  SGD_ASSERT(::send(fd, message.data(), message.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(message.size()));
}

std::string receive_message(int fd) {
  std::string message(kMessageBytesMax, '\0');
  const ssize_t got = ::recv(fd, message.data(), message.size(), 0);
  message.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return message;
}

[[noreturn]] void be_rank(int fd, int rank, int size, const std::function<void(const RankContext&)>& body) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  RankContext context;
  context.rank = rank;
  context.size = size;
  context.exchange = [&](const std::string& key, const std::string& value) {
    send_message(fd, kExchange + key + '\n' + value);
    std::vector<std::string> values;
    for (int r = 0; r < size; ++r) values.push_back(receive_message(fd));
    return values;
  };
  std::string result(1, kResult);
  try {
    body(context);
  } catch (const std::exception& problem) {
    result += "rank " + std::to_string(rank) + ": " + problem.what();
  }
  send_message(fd, result);
  ::_exit(0);
}

class Broker {
 public:
  explicit Broker(std::vector<Child>& children) : children_(children) {}

  void take(std::size_t rank, const std::string& message) {
    Child& child = children_[rank];
    if (message.empty() || message[0] == kResult) {
      child.done = true;
      child.error = message.empty() ? "rank " + std::to_string(rank) + " ended without a word" : message.substr(1);
      return;
    }
    const std::size_t end = message.find('\n');
    auto& values = values_[message.substr(1, end - 1)];
    values[rank] = message.substr(end + 1);
    if (values.size() < children_.size()) return;
    for (const Child& other : children_) {
      for (const auto& [from, value] : values) send_message(other.fd, value.empty() ? " " : value);
    }
  }

 private:
  std::vector<Child>& children_;
  std::map<std::string, std::map<std::size_t, std::string>> values_;  // By key, by rank.
};

bool all_done(const std::vector<Child>& children, const std::set<int>& frozen) {
  for (std::size_t r = 0; r < children.size(); ++r) {
    if (!children[r].done && frozen.count(static_cast<int>(r)) == 0) return false;
  }
  return true;
}

void serve(std::vector<Child>& children, const RankRun& run) {
  const TimePoint deadline = std::chrono::steady_clock::now() + run.limit;
  Broker broker(children);
  while (!all_done(children, run.frozen)) {
    const Duration left = deadline - std::chrono::steady_clock::now();
    if (left <= Duration::zero()) return;
    std::vector<pollfd> polled;
    for (const Child& child : children) polled.push_back({child.done ? -1 : child.fd, POLLIN, 0});
    (void)::poll(polled.data(), polled.size(), static_cast<int>(left / std::chrono::milliseconds(1)) + 1);
    for (std::size_t r = 0; r < children.size(); ++r) {
      if (polled[r].fd >= 0 && polled[r].revents != 0) broker.take(r, receive_message(children[r].fd));
    }
  }
}

}  // namespace

std::vector<std::string> run_ranks(const RankRun& run, const std::function<void(const RankContext&)>& body) {
  std::vector<Child> children(static_cast<std::size_t>(run.size));
  for (int rank = 0; rank < run.size; ++rank) {
    int ends[2];
    SGD_ASSERT(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    const pid_t pid = ::fork();
    SGD_ASSERT(pid >= 0);
    if (pid == 0) {
      ::close(ends[0]);
      for (const Child& child : children) {
        if (child.fd >= 0) ::close(child.fd);
      }
      be_rank(ends[1], rank, run.size, body);
    }
    ::close(ends[1]);
    children[static_cast<std::size_t>(rank)].pid = pid;
    children[static_cast<std::size_t>(rank)].fd = ends[0];
  }
  serve(children, run);
  std::vector<std::string> errors;
  for (std::size_t r = 0; r < children.size(); ++r) {
    Child& child = children[r];
    if (!child.done) {
      ::kill(child.pid, SIGKILL);
      if (run.frozen.count(static_cast<int>(r)) == 0) child.error = "rank " + std::to_string(r) + " did not finish";
    }
    SGD_ASSERT(::waitpid(child.pid, nullptr, 0) == child.pid);
    ::close(child.fd);
    errors.push_back(child.error);
  }
  return errors;
}

void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("unexpected: " + what);
}

void wait_until_asleep(pid_t thread) {
  const TimePoint deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  const std::string path = "/proc/self/task/" + std::to_string(thread) + "/stat";
  while (std::chrono::steady_clock::now() < deadline) {
    std::string line;
    std::getline(std::ifstream(path) >> std::ws, line);
    const std::size_t name_end = line.rfind(") ");
    if (name_end != std::string::npos && line.substr(name_end + 2, 1) == "S") return;
    ::sched_yield();
  }
  expect(false, "thread " + std::to_string(thread) + " never slept");
}

Memory::Memory() : fd_(::memfd_create("region", MFD_CLOEXEC)) {
  SGD_ASSERT(fd_ >= 0);
}
Memory::~Memory() {
  ::close(fd_);
}

}  // namespace sgd::worker::testing
