// A client may write what it likes: its own connection answers for it, and the coordinator goes on.

#include "launcher/coordinator/client_desk.hpp"

#include <functional>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <catch2/catch.hpp>

#include "keeper_test_support.hpp"
#include "launcher/core/snapshot.hpp"

using namespace sgd;
using namespace std::chrono_literals;
using boost::asio::ip::tcp;

namespace {

/// A desk behind a door, and a socket that has been greeted.
struct Desk {
  keeper_test::TemporaryDir folder;
  boost::asio::io_context io;
  coordinator::ClientDesk desk{
      {[](const coordinator::Requester&, const nlohmann::json& request, const coordinator::ClientDesk::Reply& reply) {
         if (request.contains("bytes"))
           return reply({{"ok", true}, {"rows", std::string(request.at("bytes").get<std::size_t>(), 'x')}});
         reply({{"ok", true}, {"echo", request.at("job")}});
       },
       [this](const std::string& run) -> Result<coordinator::ClientDesk::FollowedRun> {
         return coordinator::ClientDesk::FollowedRun{run, folder.file(""), std::nullopt};
       }}};
  net::Door door{io, net::Listener::open(io, {"127.0.0.1", 0}).value()};
  tcp::socket socket{io};
  FrameReader reader;

  Desk() {
    net::Door::Handlers handlers;
    handlers.kinds["client"] = [this](std::unique_ptr<net::Visitor> visitor, const nlohmann::json&) {
      desk.take(std::move(visitor));
    };
    handlers.on_refused = [](const std::string&, const net::Refusal&) {};
    door.start(std::move(handlers));
    socket.connect({boost::asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(door.port())});
    socket.non_blocking(true);
    reader.take_long_messages();
    send(hello::encode({}));
    send(R"({"type":"client","version":"test"})");
    CHECK(next().at("type") == "hello");
    CHECK(next().at("type") == "welcome");
  }

  void send(const std::string& text) {
    boost::asio::write(socket, boost::asio::buffer(encode_frame(FrameKind::kJson, text)));
  }
  /// The next message; null when the connection ends.
  nlohmann::json next() {
    const auto deadline = std::chrono::steady_clock::now() + 10s;
    while (std::chrono::steady_clock::now() < deadline) {
      auto frame = reader.next();
      REQUIRE(frame.ok());
      if (frame.value()) return nlohmann::json::parse(frame.value()->bytes);
      io.run_one_for(5ms);
      char bytes[64 << 10];
      boost::system::error_code error;
      const std::size_t count = socket.read_some(boost::asio::buffer(bytes), error);
      if (error == boost::asio::error::eof) return nullptr;
      reader.append({bytes, count});
    }
    FAIL("nothing came within 10 s");
    return nullptr;
  }
};

}  // namespace

TEST_CASE("client desk: a follow that is refused leaves nothing behind", "[client]") {
  Desk at;
  at.send(R"({"type":"follow","id":8,"run":"r","logs":true,"rank":"no number"})");
  const nlohmann::json refused = at.next();
  CHECK(refused.at("id") == 8);
  CHECK(refused.at("ok") == false);
  at.send(R"({"type":"got","id":8,"file":"events.jsonl","offset":1})");
  at.desk.on_grown("r", "events.jsonl");
  at.desk.on_settled("r", {{"state", "succeeded"}});
  at.send(R"({"type":"follow","id":8,"run":"r","logs":true})");
  CHECK(at.next().at("ok") == true);
}

TEST_CASE("client desk: nesting is bounded before anything is built or copied", "[client]") {
  Desk at;
  const std::string deep = std::string(400'000, '[') + std::string(400'000, ']');
  at.send(R"({"type":"request","id":1,"request":"submit","job":)" + deep + "}");
  CHECK(at.next().is_null());
  CHECK(at.desk.clients() == 0);
}

TEST_CASE("client desk: an answer of megabytes comes in parts; one that is too long is refused in its place",
          "[client]") {
  Desk at;
  at.send(R"({"type":"request","id":1,"bytes":5000000})");
  nlohmann::json answer = at.next();
  CHECK(answer.at("id") == 1);
  CHECK(answer.at("rows").get<std::string>().size() == 5'000'000);
  at.send(R"({"type":"request","id":2,"bytes":8388608})");
  answer = at.next();
  CHECK(answer.at("id") == 2);
  CHECK(answer.at("ok") == false);
  CHECK_THAT(answer.at("error").get<std::string>(), Catch::Contains("a client is sent at most 8388608: ask for less"));
  at.send(R"({"type":"request","id":3,"bytes":10})");
  CHECK(at.next().at("ok") == true);  // The connection goes on.
}

TEST_CASE("client desk: what ten thousand nodes and ten thousand ranks have to say can be sent", "[client]") {
  core::NodeSnapshot node;
  node.node = "node-00000.cluster.example.org";
  node.slots = node.used = node.cpus = 128;
  node.gpus = 8;
  node.memory_bytes = std::int64_t{1} << 41;
  node.labels = {{"gpu", "h100-80gb"}, {"zone", "europe-west4-b"}, {"rack", "r-1042"}};
  node.version = SGD_VERSION;
  node.address = "node-00000.cluster.example.org";
  node.runs = {{"fashion-mnist-cnn-20260101-120000-abcd", 64}, {"fashion-mnist-mlp-20260101-120000-ef01", 64}};
  CHECK(core::to_json(node, TimePoint{}).dump().size() * 10'000 < kMessageBytesMax);
  core::RunSnapshot run;
  for (Rank rank = 0; rank < 10'000; ++rank)
    run.ranks.push_back({rank, node.node, 4'000'000, core::RankPhase::kStepping, 1'000'000'000, 1000, "validate",
                         0.123456789012345, 123456.789012345, 0.123456789});
  CHECK(core::to_json(run).dump().size() < kMessageBytesMax);
}

TEST_CASE("client desk: a client follows so many runs at a time and no more", "[client]") {
  Desk at;
  for (std::size_t id = 0; id <= coordinator::ClientDesk::kFollowersMax; ++id) {
    at.send(nlohmann::json{{"type", "follow"}, {"id", id}, {"run", "r"}, {"events", true}}.dump());
    const nlohmann::json answer = at.next();
    CHECK(answer.at("ok") == (id < coordinator::ClientDesk::kFollowersMax));
  }
}
