// The worker's end of the link against a socket that the test holds.
#include "worker/link/client.hpp"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "common/exit_codes.hpp"
#include "worker/link/stack_signal.hpp"

namespace sgd::worker {
namespace {

using namespace std::chrono_literals;

constexpr int kDeadlineMs = 10'000;

/// A listening agent with one rank connected to it.
class Agent {
 public:
  Agent() {
    char name[] = "/tmp/sgd-link-test-XXXXXX";
    dir_ = ::mkdtemp(name);
    path_ = dir_ + "/link";
    listener_ = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path_.c_str());
    REQUIRE(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(listener_.get(), 4) == 0);
  }
  ~Agent() {
    ::unlink(path_.c_str());
    ::rmdir(dir_.c_str());
  }

  [[nodiscard]] const std::string& path() const { return path_; }
  void stop_listening() { listener_.reset(); }
  void accept() { socket_ = UniqueFd(::accept(listener_.get(), nullptr, nullptr)); }
  void hang_up() {
    socket_.reset();
    buffer_.clear();
  }

  /// Connects a client; its hello is read.
  std::unique_ptr<LinkClient> connect(Duration agent_wait = {}) {
    auto client = LinkClient::connect(path_, "secret", LinkClient::kConnectDeadline, agent_wait);
    REQUIRE(client.ok());
    accept();
    const auto hello = next();
    REQUIRE(std::get<link::Hello>(hello).token == "secret");
    return std::move(client).value();
  }

  link::FromWorker next() {
    while (buffer_.find('\n') == std::string::npos) {
      pollfd watched{socket_.get(), POLLIN, 0};
      REQUIRE(::poll(&watched, 1, kDeadlineMs) == 1);
      char piece[4096];
      const ssize_t count = ::read(socket_.get(), piece, sizeof piece);
      REQUIRE(count > 0);
      buffer_.append(piece, static_cast<std::size_t>(count));
    }
    const std::size_t end = buffer_.find('\n');
    auto message = link::decode_from_worker(buffer_.substr(0, end));
    REQUIRE(message.ok());
    buffer_.erase(0, end + 1);
    return message.value();
  }

  template <class Message>
  Message next_of() {
    for (;;) {
      const link::FromWorker message = next();
      if (const auto* found = std::get_if<Message>(&message)) return *found;
    }
  }

  void send(const link::ToWorker& message, const std::vector<int>& descriptors = {}) {
    const std::string line = link::encode(message);
    iovec piece{const_cast<char*>(line.data()), line.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    if (!descriptors.empty()) {
      header.msg_control = control;
      header.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
      cmsghdr* part = CMSG_FIRSTHDR(&header);
      part->cmsg_level = SOL_SOCKET;
      part->cmsg_type = SCM_RIGHTS;
      part->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
      std::memcpy(CMSG_DATA(part), descriptors.data(), descriptors.size() * sizeof(int));
    }
    REQUIRE(::sendmsg(socket_.get(), &header, MSG_NOSIGNAL) == static_cast<ssize_t>(line.size()));
  }

  void assign(Generation generation, const std::vector<int>& descriptors = {}, const char* interval = "10s",
              const char* timeout = "60s") {
    link::Assignment assignment;
    assignment.run = "run";
    assignment.generation = generation;
    assignment.rank = 1;
    assignment.world_size = 2;
    assignment.config["heartbeat"]["interval"] = interval;
    assignment.config["heartbeat"]["timeout"] = timeout;
    send(assignment, descriptors);
  }

 private:
  std::string dir_;
  std::string path_;
  UniqueFd listener_;
  UniqueFd socket_;
  std::string buffer_;
};

ino_t inode_of(int fd) {
  struct stat status {};
  REQUIRE(::fstat(fd, &status) == 0);
  return status.st_ino;
}

void send_values(Agent& agent, const std::string& key, const std::vector<int>& ranks, int count) {
  for (const int rank : ranks) {
    link::ExchangeValue value;
    value.key = key;
    value.rank = rank;
    value.count = count;
    value.value = fmt::format("from {}", rank);
    agent.send(value);
  }
}

/// The link thread handles what was sent before: it has answered an exchange that came after it.
void wait_until_handled(Agent& agent, LinkClient& client) {
  send_values(agent, "sync", {0}, 1);
  REQUIRE(client.exchange("sync", 0, 10s).ok());
}

}  // namespace

TEST_CASE("an assignment comes with its descriptors in order") {
  Agent agent;
  auto client = agent.connect();
  const UniqueFd region(::memfd_create("region", 0));
  const UniqueFd memory(::memfd_create("memory", 0));
  agent.assign(3, {region.get(), memory.get()});
  auto received = client->next_assignment(10s);
  REQUIRE(received.ok());
  CHECK(received.value().assignment.generation == 3);
  CHECK(received.value().assignment.rank == 1);
  CHECK(inode_of(received.value().shared_region.get()) == inode_of(region.get()));
  CHECK(inode_of(received.value().memory_checkpoint.get()) == inode_of(memory.get()));
}

TEST_CASE("a process takes a second assignment, which forgets the first one's stop") {
  Agent agent;
  auto client = agent.connect();
  agent.assign(1);
  REQUIRE(client->next_assignment(10s).ok());
  link::Stop stop;
  stop.checkpoint = false;
  agent.send(stop);
  agent.send(link::StopAtEpoch{});
  wait_until_handled(agent, *client);
  CHECK(client->stop_requested());
  CHECK_FALSE(client->stop_wants_checkpoint());
  CHECK(client->stop_at_epoch_requested());
  agent.assign(2);
  auto second = client->next_assignment(10s);
  REQUIRE(second.ok());
  CHECK(second.value().assignment.generation == 2);
  CHECK(second.value().shared_region.get() == -1);
  CHECK_FALSE(client->stop_requested());
  CHECK_FALSE(client->stop_at_epoch_requested());
}

TEST_CASE("a request to stop that comes before its assignment is taken counts") {
  Agent agent;
  auto client = agent.connect();
  agent.assign(1);
  agent.send(link::Stop{});
  agent.send(link::StopAtEpoch{});
  const auto limit = std::chrono::steady_clock::now() + 10s;
  while (!client->stop_at_epoch_requested() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  REQUIRE(client->next_assignment(10s).ok());
  CHECK(client->stop_requested());
  CHECK(client->stop_at_epoch_requested());
}

TEST_CASE("a request to leave at a checkpoint is none to leave at an epoch, and ends with its generation") {
  Agent agent;
  auto client = agent.connect();
  agent.assign(1);
  REQUIRE(client->next_assignment(10s).ok());
  agent.send(link::StopAtEpoch{true});
  wait_until_handled(agent, *client);
  CHECK(client->stop_at_checkpoint_requested());
  CHECK_FALSE(client->stop_at_epoch_requested());
  agent.assign(2);
  REQUIRE(client->next_assignment(10s).ok());
  CHECK_FALSE(client->stop_at_checkpoint_requested());
}

TEST_CASE("heartbeats come at least four times within the time-out") {
  Agent agent;
  auto client = agent.connect();
  agent.assign(1, {}, "1h", "40ms");
  REQUIRE(client->next_assignment(10s).ok());
  (void)agent.next_of<link::Heartbeat>();
  const auto began = std::chrono::steady_clock::now();
  (void)agent.next_of<link::Heartbeat>();
  CHECK(std::chrono::steady_clock::now() - began < 5s);
}

TEST_CASE("threads started under the guard do not take the stack signal, and the guard ends") {
  sigset_t before;
  REQUIRE(::pthread_sigmask(SIG_BLOCK, nullptr, &before) == 0);
  REQUIRE(::sigismember(&before, kStackSignal) == 0);
  bool blocked = false;
  {
    const StackSignalBlock guard;
    std::thread([&blocked] {
      sigset_t own;
      blocked = ::pthread_sigmask(SIG_BLOCK, nullptr, &own) == 0 && ::sigismember(&own, kStackSignal) == 1;
    }).join();
  }
  CHECK(blocked);
  sigset_t after;
  REQUIRE(::pthread_sigmask(SIG_BLOCK, nullptr, &after) == 0);
  CHECK(::sigismember(&after, kStackSignal) == 0);
}

TEST_CASE("no assignment within the deadline is an error that says so") {
  Agent agent;
  auto client = agent.connect();
  const auto received = client->next_assignment(1ms);
  REQUIRE_FALSE(received.ok());
  CHECK(received.error().message == "the agent gave no assignment within 1ms");
}

TEST_CASE("an exchange gives every rank's value in rank order") {
  Agent agent;
  auto client = agent.connect();
  agent.assign(1);
  REQUIRE(client->next_assignment(10s).ok());
  send_values(agent, "address", {1, 0}, 2);
  auto values = client->exchange("address", "mine", 10s);
  REQUIRE(values.ok());
  REQUIRE(values.value().size() == 2);
  CHECK(values.value()[0] == "from 0");
  CHECK(values.value()[1] == "from 1");
  const auto put = agent.next_of<link::ExchangePut>();
  CHECK(put.key == "address");
  CHECK(put.value == "mine");
}

TEST_CASE("an exchange that misses a rank names it") {
  Agent agent;
  auto client = agent.connect();
  agent.assign(1);
  REQUIRE(client->next_assignment(10s).ok());
  send_values(agent, "address", {1}, 3);
  wait_until_handled(agent, *client);
  const auto values = client->exchange("address", "mine", 1ms);
  REQUIRE_FALSE(values.ok());
  CHECK(values.error().message == "exchange \"address\": no value from rank 0, 2 within 1ms");
}

TEST_CASE("an abort of this generation calls the handler, also when it came first, and ends exchanges") {
  Agent agent;
  auto client = agent.connect();
  agent.assign(5);
  REQUIRE(client->next_assignment(10s).ok());
  int calls = 0;
  client->on_abort([&calls] { ++calls; });
  agent.send(link::Abort{4});  // An old one: not ours.
  wait_until_handled(agent, *client);
  CHECK(calls == 0);
  agent.send(link::Abort{5});
  const auto values = client->exchange("address", "mine", 10s);
  REQUIRE_FALSE(values.ok());
  CHECK_THAT(values.error().message, Catch::Contains("aborted"));
  CHECK(calls == 1);
  client->on_abort([&calls] { calls += 10; });
  CHECK(calls == 11);
}

TEST_CASE("heartbeats carry what the training thread has published") {
  Agent agent;
  auto client = agent.connect();
  client->progress().step = 42;
  client->progress().epoch = 3;
  client->progress().phase = Progress::Phase::kTrain;
  client->progress().loss = 0.25;
  client->progress().samples = 6400;
  client->progress().waiting = true;
  agent.assign(1, {}, "10ms");
  REQUIRE(client->next_assignment(10s).ok());
  const auto beat = agent.next_of<link::Heartbeat>();
  CHECK(beat.step == 42);
  CHECK(beat.epoch == 3);
  CHECK(beat.phase == "train");
  CHECK(beat.loss == 0.25);
  CHECK(beat.samples == 6400);
  CHECK(beat.waiting);
}

TEST_CASE("an agent that does not read holds nobody, and loses nothing up to the outbox's limit") {
  Agent agent;
  auto client = agent.connect();
  std::int64_t sent = 0;
  Status status;
  link::Report report;
  report.metrics["padding"] = std::string(10'000, 'x');
  while (status.ok() && sent < 10'000) {
    report.key.batch = sent;
    status = client->send(report);
    if (status.ok()) ++sent;
  }
  CHECK_FALSE(status.ok());
  CHECK(sent * 10'000 > static_cast<std::int64_t>(LinkClient::kOutboxBytesMax));
  for (std::int64_t batch = 0; batch < sent; ++batch) CHECK(agent.next_of<link::Report>().key.batch == batch);
  client->finish(10s);
}

namespace {

link::Report report(std::int64_t batch) {
  link::Report made;
  made.key = {1, "train", batch, 0};
  return made;
}

}  // namespace

TEST_CASE("an agent that comes back hears what the one before has not acknowledged, once") {
  Agent agent;
  auto client = agent.connect(1h);
  agent.send(link::Received{0});
  agent.assign(1);
  REQUIRE(client->next_assignment(10s).ok());
  REQUIRE(client->send(report(1)).ok());
  REQUIRE(client->send(report(2)).ok());
  CHECK(agent.next_of<link::Report>().key.batch == 1);
  agent.send(link::Received{1});
  wait_until_handled(agent, *client);  // Two lines more from us, one more from it.
  agent.hang_up();
  agent.accept();
  const auto back = agent.next_of<link::Hello>();
  CHECK(back.token == "secret");
  CHECK(back.returns);
  CHECK(back.received == 2);
  REQUIRE(client->send(report(3)).ok());
  CHECK(client->has_unsent());
  agent.send(link::Received{1});
  CHECK(agent.next_of<link::Report>().key.batch == 2);
  (void)agent.next_of<link::ExchangePut>();
  CHECK(agent.next_of<link::Report>().key.batch == 3);
  agent.send(link::Stop{5, true});
  wait_until_handled(agent, *client);
  CHECK(client->stop_requested());
  CHECK_FALSE(client->has_unsent());
}

TEST_CASE("a rank that is done waits for an agent that has all it said") {
  Agent agent;
  auto client = agent.connect(1h);
  agent.assign(1);
  REQUIRE(client->next_assignment(10s).ok());
  REQUIRE(client->send(link::ResultMade{7}).ok());
  CHECK(agent.next_of<link::ResultMade>().value == 7);
  agent.hang_up();
  std::thread next([&agent] {
    agent.accept();
    (void)agent.next_of<link::Hello>();
    agent.send(link::Received{0});
    (void)agent.next_of<link::ResultMade>();
    agent.send(link::Received{1});
  });
  client->finish(10s);
  next.join();
}

TEST_CASE("a link that is dropped for good, or without an agent for too long, ends the process") {
  for (const bool is_dropped : {true, false}) {
    Agent agent;
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      (void)!::freopen("/dev/null", "w", stderr);
      auto client = LinkClient::connect(agent.path(), "secret", LinkClient::kConnectDeadline,
                                        is_dropped ? Duration(1h) : Duration(50ms));
      if (!client.ok()) ::_exit(1);
      (void)client.value()->next_assignment(std::chrono::milliseconds(kDeadlineMs));
      ::_exit(2);
    }
    agent.accept();
    (void)agent.next_of<link::Hello>();
    if (is_dropped) agent.send(link::Dropped{"unknown token"});
    if (!is_dropped) agent.stop_listening();
    if (!is_dropped) agent.hang_up();
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == worker_exit::kEnvironment);
  }
}

TEST_CASE("values of more exchanges than can be waited for end the process; limit kExchangeKeysMax") {
  Agent agent;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    (void)!::freopen("/dev/null", "w", stderr);
    auto client = LinkClient::connect(agent.path(), "secret");
    if (!client.ok() || !client.value()->next_assignment(std::chrono::milliseconds(kDeadlineMs)).ok()) ::_exit(1);
    // The last one that has room is there, whatever else waits.
    const auto values = client.value()->exchange("key-63", "mine", std::chrono::milliseconds(kDeadlineMs));
    if (!values.ok()) ::_exit(2);
    (void)client.value()->next_assignment(std::chrono::milliseconds(kDeadlineMs));
    ::_exit(3);
  }
  agent.accept();
  (void)agent.next_of<link::Hello>();
  agent.assign(1);
  for (std::size_t number = 0; number < LinkClient::kExchangeKeysMax; ++number)
    agent.send(link::ExchangeValue{"key-" + std::to_string(number), 0, 1, "value"});
  (void)agent.next_of<link::ExchangePut>();
  for (const char* key : {"one more", "and another"}) agent.send(link::ExchangeValue{key, 0, 1, "value"});
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == worker_exit::kEnvironment);
}

TEST_CASE("a closed link ends the process") {
  Agent agent;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    (void)!::freopen("/dev/null", "w", stderr);
    auto client = LinkClient::connect(agent.path(), "secret");
    if (!client.ok()) ::_exit(1);
    (void)client.value()->next_assignment(std::chrono::milliseconds(kDeadlineMs));
    ::_exit(2);
  }
  agent.accept();
  agent.hang_up();
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == worker_exit::kEnvironment);
}

TEST_CASE("after finish() a closed link is nobody's business") {
  Agent agent;
  auto client = agent.connect();
  client->finish(10s);
  agent.hang_up();
  client->finish(10s);
}

TEST_CASE("an agent that is not there is an error with its path") {
  const auto client = LinkClient::connect("/tmp/sgd-link-test-nobody", "secret", 1ms);
  REQUIRE_FALSE(client.ok());
  CHECK_THAT(client.error().message, Catch::Contains("/tmp/sgd-link-test-nobody"));
}

}  // namespace sgd::worker
