// Under which accounts jobs could open keys.

#include "launcher/agent/key_guard.hpp"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include "launcher/agent/run_accounts.hpp"
#include "launcher/process/account.hpp"
#include "test/unit/common/temporary_folder.hpp"

using namespace sgd;

TEST_CASE("keys: who owns one can open it, and root can open all") {
  const test::TemporaryFolder folder;
  const std::string identity = folder.path("agent/identity");
  const std::string home = folder.path("home");
  const uid_t own = ::geteuid();
  const uid_t other = own + 1;
  const agent::KeyPaths paths = agent::key_paths(identity, home);
  agent::KeyPaths here = paths;
  std::erase(here.coordinators, "/var/lib/sgd-launch/coordinator");  // Whatever this machine has there.
  CHECK(here.coordinators.size() + 1 == paths.coordinators.size());
  CHECK(agent::open_key(own, here).empty());
  std::filesystem::create_directories(identity);
  std::ofstream(identity + "/identity.pem") << "a key";
  CHECK(agent::open_key(own, here) == "owns this node's key (" + identity + "/identity.pem)");
  CHECK(agent::open_key(other, here).empty());
  CHECK_FALSE(agent::open_key(0, here).empty());
  std::filesystem::remove_all(identity);
  const std::string coordinator = home + "/.local/state/sgd-launch/coordinator";
  std::filesystem::create_directories(coordinator + "/ca");
  CHECK(agent::open_key(own, here).empty());  // One without a cluster of its own: it has not been initialized.
  std::ofstream(coordinator + "/ca/ca.key") << "a key";
  CHECK_THAT(agent::open_key(own, here), Catch::StartsWith("owns the state of a coordinator, with the cluster's key"));
  CHECK(agent::open_key(other, here).empty());
}

TEST_CASE("accounts: no run gets the account of an owner who has this node's key") {
  const process::Account* person = nullptr;
  const auto found = process::find_account("nobody", agent::RunAccounts::kLookupLimit);
  if (found.ok()) person = &found.value();
  if (person == nullptr || ::geteuid() != 0) return;  // Only root gives a file to somebody else.
  const test::TemporaryFolder folder;
  std::ofstream(folder.path("identity.pem")) << "a key";
  cluster::DesiredRun desired;
  desired.run = "run";
  desired.want = cluster::Want::kRun;
  desired.owner = "nobody";
  const auto account_of = [&] {
    boost::asio::io_context io;
    agent::RunAccounts accounts(io, {agent::AccountRule::Kind::kOwner, "", folder.path("")});
    accounts.note(desired);
    std::optional<Result<std::optional<process::Account>>> answer;
    accounts.find("run", [&](const auto& account) { answer = account; });
    io.run_for(std::chrono::seconds(20));
    REQUIRE(answer);
    return *answer;
  };
  CHECK(account_of().ok());
  REQUIRE(::chown(folder.path("identity.pem").c_str(), person->uid, person->gid) == 0);
  CHECK_THAT(account_of().error().message, Catch::StartsWith("its owner's account nobody owns this node's key") &&
                                               Catch::Contains("submit as somebody else"));
}
