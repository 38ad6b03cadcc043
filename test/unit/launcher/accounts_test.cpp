// In whose name programs run and files are touched, where we are root and others are not trusted.

#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>

#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include "keeper_test_support.hpp"
#include "launcher/agent/keeper_process.hpp"
#include "launcher/agent/run_accounts.hpp"
#include "launcher/agent/spool.hpp"
#include "launcher/agent/stacks.hpp"
#include "launcher/process/account.hpp"
#include "launcher/process/account_lookup.hpp"
#include "launcher/process/pidfd.hpp"
#include "launcher/process/spawn.hpp"
#include "launcher/process/unix_socket.hpp"
#include "launcher/storage/file_owner.hpp"
#include "launcher/storage/run_files.hpp"

using namespace sgd;
using keeper_test::read_file;
using keeper_test::TemporaryDir;
using namespace std::chrono_literals;

namespace {

const char* const kPerson = "nobody";  // The one account that every Debian has beside those of services.

bool is_root() {
  if (::geteuid() == 0) return true;
  WARN("skipped: this needs root");
  return false;
}

process::Account person() {
  return std::move(process::find_account(kPerson, 5s)).value();
}

uid_t user_of(const std::string& path) {
  struct stat info {};
  REQUIRE(::lstat(path.c_str(), &info) == 0);
  return info.st_uid;
}

/// A run's folder that belongs to the person, and in it, by whatever way, a file that only root can read.
struct OthersFolder {
  OthersFolder() {
    REQUIRE(::chmod(dir.file("").c_str(), 0711) == 0);
    std::filesystem::create_directories(path + "/logs");
    std::ofstream(path + "/logs/closed.log") << "of root";
    REQUIRE(::chmod((path + "/logs/closed.log").c_str(), 0600) == 0);
    for (const std::string& folder : {path, path + "/logs"})
      REQUIRE(::chown(folder.c_str(), account.uid, account.gid) == 0);
  }
  TemporaryDir dir;
  process::Account account = person();
  std::string path = dir.file("run");
};

}  // namespace

TEST_CASE("an account is found with its groups, or the name is told", "[accounts]") {
  const process::Account account = person();
  CHECK(account.uid == ::getpwnam(kPerson)->pw_uid);
  CHECK(std::find(account.groups.begin(), account.groups.end(), account.gid) != account.groups.end());
  const auto none = process::find_account("no-such-person", 5s);
  REQUIRE_FALSE(none.ok());
  CHECK(none.error().message == "there is no account \"no-such-person\"");
}

TEST_CASE("of our environment, others get what says how to compute, and no secret", "[accounts]") {
  const char* const ours[] = {"PATH=/bin",
                              "AWS_SECRET_ACCESS_KEY=x",
                              "LC_ALL=C",
                              "CUDA_VISIBLE_DEVICES=1",
                              "HOME=/home/operator",
                              "LANGUAGE=de",
                              nullptr};
  process::Account account{"eva", 1001, 1001, {1001}, "/home/eva", "/bin/sh"};
  CHECK(process::environment_of(account, ours) == std::vector<std::string>{"HOME=/home/eva", "USER=eva", "LOGNAME=eva",
                                                                           "SHELL=/bin/sh", "PATH=/bin", "LC_ALL=C",
                                                                           "CUDA_VISIBLE_DEVICES=1"});
}

TEST_CASE("a program of an account is that account's for good", "[accounts]") {
  if (!is_root()) return;
  TemporaryDir dir;
  process::UniqueFd out(::open(dir.file("out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  process::SpawnOptions options;
  options.account = person();
  options.env = {{"OWN", "1"}};
  options.output_fd = out.get();
  options.argv = {"sh", "-c",
                  "echo $(id -u) $(id -g) $USER $OWN $PWD; grep -E 'NoNewPrivs|Cap(Eff|Prm)' /proc/self/status"};
  auto child = process::spawn(options);
  REQUIRE(child.ok());
  pollfd entry{child.value().pidfd.get(), POLLIN, 0};
  REQUIRE(::poll(&entry, 1, 20'000) == 1);
  CHECK(process::wait_exit(child.value().pidfd.get()).value()->exit_code == 0);
  const std::string said = read_file(dir.file("out"));
  CHECK_THAT(said, Catch::StartsWith(std::to_string(options.account->uid) + " " + std::to_string(options.account->gid) +
                                     " nobody 1 /\n"));
  CHECK_THAT(said, Catch::Contains("NoNewPrivs:\t1") && Catch::Contains("CapPrm:\t0000000000000000"));
}

TEST_CASE("a program that an account may not execute is named with the account", "[accounts]") {
  if (!is_root()) return;
  TemporaryDir dir;  // Mode 0700.
  std::filesystem::copy_file("/bin/true", dir.file("true"));
  process::SpawnOptions options;
  options.account = person();
  options.argv = {dir.file("true")};
  const auto child = process::spawn(options);
  REQUIRE_FALSE(child.ok());
  CHECK_THAT(child.error().message, Catch::StartsWith("nobody may not execute " + dir.file("true")));
}

TEST_CASE("files in the folder of another user are touched with that user's rights alone", "[accounts]") {
  if (!is_root()) return;
  OthersFolder run;
  auto files = std::move(storage::RunFiles::open(run.path, {})).value();
  CHECK(files->read("logs/closed.log", 0, 10).error().code == EACCES);
  CHECK(files->append("logs/new.log", 0, "hello").bytes == 5);
  CHECK(user_of(run.path + "/logs/new.log") == run.account.uid);
  CHECK(files->held("logs/closed.log").error.find("Permission denied") != std::string::npos);
  std::ofstream(run.dir.file("after")) << "x";
  CHECK(user_of(run.dir.file("after")) == 0);
  CHECK(read_file(run.path + "/logs/closed.log") == "of root");
}

TEST_CASE("the rights of another user end with the outermost of nested scopes", "[accounts]") {
  if (!is_root()) return;
  OthersFolder run;
  const auto can_read = [&] { return std::ifstream(run.path + "/logs/closed.log").good(); };
  const auto owner = storage::other_owner(run.path);
  std::promise<void> is_inside;
  auto other = std::async(std::launch::async, [&] {
    return is_inside.get_future().wait_for(20s) == std::future_status::ready && can_read();
  });
  REQUIRE(owner);
  CHECK_FALSE(storage::other_owner(run.dir.file("")));
  {
    const storage::ScopedFileOwner outer(owner);
    {
      const storage::ScopedFileOwner inner(owner);
      const storage::ScopedFileOwner nobody_else(std::nullopt);
      CHECK_FALSE(can_read());
    }
    CHECK_FALSE(can_read());
    is_inside.set_value();
    CHECK(other.get());  // Of this thread alone.
  }
  CHECK(can_read());
}

TEST_CASE("a run's folder that an agent left before it gave it away is its owner's at the next start", "[accounts]") {
  if (!is_root()) return;
  const bool is_wanted_first = GENERATE(true, false);
  TemporaryDir dir;
  REQUIRE(::chmod(dir.file("").c_str(), 0711) == 0);
  const process::Account account = person();
  boost::asio::io_context io;
  agent::Spool::Setup setup;
  setup.state_dir = dir.file("state");
  setup.coordinator = {"127.0.0.1", 1};
  setup.node = "node1";
  setup.has_other_owners = true;
  const std::string folder = dir.file("state/runs/run1");
  SECTION("empty") {
    std::filesystem::create_directories(folder);
  }
  SECTION("with what a later life made in it") {
    std::filesystem::create_directories(folder + "/logs");
  }
  SECTION("not at all") {}
  agent::Spool spool(io, setup, core::Random({1, 2, 3, 4}));
  REQUIRE(spool.start([](const std::string&) {}).ok());
  if (is_wanted_first) {
    cluster::DesiredRun desired;
    desired.run = "run1";
    desired.want = cluster::Want::kRun;
    desired.run_dir = "/none";
    (void)spool.localize(desired);
  }
  REQUIRE(spool.open("run1", storage::FileOwner{account.uid, account.gid}).ok());
  for (const char* name : {"", "/logs", "/errors", "/checkpoints"}) CHECK(user_of(folder + name) == account.uid);
  const auto owner = spool.owner_of("run1");
  REQUIRE((owner.ok() && owner.value()));
  CHECK(owner.value()->uid == account.uid);
  spool.stop();
}

TEST_CASE("a run's folder that its job has closed is opened to its owner again, at its end and at the next start",
          "[accounts]") {
  if (!is_root()) return;
  TemporaryDir dir;
  REQUIRE(::chmod(dir.file("").c_str(), 0711) == 0);
  const process::Account account = person();
  boost::asio::io_context io;
  agent::Spool::Setup setup;
  setup.state_dir = dir.file("state");
  setup.coordinator = {"127.0.0.1", 1};
  setup.node = "node1";
  setup.has_other_owners = true;
  const std::string folder = dir.file("state/runs/run1");
  const auto close = [&] {
    for (const char* name : {"/logs", ""}) REQUIRE(::chmod((folder + name).c_str(), 0) == 0);
  };
  const auto is_open = [&] {
    struct stat top {
    }, logs{};
    REQUIRE((::lstat(folder.c_str(), &top) == 0 && ::lstat((folder + "/logs").c_str(), &logs) == 0));
    return (top.st_mode & 0700) == 0700 && (logs.st_mode & 0700) == 0700;
  };
  std::vector<std::string> warnings;
  const auto warn = [&](const std::string& message) { warnings.push_back(message); };
  {
    agent::Spool spool(io, setup, core::Random({1, 2, 3, 4}));
    REQUIRE(spool.start(warn).ok());
    REQUIRE(spool.open("run1", storage::FileOwner{account.uid, account.gid}).ok());
    close();
    spool.end("run1");
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (!is_open() && std::chrono::steady_clock::now() < deadline) io.run_one_for(20ms);
    CHECK(is_open());
    spool.stop();
    close();
  }
  agent::Spool next(io, setup, core::Random({1, 2, 3, 4}));
  REQUIRE(next.start(warn).ok());
  CHECK(is_open());
  for (const std::string& warning : warnings) CHECK_THAT(warning, !Catch::Contains("cannot create"));
  next.stop();
}

TEST_CASE("stacks are kept of the owner's processes alone, and through no link", "[accounts]") {
  if (!is_root()) return;
  OthersFolder run;
  std::filesystem::create_directories(run.path + "/errors");
  REQUIRE(::chown((run.path + "/errors").c_str(), run.account.uid, run.account.gid) == 0);
  process::SpawnOptions options;
  options.account = run.account;
  options.argv = {"sleep", "100"};
  const auto child = process::spawn(options);
  REQUIRE(child.ok());
  std::ofstream(run.dir.file("target")) << "";
  REQUIRE(::symlink(run.dir.file("target").c_str(), (run.path + "/errors/gen-0001-rank-0002.stack").c_str()) == 0);
  agent::keep_stacks(run.path, 1, {{0, child.value().pid}, {1, ::getpid()}, {2, child.value().pid}});
  CHECK_THAT(read_file(run.path + "/errors/gen-0001-rank-0000.stack"), Catch::StartsWith("rank 0 pid "));
  CHECK(user_of(run.path + "/errors/gen-0001-rank-0000.stack") == run.account.uid);
  CHECK_FALSE(std::filesystem::exists(run.path + "/errors/gen-0001-rank-0001.stack"));
  CHECK(read_file(run.dir.file("target")).empty());
  (void)process::pidfd_send_signal(child.value().pidfd.get(), SIGKILL);
  pollfd entry{child.value().pidfd.get(), POLLIN, 0};
  REQUIRE(::poll(&entry, 1, 20'000) == 1);
  (void)process::wait_exit(child.value().pidfd.get());
}

TEST_CASE("a keeper that says it is another user's process is not believed", "[accounts]") {
  if (!is_root()) return;
  TemporaryDir dir;
  boost::asio::io_context io;
  std::string reason;
  agent::KeeperProcess::Handlers handlers{
      [](keeper::FromKeeper) {}, [](agent::Output) {}, [&](int, std::string why) { reason = why; }, {}};
  agent::KeeperProcess keeper(io, handlers,
                              agent::KeeperProcess::ReattachOptions{dir.file("keeper.sock"), "SGD_KEEPER=x", 1s});
  const auto listener = process::listen_unix(dir.file("keeper.sock"));
  REQUIRE(listener.ok());
  const process::Account owner = person();
  REQUIRE(keeper.resume(storage::FileOwner{owner.uid, owner.gid}));
  pollfd entry{listener.value().get(), POLLIN, 0};
  REQUIRE(::poll(&entry, 1, 20'000) == 1);
  const process::UniqueFd liar(::accept4(listener.value().get(), nullptr, nullptr, SOCK_CLOEXEC));
  const std::string frame = keeper::encode(keeper::FromKeeper(keeper::Started{::getpid(), 0}));
  REQUIRE(::write(liar.get(), frame.data(), frame.size()) == static_cast<ssize_t>(frame.size()));
  io.run_for(5s);
  CHECK(reason == "it says that it is pid " + std::to_string(::getpid()) + ", which is another user's");
}

TEST_CASE("runs get the account of their owner, and never one of the system's", "[accounts]") {
  boost::asio::io_context io;
  cluster::DesiredRun desired;
  desired.run = "r1";
  agent::RunAccounts accounts(io, {agent::AccountRule::Kind::kOwner});
  Result<std::optional<process::Account>> found = Error{"not asked"};
  const auto find = [&](agent::RunAccounts& among, const RunId& run) {
    found = Error{"not answered"};
    among.find(run, [&](Result<std::optional<process::Account>> account) { found = std::move(account); });
    io.restart();
    io.run_for(20s);
  };
  find(accounts, "r1");
  CHECK_FALSE(found.ok());
  for (const auto& [owner, words] : {std::pair<std::string, std::string>{"", "it has no owner"},
                                     {"root", "an account of this node's system (uid 0)"},
                                     {"no-such-person", "there is no account"}}) {
    desired.owner = owner;
    accounts.note(desired);
    find(accounts, "r1");
    REQUIRE_FALSE(found.ok());
    CHECK_THAT(found.error().message, Catch::Contains(words));
  }
  desired.owner = kPerson;  // An account that was missing may be there at the next try.
  accounts.note(desired);
  find(accounts, "r1");
  REQUIRE(found.ok());
  CHECK(found.value()->name == kPerson);
  agent::RunAccounts own(io, {});
  find(own, "r1");
  REQUIRE(found.ok());
  CHECK_FALSE(found.value());
}

TEST_CASE("an agent's root is for runs of root and of admins, whoever else submits", "[accounts]") {
  boost::asio::io_context io;
  agent::RunAccounts accounts(io, {agent::AccountRule::Kind::kRoot});
  CHECK_FALSE(accounts.are_others());
  cluster::DesiredRun desired;
  desired.run = "r1";
  for (const char* owner : {"", "eva", "root"}) {
    for (const bool may_be_root : {false, true}) {
      desired.owner = owner;
      desired.may_be_root = may_be_root;
      accounts.note(desired);
      std::optional<Result<std::optional<process::Account>>> found;
      accounts.find("r1", [&](Result<std::optional<process::Account>> account) { found = std::move(account); });
      REQUIRE(found);
      CHECK(found->ok() == may_be_root);
      if (found->ok()) CHECK_FALSE(found->value());
      if (!found->ok()) CHECK_THAT(found->error().message, Catch::Contains("--run-as ACCOUNT"));
      std::optional<Result<std::optional<process::Account>>> asked;
      accounts.find_for({owner, may_be_root},
                        [&](Result<std::optional<process::Account>> account) { asked = std::move(account); });
      CHECK(asked->ok() == found->ok());  // What a plan says is what a start does.
    }
  }
  std::optional<Result<std::optional<process::Account>>> unknown;
  accounts.find("never noted", [&](Result<std::optional<process::Account>> account) { unknown = std::move(account); });
  CHECK_FALSE(unknown->ok());
}

TEST_CASE("a lack of descriptors is not taken for a missing account", "[accounts]") {
  constexpr const char* kListed = "daemon";  // "nobody" is known to systemd's library without any list.
  REQUIRE(process::look_up_account(kListed));
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none{0, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  const auto found = process::look_up_account(kListed);
  const auto missing = process::look_up_account("no-such-person");
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  for (const auto& one : {found, missing}) {
    REQUIRE_FALSE(one.ok());
    CHECK(one.error().code == EMFILE);
    CHECK_THAT(one.error().message, Catch::EndsWith("cannot be looked up: Too many open files"));
  }
  CHECK(process::look_up_account("no-such-person").error().code == ENOENT);
  CHECK(process::look_up_account(kListed));
}

TEST_CASE("nobody is told to create an account that could not be looked up", "[accounts]") {
  boost::asio::io_context io;
  for (const int code : {ENOENT, EMFILE}) {
    agent::RunAccounts accounts(io, {agent::AccountRule::Kind::kOwner},
                                [code](const std::string&) -> Result<process::Account> {
                                  return Error{"the account cannot be had", code};
                                });
    std::optional<Result<std::optional<process::Account>>> found;
    accounts.find_for({"eva", false}, [&](Result<std::optional<process::Account>> one) { found = std::move(one); });
    io.restart();
    io.run_for(20s);
    REQUIRE(found);
    REQUIRE_FALSE(found->ok());
    CHECK(found->error().code == code);
    CHECK((found->error().message.find("create it") != std::string::npos) == (code == ENOENT));
  }
}

TEST_CASE("an account service that does not answer holds up its run alone", "[accounts]") {
  std::promise<void> service;
  auto answers = service.get_future().share();
  boost::asio::io_context io;
  process::AccountLookup lookup(io, [answers](const std::string& name) -> Result<process::Account> {
    if (name == "slow") answers.wait();
    return process::Account{name, 1000, 1000, {}, "/", "/bin/sh"};
  });
  std::vector<std::string> heard;
  const auto note = [&](const Result<process::Account>& found) {
    heard.push_back(found ? found.value().name : found.error().message);
  };
  for (int count = 0; count < process::AccountLookup::kPendingMax; ++count) lookup.find("slow", 50ms, note);
  lookup.find("quick", 20s, note);
  CHECK(heard.empty());
  io.run_for(20s);
  REQUIRE(heard.size() == process::AccountLookup::kPendingMax + 1);
  CHECK(heard.front() == "32 look-ups wait for this machine's account service");
  CHECK(heard.back() == "who \"slow\" is was not answered within 50ms by this machine's account service");
  service.set_value();
  heard.clear();
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (heard.empty() || heard.back() != "quick") {
    REQUIRE(std::chrono::steady_clock::now() < deadline);
    lookup.find("quick", 20s, note);
    io.restart();
    io.run_for(1s);
  }
}

TEST_CASE("jobs under the daemon's own account have nothing of its environment but the list", "[accounts]") {
  const char* const ours[] = {"PATH=/bin", "AWS_SECRET_ACCESS_KEY=x", "HOME=/home/eva", "XDG_RUNTIME_DIR=/run/1",
                              nullptr};
  CHECK(process::basic_environment(ours) == std::vector<std::string>{"PATH=/bin", "HOME=/home/eva"});
}

TEST_CASE("a folder is within reach of all when all may go through it, and not when they may see that it is there",
          "[accounts]") {
  if (!is_root()) return;
  TemporaryDir dir;
  const std::string folder = dir.file("of-root");
  REQUIRE(::chmod(dir.file("").c_str(), 0755) == 0);
  REQUIRE(::mkdir(folder.c_str(), 0700) == 0);
  CHECK_FALSE(storage::is_within_reach_of_all(folder));
  REQUIRE(::chmod(folder.c_str(), 0711) == 0);
  CHECK(storage::is_within_reach_of_all(folder));
  REQUIRE(::chmod(dir.file("").c_str(), 0700) == 0);
  CHECK_FALSE(storage::is_within_reach_of_all(folder));
}
