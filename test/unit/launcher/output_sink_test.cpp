// One of our own streams where nobody reads it, or nothing more can be written.

#include "launcher/cli/output_sink.hpp"

#include <fcntl.h>
#include <pty.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include <catch2/catch.hpp>

#include "launcher/process/unique_fd.hpp"

using namespace sgd;

TEST_CASE("output sink: a terminal that nobody reads makes nobody wait, and gets everything later") {
  int master = -1;
  int slave = -1;
  REQUIRE(::openpty(&master, &slave, nullptr, nullptr, nullptr) == 0);
  const process::UniqueFd reader(master);
  const process::UniqueFd shells(slave);
  REQUIRE(process::set_nonblocking(master));
  boost::asio::io_context io;
  cli::OutputSink sink(io, slave, [] {});
  const std::string text(1 << 20, 'x');
  bool is_written = false;
  sink.write(text, [&is_written] { is_written = true; });
  sink.offer(text);
  CHECK_FALSE(is_written);
  CHECK((::fcntl(slave, F_GETFL) & O_NONBLOCK) == 0);  // Others have this end, too.
  std::string read;
  char page[4096];
  while (!is_written || read.size() < text.size()) {
    const ssize_t count = ::read(master, page, sizeof page);
    if (count > 0) read.append(page, static_cast<std::size_t>(count));
    if (io.stopped()) io.restart();
    io.poll();
  }
  CHECK(sink.drained());
}

TEST_CASE("output sink: a full disk is remembered, and a reader that has gone away is not") {
  boost::asio::io_context io;
  const auto error_of = [&io](int fd) {
    cli::OutputSink sink(io, fd, [] {});
    bool is_over = false;
    sink.write("a line\n", [&is_over] { is_over = true; });
    CHECK(is_over);
    CHECK(sink.drained());
    return sink.error();
  };
  int ends[2] = {-1, -1};
  REQUIRE(::pipe(ends) == 0);
  const process::UniqueFd writer(ends[1]);
  ::close(ends[0]);
  const auto former = std::signal(SIGPIPE, SIG_IGN);
  CHECK(error_of(writer.get()) == 0);
  (void)std::signal(SIGPIPE, former);  // Ignoring: it was valid before.
  const process::UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  REQUIRE(full);
  CHECK(error_of(full.get()) == ENOSPC);
  CHECK(cli::has_lost_output());
}
