// What a terminal shows that has no room for a while: live lines are taken away before anything follows them.

#include "launcher/cli/console.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "launcher/process/unique_fd.hpp"

using namespace sgd;

namespace {

/// A pipe in the place of one of our streams, for as long as it lives.
class StreamPipe {
 public:
  explicit StreamPipe(int fd = STDERR_FILENO) : fd_(fd), former_(::dup(fd)) {
    int ends[2] = {-1, -1};
    REQUIRE(::pipe(ends) == 0);
    reader_.reset(ends[0]);
    const process::UniqueFd writer(ends[1]);
    REQUIRE(process::set_nonblocking(ends[0]));
    ::fcntl(ends[1], F_SETPIPE_SZ, 8 << 10);
    REQUIRE(::dup2(ends[1], fd) == fd);
  }
  ~StreamPipe() { ::dup2(former_.get(), fd_); }

  void fill() {
    const std::string page(1024, '.');
    pollfd poll_fd{fd_, POLLOUT, 0};
    while (::poll(&poll_fd, 1, 0) == 1) REQUIRE(::write(fd_, page.data(), page.size()) > 0);
  }
  /// What was written since, without what has filled it.
  std::string read() {
    std::string text;
    char page[4096];
    for (ssize_t count = 0; (count = ::read(reader_.get(), page, sizeof page)) > 0;)
      text.append(page, static_cast<std::size_t>(count));
    std::erase(text, '.');
    return text;
  }

 private:
  int fd_;
  process::UniqueFd former_;
  process::UniqueFd reader_;
};

}  // namespace

TEST_CASE(
    "console: what takes a live line away is written before what comes next, also when there was no room for it") {
  StreamPipe pipe;
  boost::asio::io_context io;
  cli::Console console(io, {true, false, false});
  console.status("step 1");
  CHECK(pipe.read() == "step 1");
  pipe.fill();
  console.narrate("saved");
  console.narrate("saved again");
  CHECK(pipe.read().empty());
  console.narrate("saved at last");
  CHECK(pipe.read() == "\r\x1b[Ksaved at last\nstep 1");
  pipe.fill();
  for (int step = 2; step < 100; ++step) console.status("step " + std::to_string(step));
  CHECK(pipe.read().empty());
  console.output(keeper::Stream::kErr, "a line of a rank\n", nullptr);
  CHECK(pipe.read() == "\r\x1b[Ka line of a rank\nstep 99");
  console.status("");
  CHECK(pipe.read() == "\r\x1b[K");
}

TEST_CASE("console: a line that was begun is ended before the next one") {
  StreamPipe pipe;
  boost::asio::io_context io;
  cli::Console console(io, {false, false, false});
  const std::string line(20'000, 'x');
  console.narrate(line);
  std::string seen = pipe.read();
  CHECK(seen.size() < line.size());
  for (int turn = 0; turn < 10 && !seen.ends_with("more\n"); ++turn) {
    console.narrate("more");
    seen += pipe.read();
  }
  CHECK(seen == line + "\nmore\n");
}

TEST_CASE("console: whoever reads our stdout may print it where the status line is") {
  std::string before;
  std::string after;
  std::string again;
  {
    StreamPipe out(STDOUT_FILENO);  // Catch2 writes there, too: what is seen is compared behind this.
    StreamPipe err;
    boost::asio::io_context io;
    cli::Console console(io, {true, false, false});
    console.status("step 1");
    before = err.read();
    console.result("epoch 1");
    after = out.read() + err.read();
    console.status("step 2");
    again = err.read();
  }
  CHECK(before == "step 1");
  CHECK(after == "epoch 1\n\r\x1b[K");
  CHECK(again == "step 2");
}
