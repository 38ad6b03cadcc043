// The service manager's protocol, heard on a real datagram socket.

#include "launcher/process/service_notify.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include "keeper_test_support.hpp"

using namespace sgd;
using namespace sgd::process;
using namespace std::chrono_literals;

namespace {

/// What systemd is to a service: a datagram socket, by path or by a name in the abstract namespace.
struct Manager {
  UniqueFd socket{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};

  explicit Manager(std::string name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const bool is_abstract = name.front() == '@';
    if (is_abstract) name.front() = '\0';
    std::memcpy(address.sun_path, name.data(), name.size());
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() + (is_abstract ? 0 : 1));
    REQUIRE(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), bytes) == 0);
  }
  /// The next datagram, or "" when there is none.
  std::string hear() const {
    char text[512];
    const ssize_t bytes = ::recv(socket.get(), text, sizeof text, 0);
    return bytes < 0 ? "" : std::string(text, static_cast<std::size_t>(bytes));
  }
};

ServiceNotify opened(const NotifyEnvironment& environment) {
  auto notify = ServiceNotify::open(environment);
  REQUIRE(notify.ok());
  return std::move(notify).value();
}

}  // namespace

TEST_CASE("service notify: a life of a service, by path and by abstract name", "[notify]") {
  const keeper_test::TemporaryDir folder;
  const bool is_abstract = GENERATE(false, true);
  const std::string name = is_abstract ? "@sgd-notify-test-" + std::to_string(::getpid()) : folder.file("notify");
  INFO(name);
  const Manager manager(name);
  ServiceNotify notify = opened({name, "", ""});
  CHECK(notify.is_heard());
  CHECK(notify.ready("0 agents").ok());
  CHECK(manager.hear() == "READY=1\nSTATUS=0 agents\n");
  notify.status("two\nlines");
  CHECK(manager.hear() == "STATUS=two lines\n");
  CHECK(notify.reloading(TimePoint(1500us)).ok());
  CHECK(manager.hear() == "RELOADING=1\nMONOTONIC_USEC=1500\n");
  notify.extend_timeout(45s);
  CHECK(manager.hear() == "EXTEND_TIMEOUT_USEC=45000000\n");
  CHECK(notify.stopping("checkpoints are being saved").ok());
  CHECK(manager.hear() == "STOPPING=1\nSTATUS=checkpoints are being saved\n");
  CHECK(manager.hear().empty());
}

TEST_CASE("service notify: without a service manager nothing happens", "[notify]") {
  ServiceNotify notify = opened({"", "1000", ""});
  CHECK_FALSE(notify.is_heard());
  CHECK(notify.ready("x").ok());
  notify.feed_watchdog();
  CHECK(notify.watchdog_interval() == 0s);
  boost::asio::io_context io;
  const WatchdogFeeder feeder(io, notify);
  CHECK(io.run() == 0);  // No timer waits.
}

TEST_CASE("service notify: an address that is none, and one where nobody listens", "[notify]") {
  CHECK_FALSE(ServiceNotify::open({"relative/path", "", ""}).ok());
  CHECK_FALSE(ServiceNotify::open({"@", "", ""}).ok());
  CHECK_FALSE(ServiceNotify::open({"/" + std::string(107, 'x'), "", ""}).ok());
  CHECK(ServiceNotify::open({"@" + std::string(107, 'x'), "", ""}).ok());
  ServiceNotify notify = opened({"/nobody/listens/here", "", ""});
  CHECK_THAT(notify.ready("x").error().message, Catch::StartsWith("cannot tell the service manager"));
  notify.status("x");
}

TEST_CASE("service notify: the watchdog is fed from the event loop, for its own process only", "[notify]") {
  const keeper_test::TemporaryDir folder;
  const std::string name = folder.file("notify");
  const Manager manager(name);
  const std::string own = std::to_string(::getpid());
  CHECK(opened({name, "30000000", own}).watchdog_interval() == 15s);
  CHECK(opened({name, "30000000", ""}).watchdog_interval() == 15s);
  CHECK(opened({name, "30000000", "1"}).watchdog_interval() == 0s);
  CHECK(opened({name, "soon", own}).watchdog_interval() == 0s);
  CHECK(opened({name, "-4", own}).watchdog_interval() == 0s);

  ServiceNotify notify = opened({name, "2000", own});
  boost::asio::io_context io;
  int fed = 0;
  {
    const WatchdogFeeder feeder(io, notify);
    CHECK(manager.hear() == "WATCHDOG=1\n");
    CHECK(manager.hear().empty());  // A loop that does not turn feeds nothing.
    while (fed < 3) {
      REQUIRE(io.run_one_for(10s) == 1);
      fed += manager.hear() == "WATCHDOG=1\n" ? 1 : 0;
    }
  }
  CHECK(io.run_for(10s) <= 1);  // The cancelled wait, and nothing after it.
  CHECK(manager.hear().empty());
}

TEST_CASE("service notify: the variables are taken, so that no child speaks for the daemon", "[notify]") {
  REQUIRE(::setenv("NOTIFY_SOCKET", "@x", 1) == 0);
  REQUIRE(::setenv("WATCHDOG_USEC", "7", 1) == 0);
  REQUIRE(::setenv("WATCHDOG_PID", "8", 1) == 0);
  const NotifyEnvironment taken = take_notify_environment();
  CHECK(taken.socket == "@x");
  CHECK(taken.watchdog_usec == "7");
  CHECK(taken.watchdog_pid == "8");
  for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) CHECK(std::getenv(name) == nullptr);
  CHECK(take_notify_environment().socket.empty());
}
