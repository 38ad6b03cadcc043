// The standard error of a child, kept in memory: its size is fixed, whoever writes, and its last line is fit to be
// shown.

#include "launcher/process/kept_stderr.hpp"

#include <poll.h>
#include <unistd.h>

#include <csignal>

#include <catch2/catch.hpp>

#include "keeper_test_support.hpp"
#include "launcher/process/pidfd.hpp"
#include "launcher/process/spawn.hpp"

using namespace sgd;
using process::KeptStderr;

namespace {

process::Child child_with(const KeptStderr& words, const std::string& script) {
  process::SpawnOptions options;
  options.argv = {"sh", "-c", script};
  options.error_fd = words.fd();
  auto child = process::spawn(options);
  REQUIRE(child);
  return std::move(child).value();
}

void await_end(const process::Child& child) {
  pollfd entry{child.pidfd.get(), POLLIN, 0};
  REQUIRE(::poll(&entry, 1, 20'000) == 1);
  REQUIRE(process::wait_exit(child.pidfd.get()));
}

}  // namespace

TEST_CASE("kept stderr: what a child has said is there after its end") {
  const auto words = KeptStderr::make();
  REQUIRE(words);
  const process::Child child = child_with(words.value(), "echo one >&2; printf 'a\\033[31mred\\377\\n' >&2");
  await_end(child);
  CHECK(words.value().text() == "one\na?[31mred?\n");
}

TEST_CASE("kept stderr: it does not grow, and says no more") {
  const auto words = KeptStderr::make();
  REQUIRE(words);
  const process::Child child = child_with(words.value(), "head -c 100000 /dev/zero | tr '\\0' x >&2; exit 0");
  await_end(child);
  CHECK(words.value().text().size() <= KeptStderr::kBytes);
  CHECK(::lseek(words.value().fd(), 0, SEEK_END) == KeptStderr::kBytes);
}

TEST_CASE("kept stderr: the next life of whoever started it finds it") {
  const auto words = KeptStderr::make();
  REQUIRE(words);
  const keeper_test::TemporaryDir dir;
  const process::Child child =
      child_with(words.value(), "echo said >&2; echo up > " + dir.file("up") + "; exec sleep 1000");
  (void)keeper_test::wait_file(dir.file("up"), std::chrono::seconds(20));
  const auto found = KeptStderr::of(child.pid);
  REQUIRE(process::pidfd_send_signal(child.pidfd.get(), SIGKILL));
  await_end(child);
  REQUIRE(found);
  CHECK(found.value().text() == "said\n");
  CHECK_FALSE(KeptStderr::of(::getpid()));  // Ours is another file.
}

TEST_CASE("kept stderr: the last line") {
  CHECK(process::last_line("first\nerror: why\n\n", "error: ", 100) == "why");
  CHECK(process::last_line("alone", "error: ", 100) == "alone");
  CHECK(process::last_line("\n \n", "", 100).empty());
  CHECK(process::last_line("abcdef", "", 3) == "abc");
}
