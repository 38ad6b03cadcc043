#include "launcher/agent/output_relay.hpp"

#include <array>

#include <catch2/catch.hpp>

#include <sys/socket.h>

#include "common/messages/node_output.hpp"
#include "launcher/process/unix_socket.hpp"
#include "test/unit/common/temporary_folder.hpp"

using namespace sgd;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kPieceBytes = 512 << 10;

agent::Output piece() {
  const keeper::OutputHead head{};
  return {"run", head, keeper::encode(head) + std::string(kPieceBytes, 'x')};
}

/// The launcher's end: reads what comes, and says what is written.
struct Shown {
  explicit Shown(const std::string& path) : listener(process::listen_unix(path).value()) {}

  /// How many pieces have come, once nothing more does.
  int pieces_after(boost::asio::io_context& io) {
    std::array<char, 65536> bytes{};
    for (int quiet = 0; quiet < 5;) {
      if (io.stopped()) io.restart();
      io.run_for(5ms);
      if (!socket)
        socket = process::UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      const ssize_t got = socket ? ::recv(socket.get(), bytes.data(), bytes.size(), 0) : -1;
      quiet = got > 0 ? 0 : quiet + 1;
      if (got > 0) reader.append({bytes.data(), static_cast<std::size_t>(got)});
      for (auto frame = reader.next(); frame.ok() && frame.value(); frame = reader.next()) ++pieces;
    }
    return pieces;
  }

  void take(std::size_t bytes) {
    const std::string text = encode(node_output::ToAgent(node_output::Taken{static_cast<std::int64_t>(bytes)}));
    REQUIRE(::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size()));
  }

  process::UniqueFd listener;
  process::UniqueFd socket;
  FrameReader reader;
  int pieces = 0;
};

}  // namespace

TEST_CASE("output relay: a launcher that writes nothing is sent so much and no more; limit kUntakenBytesMax") {
  const test::TemporaryFolder folder;
  Shown shown(folder.path("s"));
  boost::asio::io_context io;
  std::size_t taken = 0;
  std::vector<std::string> trouble;
  agent::OutputRelay relay(io, folder.path("s"),
                           {[&](const RunId&, std::size_t bytes) { taken += bytes; },
                            [&](const std::string& message) { trouble.push_back(message); }});
  constexpr int kSentAtOnce = agent::OutputRelay::kUntakenBytesMax / kPieceBytes;
  for (int number = 0; number < kSentAtOnce + 3; ++number) relay.pass(piece());
  CHECK(shown.pieces_after(io) == kSentAtOnce);
  CHECK(taken == 0);  // So keepers wait, and ranks with them.
  shown.take(kPieceBytes / 2);
  CHECK(shown.pieces_after(io) == kSentAtOnce);
  shown.take(kPieceBytes / 2);
  CHECK(shown.pieces_after(io) == kSentAtOnce + 1);
  CHECK(taken == kPieceBytes);
  CHECK(trouble.empty());

  SECTION("who says that more is written than was sent is believed no longer, and nobody waits for it") {
    shown.take(agent::OutputRelay::kUntakenBytesMax + 1);
    shown.pieces_after(io);
    CHECK(trouble.size() == 1);
    CHECK(taken == (kSentAtOnce + 3) * kPieceBytes);
  }
  SECTION("nobody waits for a launcher that has gone") {
    shown.socket.reset();
    shown.listener.reset();
    for (int turn = 0; turn < 400 && taken != (kSentAtOnce + 3) * kPieceBytes; ++turn) {
      if (io.stopped()) io.restart();
      io.run_for(5ms);
    }
    CHECK(taken == (kSentAtOnce + 3) * kPieceBytes);
    relay.pass(piece());
    CHECK(taken == (kSentAtOnce + 4) * kPieceBytes);
  }
}
