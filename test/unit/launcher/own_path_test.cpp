// What root writes at places that others have a part in.

#include "launcher/process/own_path.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "launcher/callbacks/fresh_file.hpp"
#include "launcher/keeper/log_file.hpp"
#include "test/unit/common/temporary_folder.hpp"

using namespace sgd;
using process::OwnPath;
namespace fs = std::filesystem;

namespace {

constexpr uid_t kSomebody = 54321;

void link_of(uid_t user, const std::string& target, const std::string& path) {
  fs::create_symlink(target, path);
  if (::geteuid() == 0) REQUIRE(::lchown(path.c_str(), user, user) == 0);
}

/// The file that `path` leads to has "x" in it then.
Status write_by(const std::string& path, OwnPath::Folders folders = OwnPath::Folders::kAreMade) {
  const auto place = OwnPath::find(path, folders);
  if (!place) return place.error();
  const process::UniqueFd fd = place.value().open(O_WRONLY | O_CREAT, 0644);
  if (!fd) return system_error("open");
  return ::write(fd.get(), "x", 1) == 1 ? Status() : Status(system_error("write"));
}

}  // namespace

TEST_CASE("own path: folders are made, and links of one's own are followed", "[process]") {
  const test::TemporaryFolder folder;
  REQUIRE(write_by(folder.path("a/b/../c")));
  CHECK(fs::file_size(folder.path("a/c")) == 1);
  link_of(::geteuid(), "a/b", folder.path("relative"));
  link_of(::geteuid(), folder.path("relative"), folder.path("absolute"));
  REQUIRE(write_by(folder.path("absolute/d/e")));
  CHECK(fs::file_size(folder.path("a/b/d/e")) == 1);
  link_of(::geteuid(), "a/f", folder.path("file"));  // Made where it leads to, as open() does.
  REQUIRE(write_by(folder.path("file")));
  CHECK(fs::file_size(folder.path("a/f")) == 1);
  CHECK(fs::is_symlink(folder.path("file")));
}

TEST_CASE("own path: what cannot be got to is said", "[process]") {
  const test::TemporaryFolder folder;
  folder.write("file", "y");
  const auto code = [&](const char* path, OwnPath::Folders folders) {
    return write_by(folder.path(path), folders).error().code;
  };
  CHECK(code("missing/a", OwnPath::Folders::kMustBeThere) == ENOENT);
  CHECK(code("file/a", OwnPath::Folders::kAreMade) == ENOTDIR);
  fs::create_symlink("loop", folder.path("loop"));
  CHECK(code("loop/a", OwnPath::Folders::kAreMade) == ELOOP);
  CHECK(write_by("/").error().code == EISDIR);
}

TEST_CASE("own path: names of descriptors in /proc are followed", "[process]") {
  const test::TemporaryFolder folder;
  const process::UniqueFd open(::open(folder.path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  REQUIRE(open);
  REQUIRE(write_by(fmt::format("/proc/{}/fd/{}/logs/a", ::getpid(), open.get())));
  CHECK(fs::file_size(folder.path("logs/a")) == 1);
  const process::UniqueFd file(::open(folder.path("logs/a").c_str(), O_WRONLY | O_CLOEXEC));
  REQUIRE(write_by(fmt::format("/proc/self/fd/{}", file.get())));
}

TEST_CASE("own path: a name that is replaced is not followed", "[process]") {
  const test::TemporaryFolder folder;
  folder.write("kept", "y");
  fs::create_symlink("kept", folder.path("name"));
  auto file = callbacks::FreshFile::create(folder.path("name"));
  REQUIRE(file);
  REQUIRE(file.value().append("xx"));
  REQUIRE(file.value().publish());
  CHECK_FALSE(fs::is_symlink(folder.path("name")));
  CHECK(fs::file_size(folder.path("kept")) == 1);
}

TEST_CASE("own path: links of others lead root nowhere", "[process]") {
  if (::geteuid() != 0) {
    WARN("skipped: this needs root");
    return;
  }
  const test::TemporaryFolder folder;
  fs::create_directories(folder.path("of-root"));
  folder.write("of-root/file", "");
  link_of(kSomebody, "of-root", folder.path("way"));
  link_of(kSomebody, "of-root/file", folder.path("place"));
  const std::string why =
      " on the way there is a link of user 54321, and root would write where it leads to: run as "
      "that user, or name another place";
  CHECK(write_by(folder.path("way/file")).error().message == "\"way\"" + why);
  CHECK(write_by(folder.path("way/new/file")).error().code == EPERM);
  CHECK(write_by(folder.path("place")).error().message == "\"place\"" + why);
  CHECK(keeper::LogFile::open(folder.path("way/a.log")).error().message ==
        "cannot open log file " + folder.path("way/a.log") + ": \"way\"" + why);
  CHECK_FALSE(callbacks::FreshFile::create(folder.path("way/results.json")));
  CHECK_FALSE(callbacks::make_folder(folder.path("way/new")));
  link_of(0, "of-root", folder.path("own"));
  REQUIRE(keeper::LogFile::open(folder.path("own/a.log")));
  CHECK(fs::exists(folder.path("of-root/a.log")));
  CHECK(fs::is_empty(folder.path("of-root/file")));
  CHECK_FALSE(fs::exists(folder.path("of-root/new")));
}
