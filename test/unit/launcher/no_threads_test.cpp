// Where there is no room for a thread: what needs one is refused, or tried again.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <catch2/catch.hpp>

#include "launcher/net/dialer.hpp"
#include "launcher/process/account_lookup.hpp"
#include "launcher/storage/checkpoint_pruner.hpp"
#include "test/unit/common/no_threads.hpp"
#include "test/unit/common/temporary_folder.hpp"

using namespace sgd;
using namespace std::chrono_literals;

TEST_CASE("no threads: an account that cannot be looked up is an error, and the next look-up is tried", "[process]") {
  boost::asio::io_context io;
  process::AccountLookup lookup(io, [](const std::string& name) -> Result<process::Account> {
    return process::Account{name, 1000, 1000, {}, "/", "/bin/sh"};
  });
  std::vector<std::string> heard;
  const auto note = [&](const Result<process::Account>& found) {
    heard.push_back(found ? found.value().name : found.error().message);
  };
  {
    const test::NoThreads none;
    CHECK(process::find_account("eva", 1s).error().message ==
          "cannot look up \"eva\": no room for another thread: Resource temporarily unavailable");
    lookup.find("eva", 20s, note);
    io.run_for(20s);
  }
  lookup.find("eva", 20s, note);
  io.restart();
  io.run_for(20s);
  REQUIRE(heard.size() == 2);
  CHECK_THAT(heard[0], Catch::StartsWith("cannot look up \"eva\": no room for another thread"));
  CHECK(heard[1] == "eva");
}

TEST_CASE("no threads: a dialer whose name cannot be looked up tries again", "[net]") {
  boost::asio::io_context io;
  boost::asio::ip::tcp::acceptor acceptor(io, {boost::asio::ip::address_v4::loopback(), 0});
  net::Dialer dialer(io, {"127.0.0.1", acceptor.local_endpoint().port(), ""}, core::Random({1, 2, 3, 4}));
  std::vector<std::string> failures;
  bool is_connected = false;
  auto none = std::make_optional<test::NoThreads>();
  dialer.start({[&](net::Socket) {
                  is_connected = true;
                  io.stop();
                },
                [&](const std::string& reason) {
                  failures.push_back(reason);
                  none.reset();
                }});
  io.run_for(20s);
  REQUIRE(failures.size() == 1);
  CHECK_THAT(failures.front(), Catch::EndsWith("Resource temporarily unavailable"));
  CHECK(is_connected);
}

TEST_CASE("no threads: what the pruner was told to take away goes at its end", "[storage]") {
  const test::TemporaryFolder folder;
  for (const char* name : {"step-000000000100-gen-0001", "step-000000000200-gen-0001"})
    folder.write(std::string(name) + "/model.safetensors", "weights");
  {
    const test::NoThreads none;
    storage::CheckpointPruner pruner;
    pruner.keep(folder.path(""), {"step-000000000200-gen-0001"});
    CHECK(std::filesystem::exists(folder.path("step-000000000100-gen-0001")));
  }
  CHECK_FALSE(std::filesystem::exists(folder.path("step-000000000100-gen-0001")));
  CHECK(std::filesystem::exists(folder.path("step-000000000200-gen-0001")));
}
