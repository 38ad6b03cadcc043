// A run's control socket: whoever may ask may write what it likes, and is answered in words.

#include "launcher/coordinator/control_server.hpp"

#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/write.hpp>
#include <catch2/catch.hpp>

#include "keeper_test_support.hpp"

using namespace sgd;
using namespace std::chrono_literals;
using boost::asio::local::stream_protocol;

namespace {

struct Served {
  keeper_test::TemporaryDir folder;
  boost::asio::io_context io;
  coordinator::ControlServer server{io, [](const nlohmann::json& request) {
                                      return nlohmann::ordered_json{{"ok", true}, {"echo", request.at("n")}};
                                    }};
  Served() { REQUIRE(server.listen(folder.file("control.sock")).ok()); }
  ~Served() {
    server.stop();
    io.run_for(10ms);
  }
};

class Client {
 public:
  explicit Client(Served& at) : at_(at), socket_(at.io) {
    socket_.connect(stream_protocol::endpoint(at.folder.file("control.sock")));
    socket_.non_blocking(true);
  }
  /// As much as is taken: the server reads between the pieces.
  void send(std::string_view text) {
    while (!text.empty()) {
      boost::system::error_code error;
      text.remove_prefix(socket_.write_some(boost::asio::buffer(text), error));
      at_.io.poll();
      if (error && error != boost::asio::error::would_block) return;
    }
  }
  /// The next line; empty at the end.
  std::string next() {
    const auto deadline = std::chrono::steady_clock::now() + 10s;
    while (read_.find('\n') == std::string::npos && std::chrono::steady_clock::now() < deadline) {
      at_.io.run_one_for(5ms);
      char bytes[4096];
      boost::system::error_code error;
      read_.append(bytes, socket_.read_some(boost::asio::buffer(bytes), error));
      if (error && error != boost::asio::error::would_block) return "";
    }
    const std::string line = read_.substr(0, read_.find('\n'));
    read_.erase(0, line.size() + 1);
    return line;
  }

 private:
  Served& at_;
  stream_protocol::socket socket_;
  std::string read_;
};

}  // namespace

TEST_CASE(
    "control server: a request that is too long is refused in words, and others are served; limit "
    "kControlLineBytesMax") {
  Served at;
  Client other(at);
  Client client(at);
  const std::string longest = R"({"n":1})" + std::string(coordinator::kControlLineBytesMax - 8, ' ') + "\n";
  client.send(longest);
  CHECK(client.next() == R"({"ok":true,"echo":1})");
  client.send(std::string(2 * coordinator::kControlLineBytesMax, 'x'));
  CHECK(client.next() == R"({"ok":false,"error":"a request is longer than 64 KiB"})");
  CHECK(client.next().empty());
  other.send("{\"n\":2}\n");
  CHECK(other.next() == R"({"ok":true,"echo":2})");
  other.send("[]\n");
  CHECK(other.next() == R"({"ok":false,"error":"no JSON object"})");
}
