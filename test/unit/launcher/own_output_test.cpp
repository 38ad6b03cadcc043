#include "launcher/cli/own_output.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <fstream>

#include <catch2/catch.hpp>

#include "launcher/agent/output_relay.hpp"
#include "launcher/process/unique_fd.hpp"
#include "launcher/process/unix_socket.hpp"
#include "test/unit/common/temporary_folder.hpp"

using namespace sgd;
using namespace std::chrono_literals;

namespace {

/// A file in the place of stdout, for as long as it lives.
class StdoutFile {
 public:
  StdoutFile() : former_(::dup(STDOUT_FILENO)) {
    const process::UniqueFd file(::open(path().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    REQUIRE(::dup2(file.get(), STDOUT_FILENO) == STDOUT_FILENO);
  }
  ~StdoutFile() { ::dup2(former_.get(), STDOUT_FILENO); }
  [[nodiscard]] std::string text() const {
    std::ifstream file(path());
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  [[nodiscard]] std::string path() const { return folder_.path("stdout"); }

  test::TemporaryFolder folder_;
  process::UniqueFd former_;
};

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

TEST_CASE("own output: what an agent has passed on before it was killed is shown once when it comes again") {
  const auto chunk = [](std::uint64_t keeper, const std::string& line, std::uint64_t end) {
    keeper::OutputHead head;
    head.keeper = keeper;
    head.end = end;
    return agent::Output{"run", head, keeper::encode(head) + line};
  };
  const StdoutFile shown;
  Launcher launcher;
  std::size_t taken = 0;
  const agent::OutputRelay::Handlers handlers{[&](const RunId&, std::size_t bytes) { taken += bytes; },
                                              [](const std::string& message) { FAIL(message); }};
  {
    agent::OutputRelay killed(launcher.io, launcher.socket, handlers);
    killed.pass(chunk(7, "one\n", 4));
    killed.pass(chunk(7, "two\n", 8));
    launcher.turns_to_its_end();
  }
  CHECK(taken == 8);
  agent::OutputRelay next(launcher.io, launcher.socket, handlers);
  next.pass(chunk(7, "two\n", 8));
  next.pass(chunk(7, "three\n", 14));
  next.pass(chunk(9, "four\n", 5));
  next.end();
  launcher.finish();
  CHECK(launcher.turns_to_its_end());
  CHECK(taken == 23);
  CHECK(shown.text() == "0: one\n0: two\n0: three\n0: four\n");
}
