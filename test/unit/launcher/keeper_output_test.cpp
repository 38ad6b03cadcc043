// Output of ranks: nothing lost, torn or reordered; bounded memory; a console that is slow or
// does not move; a full disk.

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "keeper_test_support.hpp"
#include "launcher/keeper/agent_connection.hpp"
#include "launcher/keeper/console_lines.hpp"
#include "launcher/keeper/log_file.hpp"
#include "launcher/process/unique_fd.hpp"

using namespace sgd;
using keeper_test::read_file;
using keeper_test::TemporaryDir;
using keeper_test::TestKeeper;
using namespace std::chrono_literals;

namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr long kGrowthKibMax = 700 << 10;  // The sanitizer keeps freed memory for a while.
#else
constexpr long kGrowthKibMax = 16 << 10;
#endif

/// What `seq -f %079.0f <count>` prints: lines of 80 bytes.
std::string numbered_lines(int count) {
  std::string text;
  text.reserve(static_cast<std::size_t>(count) * 80);
  char line[96];
  for (int i = 1; i <= count; ++i) {
    std::snprintf(line, sizeof line, "%079d\n", i);
    text += line;
  }
  return text;
}

std::int64_t lines_of(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

/// Not CHECK(a == b): a mismatch of megabytes would be printed.
void check_equal(const std::string& got, const std::string& wanted) {
  CHECK(got.size() == wanted.size());
  CHECK(std::mismatch(got.begin(), got.end(), wanted.begin(), wanted.end()).first == got.end());
}

std::string without_marks(std::string text) {
  std::string plain;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t mark = std::min(text.find(keeper::kSplitMark, begin), text.size());
    plain.append(text, begin, mark - begin);
    begin = mark + keeper::kSplitMark.size();
  }
  return plain;
}

}  // namespace

TEST_CASE("keeper output: a pipe is no log file, and holds nobody") {
  const TemporaryDir dir;
  REQUIRE(::mkfifo(dir.file("log").c_str(), 0600) == 0);
  CHECK_FALSE(keeper::LogFile::open(dir.file("log")));  // Nobody reads it.
  const process::UniqueFd reader(::open(dir.file("log").c_str(), O_RDONLY | O_NONBLOCK));
  const auto read_by_somebody = keeper::LogFile::open(dir.file("log"));
  REQUIRE_FALSE(read_by_somebody);
  CHECK_THAT(read_by_somebody.error().message, Catch::EndsWith("is a pipe"));
}

namespace {

/// A log that has one line, in folders as a run has them.
struct WrittenLog {
  explicit WrittenLog(const std::string& name = "run/logs/gen-0001/rank-0000.log") : path(dir.file(name)) {
    std::filesystem::create_directories(logs().parent_path());
    auto opened = keeper::LogFile::open(path);
    REQUIRE(opened.ok());
    log = std::move(opened).value();
    log.write("one\n");
  }
  [[nodiscard]] std::filesystem::path logs() const { return std::filesystem::path(path).parent_path().parent_path(); }
  [[nodiscard]] bool is_there() const { return std::filesystem::exists(path); }

  TemporaryDir dir;
  std::string path;
  keeper::LogFile log;
};

}  // namespace

TEST_CASE("keeper output: a log that its program has removed is made again, with all that was in it") {
  WrittenLog written;
  std::filesystem::remove_all(written.logs());
  const TimePoint now(1h);
  written.log.look(now);
  written.log.write("two\n");
  written.log.look(now + keeper::LogFile::kRestoreAfter / 2);
  CHECK_FALSE(written.is_there());  // Its program may be about to make the folder.
  written.log.look(now + keeper::LogFile::kRestoreAfter);
  CHECK(read_file(written.path) == "one\ntwo\n");
  written.log.write("three\n");
  std::filesystem::rename(written.logs(), written.dir.file("run/aside"));
  written.log.look_last();
  CHECK(read_file(written.path) == "one\ntwo\nthree\n");
  CHECK_FALSE(written.log.take_dropped(0));
}

TEST_CASE("keeper output: a log that cannot be made again counts as lost; limits kRestoresMax, kRestoredBytesMax") {
  WrittenLog replaced;
  std::filesystem::remove_all(replaced.logs());
  { const std::ofstream file(replaced.logs()); }
  replaced.log.look_last();
  replaced.log.write("two\n");
  auto dropped = replaced.log.take_dropped(3);
  REQUIRE(dropped);
  CHECK(dropped->rank == 3);
  CHECK(dropped->bytes == 8);
  CHECK_THAT(dropped->reason, Catch::Contains("was removed or replaced while its worker ran"));
  CHECK_FALSE(dropped->is_on_console);

  WrittenLog removed;
  for (int count = 0; count < keeper::LogFile::kRestoresMax; ++count) {
    std::filesystem::remove_all(removed.logs());
    removed.log.look_last();
    CHECK(removed.is_there());
  }
  std::filesystem::remove_all(removed.logs());
  removed.log.look_last();
  CHECK_FALSE(removed.is_there());
  dropped = removed.log.take_dropped(0);
  REQUIRE(dropped);
  CHECK_THAT(dropped->reason, Catch::EndsWith("again and again"));

  WrittenLog long_one;
  std::filesystem::resize_file(long_one.path, keeper::LogFile::kRestoredBytesMax);
  auto opened = keeper::LogFile::open(long_one.path);
  REQUIRE(opened.ok());
  opened.value().write("x");
  std::filesystem::remove(long_one.path);
  opened.value().look_last();
  CHECK_FALSE(long_one.is_there());
  dropped = opened.value().take_dropped(0);
  REQUIRE(dropped);
  CHECK(dropped->bytes == keeper::LogFile::kRestoredBytesMax + 1);
}

TEST_CASE("keeper output: a log that was cut is told of; one whose run was removed is not made again") {
  WrittenLog cut;
  std::filesystem::resize_file(cut.path, 1);
  cut.log.look_last();
  const auto dropped = cut.log.take_dropped(0);
  REQUIRE(dropped);
  CHECK(dropped->bytes == 3);
  CHECK_THAT(dropped->reason, Catch::Contains("was cut short"));

  WrittenLog gone;
  std::filesystem::remove_all(gone.dir.file("run"));
  gone.log.look_last();
  CHECK_FALSE(std::filesystem::exists(gone.dir.file("run")));
  CHECK(gone.log.take_dropped(0));
}

TEST_CASE("two ranks of 50,000 lines, killed right after the last one: every line, in order", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  for (Rank rank : {0, 1}) {
    keeper.spawn_shell(rank, "seq -f %079.0f 50000; kill -9 $$", dir.file("log" + std::to_string(rank)));
  }
  const std::string wanted = numbered_lines(50000);
  const keeper::Exited exits[] = {keeper.wait<keeper::Exited>(), keeper.wait<keeper::Exited>()};
  for (const keeper::Exited& exited : exits) {
    CHECK(exited.signal == 9);
    REQUIRE(exited.tail.size() == keeper::kTailLines);
    CHECK(exited.tail.back() == wanted.substr(wanted.size() - 80, 79));
    CHECK(exited.tail.front() == wanted.substr(wanted.size() - 20 * 80, 79));
    check_equal(keeper.output[exited.rank], wanted);
    check_equal(read_file(dir.file("log" + std::to_string(exited.rank))), wanted);
  }
  CHECK(keeper.messages.size() == 2);  // The two Spawned; nothing was dropped.
}

TEST_CASE("24 MB without a newline: bounded memory, a whole file, a split console line", "[keeper][29]") {
  TemporaryDir dir;
  TestKeeper keeper;
  const long before = keeper_test::memory_kib(keeper.pid(), "VmRSS");
  keeper.spawn_shell(0, "head -c 24000000 /dev/zero | tr '\\0' x", dir.file("log"));
  const auto exited = keeper.wait<keeper::Exited>();
  CHECK(exited.exit_code == 0);
  CHECK(keeper_test::memory_kib(keeper.pid(), "VmHWM") - before < kGrowthKibMax);
  const std::string wanted(24000000, 'x');
  check_equal(read_file(dir.file("log")), wanted);
  check_equal(without_marks(keeper.output[0]), wanted + "\n");
  REQUIRE_FALSE(exited.tail.empty());
  CHECK(exited.tail.back().size() == keeper::kTailLineBytesMax);
}

TEST_CASE("an unfinished line is in the file at once and on the console when it ends", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  keeper.spawn_shell(0, "printf par; while [ ! -e " + dir.file("go") + " ]; do sleep 0.01; done; echo tial; printf end",
                     dir.file("log"));
  CHECK(keeper_test::wait_file(dir.file("log"), 20s) == "par");
  CHECK(keeper.wait<keeper::Spawned>().rank == 0);
  CHECK(keeper.output[0].empty());
  keeper.spawn_shell(1, "echo through the same loop", dir.file("log1"));
  CHECK(keeper.wait<keeper::Exited>().rank == 1);
  CHECK(keeper.output[0].empty());
  std::fclose(std::fopen(dir.file("go").c_str(), "w"));
  const auto exited = keeper.wait<keeper::Exited>();
  CHECK(keeper.output[0] == "partial\nend\n");
  CHECK(read_file(dir.file("log")) == "partial\nend");
  CHECK(exited.tail == std::vector<std::string>{"partial", "end"});
}

TEST_CASE("a full window holds the writer back, and nothing is lost once the console goes on", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  keeper.acknowledge = false;
  keeper.spawn_shell(0, "seq -f %079.0f 200000", dir.file("log"));
  const std::int64_t full = keeper::kOutputWindowBytes - static_cast<std::int64_t>(keeper::kConsoleRoom);
  keeper.require_until("a full window", 20s, [&] { return keeper.unacknowledged > full; });
  while (keeper.read_some(200ms)) {  // What was on its way when it became full.
  }
  CHECK(keeper.unacknowledged <= keeper::kOutputWindowBytes);
  const std::string log = read_file(dir.file("log"));
  CHECK(log.size() < 6'000'000);  // The rank waits: its file has not grown past the window.
  // A slow console takes some bytes at a time.
  for (int i = 0; i < 5; ++i) {
    keeper.send(keeper::OutputAck{1000});
    keeper.unacknowledged -= 1000;
    (void)keeper.read_some(20ms);  // Ignoring: an acknowledgement may make room for one more chunk.
  }
  CHECK(read_file(dir.file("log")).size() < 6'000'000);
  keeper.send(keeper::OutputAck{keeper.unacknowledged});
  keeper.unacknowledged = 0;
  keeper.acknowledge = true;
  CHECK(keeper.wait<keeper::Exited>().exit_code == 0);
  const std::string wanted = numbered_lines(200000);
  check_equal(keeper.output[0], wanted);
  check_equal(read_file(dir.file("log")), wanted);
  keeper::OutputDropped dropped;
  CHECK_FALSE(keeper.take(dropped));
}

TEST_CASE("a console that does not move loses lines with a count; the file is complete", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper(keeper::ConsoleWindow::kPatience);
  keeper.acknowledge = false;
  keeper.spawn_shell(0, "seq -f %079.0f 200000", dir.file("log"));
  const auto exited = keeper.wait<keeper::Exited>(30s);
  const auto dropped = keeper.wait<keeper::OutputDropped>(1s);
  check_equal(read_file(dir.file("log")), numbered_lines(200000));
  CHECK(exited.tail.back() == std::string(73, '0') + "200000");
  CHECK(dropped.rank == 0);
  CHECK(dropped.lines > 100000);
  CHECK(dropped.bytes == dropped.lines * 80);
  CHECK(dropped.lines + lines_of(keeper.output[0]) == 200000);
  keeper::OutputDropped again;
  CHECK_FALSE(keeper.take(again));  // One burst, one message.
  keeper.send(keeper::OutputAck{keeper.unacknowledged});
  keeper.unacknowledged = 0;
  keeper.spawn_shell(1, "echo back again", dir.file("log1"));
  CHECK(keeper.wait<keeper::Exited>().rank == 1);
  CHECK(keeper.output[1] == "back again\n");
}

TEST_CASE("a rank that floods does not keep another one's line back", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  keeper.spawn_shell(0, "yes | head -c 2000000000; sleep 1000", "");
  keeper.require_until("the flood", 20s, [&] { return keeper.output[0].size() > 1'000'000; });
  keeper.spawn_shell(1, "echo small", dir.file("log1"));
  keeper.require_until("the other rank's line", 20s, [&] {
    keeper.output[0].clear();
    return keeper.output[1] == "small\n";
  });
  const auto exited = keeper.wait<keeper::Exited>(5s);
  CHECK(exited.rank == 1);
}

TEST_CASE("a full disk drops file bytes, counted and named; the console goes on", "[keeper]") {
  TestKeeper keeper;
  keeper.spawn_shell(0, "seq -f %079.0f 20000", "/dev/full");
  CHECK(keeper.wait<keeper::Exited>().exit_code == 0);
  check_equal(keeper.output[0], numbered_lines(20000));
  std::int64_t bytes = 0;
  std::int64_t lines = 0;
  int messages = 0;
  for (keeper::OutputDropped dropped; keeper.take(dropped); ++messages) {
    CHECK_THAT(dropped.reason, Catch::Contains("/dev/full") && Catch::Contains("No space left on device"));
    bytes += dropped.bytes;
    lines += dropped.lines;
  }
  CHECK(bytes == 20000 * 80);
  CHECK(lines == 20000);
  CHECK(messages <= 2);  // When it begins and when it ends.
}
