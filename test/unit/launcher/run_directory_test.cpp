#include "launcher/storage/run_directory.hpp"

#include <stdlib.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "launcher/storage/run_lookup.hpp"
#include "test/unit/common/file_size_limit.hpp"

using namespace sgd;
namespace fs = std::filesystem;

namespace {

/// An empty folder that is the working directory while this lives.
class WorkingDirectory {
 public:
  WorkingDirectory() : before_(fs::current_path()) {
    char name[] = "/tmp/sgd-run-directory-XXXXXX";
    path_ = ::mkdtemp(name);
    fs::current_path(path_);
  }
  ~WorkingDirectory() {
    fs::current_path(before_);
    fs::remove_all(path_);
  }

 private:
  fs::path before_;
  fs::path path_;
};

std::vector<nlohmann::json> json_lines_of(const fs::path& path) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

}  // namespace

TEST_CASE("a run's folder is chosen, filled and found again") {
  WorkingDirectory here;
  const auto place = storage::choose_run_place("my job", "");
  REQUIRE(place.ok());
  CHECK(place.value().id.starts_with("my-job-"));
  CHECK_FALSE(fs::exists(place.value().directory));
  auto run = storage::RunDirectory::create(place.value(), {{"name", "my job"}});
  REQUIRE(run.ok());
  REQUIRE(run.value()->append_event({{"event", "run_started"}, {"num_workers", 2}}).ok());
  REQUIRE(run.value()->append_metrics({{"phase", "train"}, {"train_loss", 0.5}}).ok());
  REQUIRE(run.value()
              ->append_metrics({{"_time_total_s", 2.0}, {"workers", {{{"_time_total_s", 2.0}}, {{"x", 1}}}}}, 86400.5)
              .ok());
  core::RunOutcome outcome;
  outcome.state = "succeeded";
  REQUIRE(run.value()->write_summary(outcome).ok());

  const auto events = json_lines_of(place.value().directory + "/events.jsonl");
  REQUIRE(events.size() == 1);
  CHECK(events[0].at("event") == "run_started");
  CHECK(events[0].at("time").get<double>() > 1e9);
  const auto lines = json_lines_of(place.value().directory + "/metrics.jsonl");
  CHECK(lines[0].at("_timestamp").is_number_integer());
  CHECK_FALSE(lines[0].contains("_date"));
  // Of a detailed line, and of each worker in it.
  CHECK(lines[1].at("_date").get<std::string>().starts_with("1970-01-0"));
  CHECK(lines[1].at("workers")[0].at("_date") == lines[1].at("_date"));
  CHECK(lines[1].at("workers")[1].at("_timestamp") == 86400);
  CHECK_FALSE(lines[1].at("workers")[1].contains("_date"));
  std::ifstream summary(place.value().directory + "/summary.json");
  CHECK(nlohmann::json::parse(summary).at("state") == "succeeded");

  const std::string canonical = fs::canonical(place.value().directory).string();
  for (const std::string& name : {std::string(), place.value().id, std::string("my-j"), place.value().directory})
    CHECK(storage::find_run(name).value() == canonical);
}

TEST_CASE("hundreds of runs of one second have a folder each") {
  WorkingDirectory here;
  constexpr int kRuns = 1000;  // Of 65,536 names a second: two alike are as good as certain.
  int made = 0;
  for (int run = 0; run < kRuns; ++run) {
    const auto place = storage::choose_run_place("x", "");
    REQUIRE(place.ok());
    made += fs::create_directories(place.value().directory) ? 1 : 0;
  }
  CHECK(made == kRuns);
}

TEST_CASE("names that fit no run or several say what there is") {
  WorkingDirectory here;
  CHECK_FALSE(storage::find_run("").ok());
  for (const char* name : {"aa-1", "aa-2"}) {
    const auto place = storage::choose_run_place("x", std::string("runs/") + name);
    REQUIRE(storage::RunDirectory::create(place.value(), {}).ok());
  }
  CHECK(storage::find_run("aa").error().message == "\"aa\" is not unique: aa-1, aa-2");
  CHECK(storage::find_run("bb").error().message.find("there is aa-1, aa-2") != std::string::npos);
  fs::create_directory("other");
  CHECK(storage::find_run("other").error().message ==
        "no run \"other\": this folder has no events.jsonl; there is aa-1, aa-2");
}

TEST_CASE("a whole id is found without a look at all other runs") {
  WorkingDirectory here;
  for (const char* name : {"aa", "aa-1"}) {
    fs::create_directories(std::string("runs/") + name);
    std::ofstream(std::string("runs/") + name + "/events.jsonl") << "{}\n";
  }
  fs::create_directory_symlink("aa", "runs/link");
  // Whoever lists a folder opens it.
  const int watch = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  REQUIRE(::inotify_add_watch(watch, "runs", IN_OPEN | IN_ONLYDIR) >= 0);
  const auto is_listed = [&] {
    char events[4096];
    return ::read(watch, events, sizeof events) > 0;
  };
  const std::string folder = fs::current_path().string() + "/runs/";
  CHECK(storage::find_run("aa").value() == folder + "aa");
  CHECK(storage::find_run("aa-1").value() == folder + "aa-1");
  CHECK_FALSE(is_listed());
  CHECK(storage::find_run("aa-").value() == folder + "aa-1");
  CHECK(is_listed());
  for (const char* name : {"link", ".", "aa/", "b"}) CHECK_FALSE(storage::find_run(name).ok());
  ::close(watch);
}

TEST_CASE("a run directory that cannot be used is refused before anything is made") {
  WorkingDirectory here;
  std::ofstream("file") << "x";
  fs::create_directory("full");
  std::ofstream("full/something") << "x";
  CHECK_FALSE(storage::choose_run_place("x", "file").ok());
  CHECK_FALSE(storage::choose_run_place("x", "file/below").ok());
  CHECK(storage::choose_run_place("x", "full").error().message.find("not empty") != std::string::npos);
  CHECK(storage::choose_run_place("x", "new/deep/run").ok());
  CHECK_FALSE(fs::exists("new"));
}

TEST_CASE("a run directory whose path JSON cannot carry is refused before anything is made") {
  WorkingDirectory here;
  const auto place = storage::choose_run_place("x", "runs-\xff/one");
  REQUIRE_FALSE(place.ok());
  CHECK_THAT(place.error().message, Catch::Contains("its name is not UTF-8"));
  CHECK_FALSE(fs::exists("runs-\xff"));
  const std::string made_before = (fs::current_path() / "r\xfe").string();
  fs::create_directory(made_before);
  const auto reopened = storage::RunDirectory::create({"r", made_before}, {});
  REQUIRE_FALSE(reopened.ok());
  CHECK_THAT(reopened.error().message, Catch::Contains("its name is not UTF-8"));
}

TEST_CASE("a run that outlives its process has the name that the next one finds, wherever it lies") {
  if (::geteuid() != 0) return;  // Nobody else names folders by descriptors.
  WorkingDirectory here;
  fs::create_directory("of-all");
  fs::permissions("of-all", fs::perms::all);
  const auto path_of = [](const char* name, bool is_lasting) {
    const std::string folder = (fs::current_path() / "of-all" / name).string();
    const auto run = storage::RunDirectory::create({name, folder, is_lasting}, {});
    REQUIRE(run.ok());
    return run.value()->path() == folder;
  };
  CHECK_FALSE(path_of("one", false));
  CHECK(path_of("two", true));
  const std::string two = (fs::current_path() / "of-all" / "two").string();
  CHECK(storage::RunDirectory::adopt({"two", two}, {}, {}).value()->path() == two);
}

TEST_CASE("run directory: a job.json that cannot be read is that run's error, and ends nobody") {
  const WorkingDirectory here;
  const std::string path = (fs::current_path() / "one").string();
  const nlohmann::json job = {{"name", "one"}};
  REQUIRE(storage::RunDirectory::create({"one", path}, job).ok());
  fs::remove(path + "/job.json");
  fs::create_directory(path + "/job.json");
  CHECK(storage::RunDirectory::adopt({"one", path}, job, {}).error().code == EISDIR);
  CHECK_FALSE(fs::exists(path + "/job.json.tmp"));
  fs::remove(path + "/job.json");
  CHECK(storage::RunDirectory::adopt({"one", path}, job, {}).ok());
}

TEST_CASE("run directory: a file that cannot be written whole leaves the one before, and no half of one") {
  const WorkingDirectory here;
  const std::string path = (fs::current_path() / "one").string();
  auto run = storage::RunDirectory::create({"one", path}, nlohmann::json::object());
  REQUIRE(run.ok());
  REQUIRE(run.value()->write_best({{"trial", 1}}).ok());
  {
    const test::FileSizeLimit full(1000);
    CHECK(run.value()->write_best({{"trial", std::string(2000, '2')}}).error().code == EFBIG);
  }
  CHECK_FALSE(fs::exists(path + "/best.json.tmp"));
  std::ifstream best(path + "/best.json");
  CHECK(nlohmann::json::parse(std::string(std::istreambuf_iterator<char>(best), {})).at("trial") == 1);
}
