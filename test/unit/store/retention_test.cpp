// Which folders of ended runs go, and that they go whole.

#include "launcher/storage/retention.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include "common/job/load.hpp"
#include "launcher/coordinator/run_retention.hpp"
#include "launcher/storage/beneath.hpp"
#include "launcher/storage/file_owner.hpp"
#include "launcher/storage/remove_tree.hpp"
#include "launcher/storage/run_directory.hpp"
#include "state_folder.hpp"

using namespace sgd;
using namespace std::chrono_literals;
using storage::EndedRun;

namespace {

/// Of ours, how many are open on `path`.
int descriptors_of(const std::string& path) {
  int count = 0;
  std::error_code error;
  std::filesystem::directory_iterator fd("/proc/self/fd", error);
  for (; !error && fd != std::filesystem::directory_iterator(); fd.increment(error)) {
    std::error_code closed;
    count += std::filesystem::read_symlink(fd->path(), closed) == path ? 1 : 0;
  }
  return count;
}

std::string ids(const std::vector<EndedRun>& runs) {
  std::string text;
  for (const EndedRun& run : runs) text += (text.empty() ? "" : " ") + run.id;
  return text;
}

}  // namespace

TEST_CASE("retention: what goes, by number, age and bytes") {
  const std::vector<EndedRun> ended = {
      {"d", "", 400, 40, false}, {"a", "", 100, 10, false}, {"c", "", 300, 30, true}, {"b", "", 200, 20, false}};
  struct Row {
    storage::Retention retention;
    const char* gone;
  };
  const Row rows[] = {
      {{}, ""},
      {{3, {}, {}}, ""},
      {{1, {}, {}}, "a b"},
      {{0, {}, {}}, "a b d"},
      {{{}, 250s, {}}, "a b"},
      {{{}, 1s, {}}, "a b d"},
      {{{}, {}, 100}, ""},
      {{{}, {}, 90}, "a"},
      {{{}, {}, 70}, "a b"},
      {{{}, {}, 30}, "a b d"},
      {{2, 350s, 1000}, "a"},
  };
  for (const Row& row : rows) CHECK(ids(storage::beyond(ended, row.retention, 500)) == row.gone);
}

TEST_CASE("retention: what has ended later than now stays, and takes no other one's place") {
  const std::vector<EndedRun> ended = {{"old", "", 100, 10, false},
                                       {"new", "", 200, 10, false},
                                       {"ahead", "", 5000, 10, false},
                                       {"further", "", 6000, 10, false}};
  CHECK(ids(storage::beyond(ended, {1, {}, {}}, 300)) == "old");
  CHECK(ids(storage::beyond(ended, {{}, {}, 20}, 300)).empty());
  CHECK(ids(storage::beyond(ended, {{}, 150s, {}}, 300)) == "old");
  CHECK(ids(storage::beyond(ended, {1, {}, {}}, 7000)) == "old new ahead");
}

TEST_CASE("retention: a clock that is set forward makes nothing old before it has lasted") {
  using coordinator::AgeClock;
  AgeClock clock;
  const TimePoint begin{};
  CHECK(clock.read(1000, begin) == 1000);
  CHECK(clock.read(1601, begin + 600s) == 1601);  // It was set right by a second.
  constexpr double kYear = 365 * 86400.0;
  CHECK(clock.read(kYear + 2201, begin + 1200s) == 2201);
  CHECK(clock.read(2801, begin + 1800s) == 2801);  // Set right again.
  CHECK(clock.read(2000, begin + 2400s) == 2000);  // Set back.
  CHECK(clock.read(kYear, begin + 3000s) == 2600);
  CHECK(clock.read(kYear + 3600, begin + 6600s) == 6200);
  CHECK(clock.read(kYear + 86400, begin + 3000s + AgeClock::kDoubt) == kYear + 86400);
}

TEST_CASE("retention: a run's folder is measured, pinned and removed, and links out of it lead nowhere") {
  const test::StateFolder folder;
  const std::string path = folder.run("one");
  const std::string other = folder.run("other");
  auto run = storage::RunDirectory::create({"one", path}, nlohmann::json::object());
  REQUIRE(run.ok());
  REQUIRE(storage::RunDirectory::create({"other", other}, nlohmann::json::object()).ok());
  REQUIRE(run.value()->append_event({{"event", "run_started"}}).ok());
  std::ofstream(path + "/logs/big") << std::string(100'000, 'x');
  std::ofstream(other + "/kept") << "x";
  std::filesystem::create_directory_symlink(other, path + "/checkpoints/link");
  CHECK(storage::bytes_below(path) >= 100'000);
  CHECK(storage::bytes_below(path) < 200'000);
  CHECK(storage::is_run_live(path));
  run.value().reset();
  CHECK_FALSE(storage::is_run_live(path));
  CHECK_FALSE(storage::is_pinned(path));
  REQUIRE(storage::set_pinned(path, true).ok());
  CHECK(storage::is_pinned(path));
  REQUIRE(storage::set_pinned(path, false).ok());
  REQUIRE(storage::set_pinned(path, false).ok());
  CHECK_FALSE(storage::is_pinned(path));
  const auto runs = storage::runs_below(std::filesystem::path(path).parent_path());
  REQUIRE(runs.size() == 2);
  for (const EndedRun& one : runs) CHECK((one.finished_s > 0 && (one.id == "one" || one.id == "other")));
  REQUIRE(storage::remove_run_folder(path).ok());
  CHECK_FALSE(std::filesystem::exists(path));
  CHECK(std::filesystem::exists(other + "/kept"));
  REQUIRE(storage::remove_run_folder(path).ok());
}

TEST_CASE("retention: who looks whether a run is live is taken for none, and keeps nobody out") {
  const test::StateFolder folder;
  const std::string path = folder.run("one");
  REQUIRE(storage::RunDirectory::create({"one", path}, nlohmann::json::object()).ok());
  const storage::Descriptor look(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  REQUIRE(::flock(look.get(), LOCK_SH) == 0);
  CHECK_FALSE(storage::is_run_live(path));
  std::atomic<bool> is_over = false;
  std::thread looker([&] {  // It lets go when somebody else has opened the folder.
    while (!is_over && descriptors_of(path) < 2) std::this_thread::yield();
    (void)::flock(look.get(), LOCK_UN);
  });
  const bool has_begun = storage::RunDirectory::adopt({"one", path}, {}, {}).ok();
  is_over = true;
  looker.join();
  CHECK(has_begun);
}

TEST_CASE("retention: folders that nobody knows are strays, unless they are new, live or known") {
  const test::StateFolder folder;
  const std::string runs = std::filesystem::path(folder.run("x")).parent_path();
  for (const char* name : {"known", "stray", "live", "new", "none"}) {
    std::filesystem::create_directories(folder.run(name));
    if (name != std::string("none")) std::ofstream(folder.run(name) + "/events.jsonl") << "{}\n";
  }
  std::filesystem::create_directory_symlink(folder.run("stray"), runs + "/latest");
  const auto live = storage::RunDirectory::adopt({"live", folder.run("live")}, {}, {});
  REQUIRE(live.ok());
  const auto before = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
  for (const char* name : {"known", "stray", "live"})
    std::filesystem::last_write_time(folder.run(name) + "/events.jsonl", before);
  const auto strays = storage::strays_below(runs, {"known"}, static_cast<double>(std::time(nullptr)));
  REQUIRE(strays.size() == 1);
  CHECK(strays[0].id == "stray");
  CHECK(strays[0].directory == folder.run("stray"));
  CHECK(strays[0].finished_s > 0);
}

TEST_CASE("retention: who pins a run while its removal waits keeps it, or is told that it is too late") {
  const test::StateFolder folder;
  boost::asio::io_context io;
  coordinator::CoordinatorShell shell(io);
  core::RunDefinition run;
  run.id = "one";
  run.run_dir = folder.run("one");
  run.job = *job::load_resolved({{"name", "one"}, {"command", {"true"}}}).job;
  auto directory = storage::RunDirectory::create({run.id, run.run_dir}, run.job.resolved);
  REQUIRE(directory.ok());
  shell.submit(run, std::move(directory).value(), {});
  storage::FileThread files(io);
  coordinator::RunRetention retention(
      io, shell, files, folder.file("runs"), [](const RunId&) { return true; }, [](const std::string&) {});
  std::vector<std::string> said;
  const auto note = [&said](const std::string& why_not) { said.push_back(why_not); };
  const auto until = [&](const auto& done) {
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while (!done()) {
      REQUIRE(std::chrono::steady_clock::now() < deadline);
      if (io.stopped()) io.restart();
      io.run_one_for(10ms);
    }
  };
  retention.remove("one", note);  // Whether it is pinned is looked at in front of the order to pin it.
  retention.pin("one", true, note);
  until([&] { return said.size() == 2; });
  CHECK(said == std::vector<std::string>{"", "one is pinned: sgd-launch runs unpin one ends that"});
  CHECK(std::filesystem::exists(run.run_dir));
  said.clear();
  retention.pin("one", false, note);
  retention.remove("one", note);
  until([&] { return retention.is_going("one"); });
  retention.pin("one", true, note);
  CHECK(said.back() == "one is being removed");
  until([&] { return said.size() == 3; });
  CHECK(said.back().empty());
  CHECK_FALSE(std::filesystem::exists(run.run_dir));
}

TEST_CASE("retention: a folder of thousands of levels goes, whatever the limit of open files") {
  const test::StateFolder folder;
  const std::string top = folder.run("deep");
  std::filesystem::create_directories(top + "/.lifted-0/x");
  std::ofstream(top + "/.lifted-1") << "x";
  int at = ::open(top.c_str(), O_RDONLY | O_DIRECTORY);
  for (int level = 0; level < 3000; ++level) {
    REQUIRE(::mkdirat(at, "d", 0700) == 0);
    REQUIRE(::symlinkat("/etc", at, "link") == 0);
    const int below = ::openat(at, "d", O_RDONLY | O_DIRECTORY);
    ::close(std::exchange(at, below));
  }
  ::close(at);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit few{64, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  const std::error_code left = storage::remove_tree(top);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(left.message() == std::error_code().message());
  CHECK_FALSE(std::filesystem::exists(top));
  CHECK(std::filesystem::exists("/etc/passwd"));
  CHECK_FALSE(storage::remove_tree(top));  // A missing one is none.
}

namespace {

/// A folder for runs of somebody whom modes of files keep out: us, or under root another user, as whom we act.
struct ModestFolder {
  ModestFolder() {
    std::filesystem::create_directories(runs);
    if (::geteuid() != 0) return;
    REQUIRE(::chmod(std::filesystem::path(runs).parent_path().c_str(), 0711) == 0);
    REQUIRE(::chown(runs.c_str(), kNobody.uid, kNobody.gid) == 0);
    as.emplace(kNobody);
  }
  static constexpr storage::FileOwner kNobody{65534, 65534};
  const test::StateFolder folder;
  std::string runs = std::filesystem::path(folder.run("x")).parent_path();
  std::optional<storage::ScopedFileOwner> as;
};

mode_t mode_of(const std::string& path) {
  struct stat info {};
  REQUIRE(::lstat(path.c_str(), &info) == 0);
  return info.st_mode & 07777;
}

}  // namespace

TEST_CASE("retention: what cannot be removed is said, and what can goes") {
  const ModestFolder folder;
  const std::string top = folder.runs + "/closed";
  std::filesystem::create_directories(top + "/gone/below");
  REQUIRE(::chmod(folder.runs.c_str(), 0500) == 0);  // It is above, and so nobody's to open here.
  CHECK(storage::remove_tree(top) == std::errc::permission_denied);
  CHECK_FALSE(std::filesystem::exists(top + "/gone"));
  CHECK(mode_of(folder.runs) == 0500);
  REQUIRE(::chmod(folder.runs.c_str(), 0700) == 0);
  CHECK_FALSE(storage::remove_tree(top));
}

TEST_CASE("retention: folders that their owner has closed go, too, and those that links lead to stay closed") {
  const mode_t mode = GENERATE(0500, 0000, 0400, 0300, 0100);
  const ModestFolder folder;
  const std::string top = folder.runs + "/closed", other = folder.runs + "/other";
  std::filesystem::create_directories(other);
  std::vector<std::string> folders;
  for (const char* below : {"", "/mod", "/mod/package", "/mod/package/deep", "/mod/other"}) {
    folders.push_back(top + below);
    std::filesystem::create_directories(folders.back());
    std::ofstream(folders.back() + "/file") << "x";
  }
  std::filesystem::create_directory_symlink(other, top + "/mod/link");
  REQUIRE(::chmod(other.c_str(), 0500) == 0);
  for (auto one = folders.rbegin(); one != folders.rend(); ++one) REQUIRE(::chmod(one->c_str(), mode) == 0);
  const std::error_code left = storage::remove_tree(top);
  CHECK(left.message() == std::error_code().message());
  CHECK_FALSE(std::filesystem::exists(top));
  CHECK(mode_of(other) == 0500);
}
