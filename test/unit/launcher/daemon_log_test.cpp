// A daemon's log, read back from a pipe: its formats, one line per message, and its limit per key.

#include "launcher/process/daemon_log.hpp"
#include "common/json/nlohmann.hpp"

#include <fcntl.h>
#include <pty.h>
#include <sys/stat.h>
#include <unistd.h>

#include <limits>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "launcher/process/unique_fd.hpp"

using namespace sgd;
using namespace sgd::process;
using namespace std::chrono_literals;

namespace {

struct Written {
  UniqueFd out;
  UniqueFd in;
  TimePoint now{};
  double unix_time = 1763720100.25;

  Written() {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    out.reset(ends[0]);
    in.reset(ends[1]);
  }
  DaemonLog::Settings settings(LogFormat format) {
    DaemonLog::Settings settings;
    settings.fd = in.get();
    settings.format = format;
    settings.burst = 2;
    settings.window = 10s;
    settings.monotonic = [this] { return now; };
    settings.unix_time = [this] { return unix_time; };
    return settings;
  }
  std::string text() const {
    char buffer[32 << 10];
    const ssize_t bytes = ::read(out.get(), buffer, sizeof buffer);
    return bytes < 0 ? "" : std::string(buffer, static_cast<std::size_t>(bytes));
  }
};

}  // namespace

TEST_CASE("daemon log: the three formats", "[log]") {
  Written written;
  SECTION("text") {
    DaemonLog(written.settings(LogFormat::kText)).write(LogLevel::kWarning, "k", "a message");
    CHECK(written.text() == "2025-11-21T10:15:00.250000Z warning: a message\n");
  }
  SECTION("the journal") {
    DaemonLog log(written.settings(LogFormat::kJournal));
    log.write(LogLevel::kError, "a", "one");
    log.write(LogLevel::kInfo, "b", "two");
    CHECK(written.text() == "<3>one\n<6>two\n");
  }
  SECTION("JSON") {
    DaemonLog(written.settings(LogFormat::kJson)).write(LogLevel::kInfo, "k", "say \"x\"\n\xff");
    CHECK(written.text() ==
          "{\"time\":1763720100.25,\"level\":\"info\",\"key\":\"k\",\"message\":\"say "
          "\\\"x\\\"\\n\xef\xbf\xbd\"}\n");
  }
}

TEST_CASE("daemon log: a message is one line, whatever a peer put into it", "[log]") {
  Written written;
  DaemonLog log(written.settings(LogFormat::kJournal));
  log.write(LogLevel::kInfo, "k", "node \"a\n<0>forged\x1b[2J\r\"");
  CHECK(written.text() == "<6>node \"a\\n<0>forged\\x1b[2J\\x0d\"\n");
  log.write(LogLevel::kInfo, "k", std::string(10'000, 'x'));
  const std::string line = written.text();
  CHECK(line.size() < DaemonLog::kMessageBytesMax + 40);
  CHECK_THAT(line, Catch::EndsWith("x [5904 bytes more]\n"));
}

TEST_CASE("daemon log: levels below the threshold are not written", "[log]") {
  Written written;
  DaemonLog log(written.settings(LogFormat::kJournal));
  log.write(LogLevel::kDebug, "k", "frame");
  CHECK(written.text().empty());
}

TEST_CASE("daemon log: more than the burst is counted, per key, and the count is said", "[log]") {
  Written written;
  DaemonLog log(written.settings(LogFormat::kJournal));
  for (int number = 0; number < 1000; ++number)
    log.write(LogLevel::kWarning, "refused", fmt::format("refused {}", number));
  log.write(LogLevel::kInfo, "joined", "joined");
  CHECK(written.text() == "<4>refused 0\n<4>refused 1\n<6>joined\n");
  written.now += 9s;
  log.log_repeats();
  CHECK(written.text().empty());
  written.now += 1s;
  log.log_repeats();
  CHECK(written.text() == "<4>refused: 998 more within 10s, not shown\n");
  log.write(LogLevel::kWarning, "refused", "again");
  CHECK(written.text() == "<4>again\n");
}

TEST_CASE("daemon log: what was held back is said at the end, with the gravest level", "[log]") {
  Written written;
  {
    DaemonLog log(written.settings(LogFormat::kJournal));
    for (const LogLevel level : {LogLevel::kInfo, LogLevel::kInfo, LogLevel::kInfo, LogLevel::kError})
      log.write(level, "k", "x");
    CHECK(written.text() == "<6>x\n<6>x\n");
  }
  CHECK(written.text() == "<3>k: 2 more within 10s, not shown\n");
}

TEST_CASE("daemon log: keys beyond the limit share one", "[log]") {
  Written written;
  DaemonLog log(written.settings(LogFormat::kJournal));
  for (std::size_t number = 0; number < DaemonLog::kKeysMax + 1000; ++number)
    log.write(LogLevel::kInfo, fmt::format("key{}", number), "x");
  CHECK(written.text().size() == (DaemonLog::kKeysMax + 2) * std::string("<6>x\n").size());
  written.now += 1min;
  log.log_repeats();
  CHECK(written.text() == "<6>other: 998 more within 10s, not shown\n");
}

TEST_CASE("daemon log: the format follows the option and the journal's stream", "[log]") {
  Written written;
  struct stat info {};
  REQUIRE(::fstat(written.in.get(), &info) == 0);
  const std::string stream = fmt::format("{}:{}", info.st_dev, info.st_ino);
  CHECK(log_format("auto", stream, written.in.get()) == LogFormat::kJournal);
  CHECK(log_format("auto", "1:2", written.in.get()) == LogFormat::kText);
  CHECK(log_format("auto", "", written.in.get()) == LogFormat::kText);
  CHECK(log_format("auto", "", -1) == LogFormat::kText);
  CHECK(log_format("json", stream, written.in.get()) == LogFormat::kJson);
  CHECK(log_format("text", stream, written.in.get()) == LogFormat::kText);
  CHECK_FALSE(log_format("xml", stream, written.in.get()));
}

TEST_CASE("daemon log: nobody reads it, and the daemon goes on, and says later how much is lost", "[log]") {
  Written written;
  DaemonLog log(written.settings(LogFormat::kText));
  while (::write(written.in.get(), "x", 1) == 1) {
  }
  REQUIRE(::fcntl(written.in.get(), F_SETFL, 0) == 0);  // Writing waits, as at what a shell gives.
  const std::string time = "2025-11-21T10:15:00.250000Z ";
  SECTION("whole messages") {
    log.write(LogLevel::kInfo, "a", "lost");
    log.write(LogLevel::kInfo, "b", "lost, too");
    while (!written.text().empty()) {
    }
    log.write(LogLevel::kInfo, "c", "heard");
    CHECK(written.text() == time + "warning: 2 messages are lost: nobody has read this log\n" + time + "info: heard\n");
  }
  SECTION("the end of one") {
    char page[4096];
    REQUIRE(::read(written.out.get(), page, sizeof page) == sizeof page);
    log.write(LogLevel::kInfo, "a", std::string(DaemonLog::kMessageBytesMax, 'y'));
    while (!written.text().empty()) {
    }
    log.write(LogLevel::kInfo, "c", "heard");
    CHECK(written.text() ==
          "\n" + time + "warning: 1 message is lost: nobody has read this log\n" + time + "info: heard\n");
  }
}

TEST_CASE("daemon log: a terminal that nobody reads makes no daemon wait", "[log]") {
  int master = -1;
  int slave = -1;
  REQUIRE(::openpty(&master, &slave, nullptr, nullptr, nullptr) == 0);
  const UniqueFd reader(master);
  const UniqueFd shells(slave);
  REQUIRE(set_nonblocking(master));
  Written written;
  DaemonLog::Settings settings = written.settings(LogFormat::kText);
  settings.fd = slave;
  settings.burst = std::numeric_limits<int>::max();
  DaemonLog log(std::move(settings));
  for (int number = 0; number < 500; ++number)
    log.write(LogLevel::kInfo, "a", std::string(DaemonLog::kMessageBytesMax, 'y'));
  std::string seen;
  char page[4096];
  while (seen.find("nobody has read this log") == std::string::npos) {
    const ssize_t count = ::read(master, page, sizeof page);
    if (count > 0) seen.append(page, static_cast<std::size_t>(count));
    log.write(LogLevel::kInfo, "b", "heard");
  }
}
