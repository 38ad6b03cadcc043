// A launcher's folder for temporary files, and whose folders it removes.

#include "launcher/cli/scratch_folder.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include <catch2/catch.hpp>

using namespace sgd;
namespace fs = std::filesystem;

namespace {

/// Folders for temporary files are made in one of our own meanwhile.
class OwnTmpdir {
 public:
  OwnTmpdir() {
    if (const char* before = std::getenv("TMPDIR")) before_ = before;
    char name[] = "/tmp/sgd-passing-folder-test-XXXXXX";
    path_ = ::mkdtemp(name);
    ::setenv("TMPDIR", path_.c_str(), 1);
  }
  ~OwnTmpdir() {
    before_ ? ::setenv("TMPDIR", before_->c_str(), 1) : ::unsetenv("TMPDIR");
    fs::remove_all(path_);
  }
  OwnTmpdir(const OwnTmpdir&) = delete;
  OwnTmpdir& operator=(const OwnTmpdir&) = delete;
  [[nodiscard]] fs::path path() const { return path_; }

 private:
  std::optional<std::string> before_;
  std::string path_;
};

/// As a process leaves it that was killed.
fs::path left_behind(const OwnTmpdir& place) {
  std::string copy = place.path() / "copy";
  {
    const cli::ScratchFolder folder("sgd-kind");
    fs::copy(folder.path(), copy, fs::copy_options::recursive);
  }
  const fs::path left = place.path() / "sgd-kind-abcdef";
  fs::rename(copy, left);
  std::ofstream(left / "file") << "text";
  return left;
}

}  // namespace

TEST_CASE("a passing folder goes with its object") {
  const OwnTmpdir place;
  {
    const cli::ScratchFolder folder("sgd-kind");
    REQUIRE(fs::path(folder.path()).parent_path() == place.path());
    CHECK((fs::status(folder.path()).permissions() & fs::perms::all) == fs::perms::owner_all);
  }
  CHECK(fs::is_empty(place.path()));
}

TEST_CASE("what a killed process has left behind is removed by the next one") {
  const OwnTmpdir place;
  const fs::path left = left_behind(place);
  const cli::ScratchFolder folder("sgd-kind");
  CHECK_FALSE(fs::exists(left));
}

TEST_CASE("a folder in use stays") {
  const OwnTmpdir place;
  const cli::ScratchFolder first("sgd-kind");
  const cli::ScratchFolder second("sgd-kind");
  CHECK(fs::exists(first.path()));
  CHECK(first.path() != second.path());
}

TEST_CASE("a user's own folder whose name begins like ours stays") {
  const OwnTmpdir place;
  const fs::path theirs = place.path() / "sgd-kind-backup";
  fs::create_directory(theirs);
  std::ofstream(theirs / "thesis.txt") << "text";
  const cli::ScratchFolder folder("sgd-kind");
  CHECK(fs::exists(theirs / "thesis.txt"));
}
