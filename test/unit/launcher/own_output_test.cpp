#include "launcher/cli/own_output.hpp"

#include <catch2/catch.hpp>

#include "launcher/agent/output_relay.hpp"
#include "launcher/process/unix_socket.hpp"
#include "test/unit/common/temporary_folder.hpp"

using namespace sgd;
using namespace std::chrono_literals;

namespace {

struct Launcher {
  Launcher() : socket(folder.path("s")), output(cli::OwnOutput::listen(io, console, {socket, {}, 1}).value()) {}

  void finish() {
    output->finish([this] { is_over = true; });
  }
  /// Until it is over, or nothing has changed that for a while, which is shorter than its own patience.
  bool turns_to_its_end() {
    for (int turn = 0; turn < 50 && !is_over; ++turn) {
      if (io.stopped()) io.restart();
      io.run_for(5ms);
    }
    return is_over;
  }

  test::TemporaryFolder folder;
  std::string socket;
  boost::asio::io_context io;
  cli::Console console{io, {false, false, true}};
  std::unique_ptr<cli::OwnOutput> output;
  bool is_over = false;
};

}  // namespace

TEST_CASE("own output: where no agent has said anything there is nothing to wait for") {
  Launcher launcher;
  launcher.finish();
  CHECK(launcher.turns_to_its_end());
}

TEST_CASE("own output: of an agent that was killed the rest is waited for, until the next one has said all") {
  Launcher launcher;
  {
    const auto killed = process::connect_unix(launcher.socket, 1s);
    REQUIRE(killed.ok());
    launcher.turns_to_its_end();
  }
  launcher.finish();
  CHECK_FALSE(launcher.turns_to_its_end());
  agent::OutputRelay next(launcher.io, launcher.socket,
                          {[](const RunId&, std::size_t) {}, [](const std::string& message) { FAIL(message); }});
  next.end();
  CHECK(launcher.turns_to_its_end());
}
