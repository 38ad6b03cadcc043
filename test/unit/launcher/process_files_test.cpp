// Unix sockets and private folders.

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include "keeper_test_support.hpp"
#include "launcher/process/accept_loop.hpp"
#include "launcher/process/runtime_dir.hpp"
#include "launcher/process/unix_socket.hpp"

using namespace sgd;
using namespace sgd::process;
using keeper_test::TemporaryDir;
using namespace std::chrono_literals;

TEST_CASE("descriptors travel with bytes and arrive close-on-exec", "[process]") {
  auto ends = std::move(socket_pair(SOCK_STREAM)).value();
  int pipe_ends[2];
  REQUIRE(::pipe(pipe_ends) == 0);
  UniqueFd read_end(pipe_ends[0]);
  UniqueFd write_end(pipe_ends[1]);
  const int sent[] = {write_end.get(), read_end.get()};
  CHECK(send_with_descriptors(ends.first.get(), "hello", sent).value() == 5);
  char buffer[16];
  auto received = receive_with_descriptors(ends.second.get(), buffer);
  REQUIRE(received.ok());
  CHECK(std::string(buffer, received.value().bytes) == "hello");
  REQUIRE(received.value().descriptors.size() == 2);
  CHECK(::fcntl(received.value().descriptors[0].get(), F_GETFD) == FD_CLOEXEC);
  CHECK(::write(received.value().descriptors[0].get(), "x", 1) == 1);
  CHECK(::read(read_end.get(), buffer, 1) == 1);
  ends.first.reset();
  CHECK(receive_with_descriptors(ends.second.get(), buffer).value().bytes == 0);
  CHECK(send_with_descriptors(ends.second.get(), "hello", {}).error().code == EPIPE);
}

TEST_CASE("a message longer than the buffer is said to be cut", "[process]") {
  auto ends = std::move(socket_pair(SOCK_SEQPACKET)).value();
  CHECK(send_with_descriptors(ends.first.get(), "0123456789", {}).value() == 10);
  char buffer[4];
  auto received = receive_with_descriptors(ends.second.get(), buffer);
  REQUIRE(received.ok());
  CHECK(received.value().truncated);
  REQUIRE(set_nonblocking(ends.second.get()));
  CHECK(receive_with_descriptors(ends.second.get(), buffer).error().code == EAGAIN);
}

TEST_CASE("listening, connecting, and who is there", "[process]") {
  TemporaryDir dir;
  const std::string path = dir.file("socket");
  CHECK(connect_unix(path, 1s).error().code == ENOENT);
  auto listener = listen_unix(path, {}, 0);
  REQUIRE(listener.ok());
  struct stat info {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  CHECK(listen_unix(path).error().code == EADDRINUSE);
  auto client = connect_unix(path, 1s);
  REQUIRE(client.ok());
  // Nobody accepts: the backlog is full soon, and connecting ends in time.
  std::vector<UniqueFd> more;
  int code = 0;
  for (int i = 0; i < 10 && code == 0; ++i) {
    auto next = connect_unix(path, 50ms);
    if (next.ok())
      more.push_back(std::move(next).value());
    else
      code = next.error().code;
  }
  CHECK(code == ETIMEDOUT);
  const UniqueFd accepted(::accept4(listener.value().get(), nullptr, nullptr, SOCK_CLOEXEC));
  REQUIRE(accepted);
  CHECK(peer_credentials(accepted.get()).value().pid == ::getpid());
  CHECK(peer_credentials(accepted.get()).value().uid == ::geteuid());
  CHECK(listen_unix(dir.file(std::string(108, 'x'))).error().code == ENAMETOOLONG);
}

TEST_CASE("the parent of runtime folders is private or refused", "[process]") {
  TemporaryDir dir;
  const auto base = runtime_base(dir.file(""));
  REQUIRE(base.ok());
  CHECK(std::filesystem::path(base.value()).filename() == "sgd-launch");
  struct stat info {};
  REQUIRE(::stat(base.value().c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0700);
  CHECK(runtime_base(dir.file("")).ok());
  ::chmod(base.value().c_str(), 0755);
  CHECK_THAT(runtime_base(dir.file("")).error().message, Catch::Contains("open to others"));
  std::filesystem::remove_all(base.value());
  std::filesystem::create_directory_symlink("/tmp", base.value());
  CHECK_THAT(runtime_base(dir.file("")).error().message, Catch::Contains("symbolic link"));
  // A runtime directory that does not exist: /tmp serves.
  CHECK(runtime_base(dir.file("none")).value() == "/tmp/sgd-" + std::to_string(::geteuid()));
  CHECK(runtime_base("").value() == "/tmp/sgd-" + std::to_string(::geteuid()));
}

TEST_CASE("a runtime directory whose path leaves sockets no room is not used; limit kBaseBytesMax", "[process]") {
  TemporaryDir dir;
  std::string deep = dir.file("");
  const std::size_t most = kSocketPathBytesMax - 32 - sizeof "/sgd-launch";
  REQUIRE(deep.size() < most);
  deep.append(most - deep.size(), 'd');
  for (const std::string& folder : {deep, deep + "d"}) std::filesystem::create_directory(folder);
  CHECK(runtime_place(deep, "another") == deep);
  CHECK(runtime_place(deep + "d", "another") == "another");
}

TEST_CASE("where somebody else has made the parent of runtime folders, it is another one, and found again",
          "[process]") {
  TemporaryDir dir;
  const std::string usual = dir.file("sgd-" + std::to_string(::geteuid()));
  std::filesystem::create_directory_symlink("/", usual);  // It cannot be trusted, as one of another user cannot.
  const auto base = runtime_base("", dir.file("."));
  REQUIRE(base.ok());
  CHECK_THAT(base.value(), Catch::Contains("/sgd-" + std::to_string(::geteuid()) + "-"));
  CHECK(runtime_base("", dir.file(".")).value() == base.value());
  std::filesystem::remove(usual);
  CHECK(runtime_base("", dir.file(".")).value() == dir.file("./sgd-" + std::to_string(::geteuid())));
  CHECK_THAT(runtime_base("", "/proc").error().message, Catch::Contains("name a folder of this account's own in XDG"));
}

TEST_CASE("a socket's path that is longer than the kernel takes is refused by name", "[process]") {
  TemporaryDir dir;
  const std::string longest = dir.file(std::string(kSocketPathBytesMax - dir.file("").size(), 's'));
  CHECK(listen_unix(longest).ok());
  const auto refused = listen_unix(longest + "s");
  REQUIRE_FALSE(refused.ok());
  CHECK_THAT(refused.error().message, Catch::Contains("107 are possible"));
}

TEST_CASE("a loop that takes connections outlives a lack of descriptors, and does not spin", "[process]") {
  TemporaryDir dir;
  boost::asio::io_context io;
  auto listener = listen_unix(dir.file("socket"));
  REQUIRE(listener.ok());
  std::vector<UniqueFd> taken;
  std::vector<std::string> troubles;
  AcceptLoop::Handlers handlers;
  handlers.on_socket = [&](UniqueFd socket) { taken.push_back(std::move(socket)); };
  handlers.on_trouble = [&](std::string reason) { troubles.push_back(std::move(reason)); };
  const AcceptLoop loop(io, std::move(listener).value(), handlers);
  const auto first = connect_unix(dir.file("socket"), 5s);
  const auto second = connect_unix(dir.file("socket"), 5s);
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const int highest = second.value().get();
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(highest) + 1;
  std::vector<UniqueFd> fill;  // What is free below the limit.
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  for (int fd = 0; (fd = ::fcntl(highest, F_DUPFD_CLOEXEC, 0)) >= 0;) fill.emplace_back(fd);
  io.run_for(250ms);
  const std::size_t turns = io.poll();
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(taken.empty());
  CHECK(turns <= 1);
  REQUIRE(troubles.size() == 1);
  CHECK_THAT(troubles.front(), Catch::StartsWith("cannot take a connection: Too many open files; whoever connects"));
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (taken.size() < 2 && std::chrono::steady_clock::now() < deadline) io.run_for(10ms);
  CHECK(taken.size() == 2);
}

TEST_CASE("a run's folder goes with it, and a dead owner's with the next start", "[process]") {
  TemporaryDir dir;
  const std::string base = runtime_base(dir.file("")).value();
  std::string path;
  {
    auto mine = RuntimeDir::create(base);
    REQUIRE(mine.ok());
    path = mine.value().path();
    CHECK(path.size() == base.size() + 9);
    CHECK(remove_dead_runtime_dirs(base) == 0);
    CHECK(std::filesystem::exists(path));
    RuntimeDir moved = std::move(mine).value();
    CHECK(std::filesystem::exists(moved.file("owner.lock")));
  }
  CHECK_FALSE(std::filesystem::exists(path));
  const pid_t child = ::fork();
  if (child == 0) {
    auto dead = RuntimeDir::create(base);
    ::raise(SIGKILL);
  }
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  auto living = RuntimeDir::create(base);
  REQUIRE(living.ok());
  std::filesystem::create_directory(base + "/not-a-run");
  std::filesystem::create_directory(base + "/0123abcd");  // Young, and its lock is not written yet.
  CHECK(remove_dead_runtime_dirs(base) == 1);
  CHECK(std::filesystem::exists(living.value().path()));
  CHECK(std::filesystem::exists(base + "/not-a-run"));
  CHECK(std::filesystem::exists(base + "/0123abcd"));
}

TEST_CASE("a run's folder stays while its owner lives, also when old files were cleared up in it", "[process]") {
  TemporaryDir dir;
  const std::string base = runtime_base(dir.file("")).value();
  auto living = RuntimeDir::create(base);
  REQUIRE(living.ok());
  const std::string left = base + "/0123abcd";
  std::filesystem::create_directory(left);
  std::filesystem::remove(living.value().file("owner.lock"));
  for (const std::string& folder : {living.value().path(), left})
    std::filesystem::last_write_time(folder, std::filesystem::file_time_type::clock::now() - 240h);
  CHECK(remove_dead_runtime_dirs(base) == 1);
  CHECK(std::filesystem::exists(living.value().path()));
  CHECK_FALSE(std::filesystem::exists(left));
}
