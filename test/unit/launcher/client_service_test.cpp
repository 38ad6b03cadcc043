// A client may write what it likes: its own connection answers for it, and the coordinator goes on.

#include "launcher/coordinator/client_service.hpp"

#include <fcntl.h>
#include <sys/resource.h>

#include <fstream>
#include <functional>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/write.hpp>
#include <catch2/catch.hpp>

#include "keeper_test_support.hpp"
#include "launcher/core/snapshot.hpp"
#include "launcher/process/unique_fd.hpp"

using namespace sgd;
using namespace std::chrono_literals;
using boost::asio::ip::tcp;

namespace {

/// A client's end, as a socket.
class RawClient {
 public:
  RawClient(boost::asio::io_context& io, const net::Address& to) : io_(io), socket_(connected(io, to)) {
    socket_.non_blocking(true);
    reader_.take_long_messages();
    send(hello::encode({}));
    send(R"({"type":"client","version":"test"})");
  }
  void send(const std::string& text) {
    boost::asio::write(socket_, boost::asio::buffer(encode_frame(FrameKind::kJson, text)));
  }
  /// The next message; null when the connection ends.
  nlohmann::json next() {
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while (std::chrono::steady_clock::now() < deadline) {
      auto frame = reader_.next();
      REQUIRE(frame.ok());
      if (frame.value()) return nlohmann::json::parse(frame.value()->bytes);
      io_.run_one_for(5ms);
      char bytes[64 << 10];
      boost::system::error_code error;
      const std::size_t count = socket_.read_some(boost::asio::buffer(bytes), error);
      if (error == boost::asio::error::eof) return nullptr;
      reader_.append({bytes, count});
    }
    FAIL("nothing came within 60 s");
    return nullptr;
  }

 private:
  static net::Socket connected(boost::asio::io_context& io, const net::Address& to) {
    if (to.is_local_socket()) {
      boost::asio::local::stream_protocol::socket local(io);
      local.connect(to.path);
      return net::Socket(std::move(local));
    }
    tcp::socket remote(io);
    remote.connect({boost::asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(to.port)});
    return net::Socket(std::move(remote));
  }
  boost::asio::io_context& io_;
  net::Socket socket_;
  FrameReader reader_;
};

/// A service behind a gateway, and a client that has been greeted.
struct Desk {
  keeper_test::TemporaryDir folder;
  std::vector<coordinator::ClientService::Reply> held;  ///< Of requests that are to wait.
  boost::asio::io_context io;
  coordinator::ClientService service{
      io,
      {[this](const coordinator::Requester&, const nlohmann::json& request,
              const coordinator::ClientService::Reply& reply) {
         if (request.contains("waits")) return held.push_back(reply);
         if (request.contains("bytes"))
           return reply(coordinator::ClientService::Json{
               {"ok", true}, {"rows", std::string(request.at("bytes").get<std::size_t>(), 'x')}});
         reply(coordinator::ClientService::Json{{"ok", true}, {"echo", request.at("job")}});
       },
       [this](const std::string& run) -> Result<coordinator::ClientService::FollowedRun> {
         return coordinator::ClientService::FollowedRun{run, folder.file(""), std::nullopt};
       }}};
  net::Address address;
  net::Gateway gateway{io, net::Listener::open(io, address).value()};
  std::unique_ptr<RawClient> raw;

  /// Over a Unix socket clients have a name.
  explicit Desk(bool is_local = false)
      : address(is_local ? net::Address{{}, 0, folder.file("door.sock")} : net::Address{"127.0.0.1", 0}) {
    net::Gateway::Handlers handlers;
    handlers.kinds["client"] = [this](std::unique_ptr<net::Session> session, const nlohmann::json&) {
      service.take(std::move(session));
    };
    handlers.on_refused = [](const std::string&, const net::Refusal&) {};
    gateway.start(std::move(handlers));
    raw = come();
    CHECK(next().at("type") == "hello");
    CHECK(next().at("type") == "welcome");
  }
  std::unique_ptr<RawClient> come() {
    return std::make_unique<RawClient>(io,
                                       address.is_local_socket() ? address : net::Address{"127.0.0.1", gateway.port()});
  }
  void send(const std::string& text) { raw->send(text); }
  nlohmann::json next() { return raw->next(); }
};

}  // namespace

TEST_CASE("client service: a follow that is refused leaves nothing behind", "[client]") {
  Desk at;
  at.send(R"({"type":"follow","id":8,"run":"r","logs":true,"rank":"no number"})");
  const nlohmann::json refused = at.next();
  CHECK(refused.at("id") == 8);
  CHECK(refused.at("ok") == false);
  at.send(R"({"type":"got","id":8,"file":"events.jsonl","offset":1})");
  at.service.on_grown("r", "events.jsonl");
  at.service.on_settled("r", {{"state", "succeeded"}});
  at.send(R"({"type":"follow","id":8,"run":"r","logs":true})");
  CHECK(at.next().at("ok") == true);
}

TEST_CASE("client service: what cannot be read for a lack of descriptors is read later, or said, and is no end",
          "[client]") {
  Desk at;
  std::ofstream(at.folder.file("events.jsonl")) << "{\"event\":\"run_started\"}\n";
  at.service.disk_limit = 2s;
  const auto follow = [&at](int id) {
    const nlohmann::json asked = {{"type", "follow"}, {"id", id}, {"run", "r"}, {"events", true}, {"until_now", true}};
    at.send(asked.dump());
    CHECK(at.next().at("ok") == true);
  };
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const process::UniqueFd free(::open("/dev/null", O_RDONLY | O_CLOEXEC));  // The lowest; then there is none.
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(free.get()) + 1;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  SECTION("later") {
    follow(8);
    at.io.run_for(100ms);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(at.next().at("file") == "events.jsonl");
    CHECK(at.next().at("event") == "run_started");
    at.send(R"({"type":"got","id":8,"file":"events.jsonl","offset":24})");
    CHECK(at.next().at("type") == "end");
  }
  SECTION("said") {
    at.service.disk_limit = 100ms;
    follow(8);
    const nlohmann::json refused = at.next();
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    REQUIRE(refused.at("type") == "answer");
    CHECK(refused.at("ok") == false);
    CHECK(refused.at("error") == "cannot read " + at.folder.file("/events.jsonl") + ": Too many open files");
  }
}

TEST_CASE("client service: nesting is bounded before anything is built or copied", "[client]") {
  Desk at;
  const std::string deep = std::string(400'000, '[') + std::string(400'000, ']');
  at.send(R"({"type":"request","id":1,"request":"submit","job":)" + deep + "}");
  CHECK(at.next().is_null());
  CHECK(at.service.clients() == 0);
}

TEST_CASE("client service: an answer of megabytes comes in parts; one that is too long is refused in its place",
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

TEST_CASE("client service: what ten thousand nodes and ten thousand ranks have to say can be sent", "[client]") {
  core::NodeSnapshot node;
  node.node = "node-00000.cluster.example.org";
  node.slots = node.used = node.cpus = 128;
  node.gpus = 8;
  node.memory_bytes = std::int64_t{1} << 41;
  node.labels = {{"gpu", "h100-80gb"}, {"zone", "europe-west4-b"}, {"rack", "r-1042"}};
  node.version = SGD_VERSION;
  node.address = "node-00000.cluster.example.org";
  node.runs = {{"fashion-mnist-cnn-20260101-120000-abcd", 64}, {"fashion-mnist-mlp-20260101-120000-ef01", 64}};
  CHECK(core::to_text(node, "disconnected", TimePoint{}).size() * 10'000 < kMessageBytesMax);
  core::RunSnapshot run;
  for (Rank rank = 0; rank < 10'000; ++rank)
    run.ranks.push_back({rank, node.node, 4'000'000, core::RankPhase::kStepping, 1'000'000'000, 1000, "validate",
                         0.123456789012345, 123456.789012345, 0.123456789});
  CHECK(core::to_json(run).dump().size() < kMessageBytesMax);
}

TEST_CASE("client service: a client follows so many runs at a time and no more", "[client]") {
  Desk at;
  for (std::size_t id = 0; id <= coordinator::ClientService::kFollowersMax; ++id) {
    at.send(nlohmann::json{{"type", "follow"}, {"id", id}, {"run", "r"}, {"events", true}}.dump());
    const nlohmann::json answer = at.next();
    CHECK(answer.at("ok") == (id < coordinator::ClientService::kFollowersMax));
  }
}

TEST_CASE("client service: of one client's requests so many may wait and no more; limit kUnansweredMax", "[client]") {
  constexpr std::size_t kMost = coordinator::ClientService::kUnansweredMax;
  Desk at;
  for (std::size_t id = 0; id < kMost; ++id)
    at.send(nlohmann::json{{"type", "request"}, {"id", id}, {"waits", true}}.dump());
  at.send(R"({"type":"request","id":100,"request":"echo","job":"mine"})");
  const nlohmann::json refused = at.next();
  CHECK(refused.at("id") == 100);
  CHECK(refused.at("kind") == "busy");
  REQUIRE(at.held.size() == kMost);
  at.held.front()(coordinator::ClientService::Json{{"ok", true}});
  CHECK(at.next().at("id") == 0);
  at.held.erase(at.held.begin());
  // A request that cannot be understood keeps no place.
  for (const int id : {101, 102}) {
    at.send(nlohmann::json{{"type", "request"}, {"id", id}, {"request", "echo"}}.dump());
    CHECK(at.next().at("kind") == "request");
  }
  at.send(R"({"type":"request","id":103,"request":"echo","job":"mine"})");
  CHECK(at.next().at("echo") == "mine");
}

TEST_CASE("client service: who comes when all places are taken is told, keeps nothing, and harms nobody", "[client]") {
  Desk at;
  at.service.clients_max = 1;  // In place of kClientsMax.
  std::vector<std::unique_ptr<RawClient>> late;
  for (std::size_t number = 0; number < coordinator::ClientService::kTurnedAwayMax + 8; ++number) {
    RawClient& raw = *late.emplace_back(at.come());
    CHECK(raw.next().at("type") == "hello");
    const auto said = raw.next();
    CHECK(said.at("type") == "refused");
    CHECK(said.at("error") == "1 clients are connected: try again later");
  }
  CHECK(late.front()->next().is_null());  // Its place was needed.
  CHECK(at.service.clients() == 1);
  at.send(R"({"type":"request","id":1,"request":"echo","job":"mine"})");
  CHECK(at.next().at("echo") == "mine");
}

TEST_CASE("client service: of one name so many clients are taken and no more; limit kClientsOfOneMax", "[client]") {
  Desk at(true);
  at.service.clients_of_one_max = 2;
  const auto second = at.come();
  CHECK(second->next().at("type") == "hello");
  CHECK(second->next().at("type") == "welcome");
  const auto third = at.come();
  CHECK(third->next().at("type") == "hello");
  const auto said = third->next();
  CHECK(said.at("type") == "refused");
  CHECK_THAT(said.at("error").get<std::string>(), Catch::StartsWith("2 clients of "));
  CHECK(at.service.clients() == 2);
}

TEST_CASE("client service: what all clients of one name do not take has a limit; limit kUntakenMax", "[client]") {
  Desk at(true);
  at.service.untaken_max = 12 << 20;  // Less than what one connection may have waiting.
  const auto second = at.come();
  CHECK(second->next().at("type") == "hello");
  CHECK(second->next().at("type") == "welcome");
  for (const char* text : {R"({"type":"request","id":1,"bytes":8000000})", R"({"type":"request","id":2,"bytes":10})"})
    second->send(text);
  CHECK(at.service.clients() == 2);
  for (int turn = 0; turn < 10; ++turn) at.io.run_one_for(std::chrono::milliseconds(5));
  at.send(R"({"type":"request","id":1,"bytes":8000000})");
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (at.service.clients() == 2 && std::chrono::steady_clock::now() < deadline) at.io.run_one_for(5ms);
  CHECK(at.service.clients() == 1);
}

TEST_CASE("client service: of all requests of one name so many may wait and no more; limit kUnansweredOfOneMax",
          "[client]") {
  constexpr std::size_t kMost = coordinator::ClientService::kUnansweredOfOneMax;
  Desk at(true);
  const auto second = at.come();
  CHECK(second->next().at("type") == "hello");
  CHECK(second->next().at("type") == "welcome");
  for (std::size_t id = 0; id < kMost; ++id)
    (id % 2 == 0 ? *at.raw : *second).send(nlohmann::json{{"type", "request"}, {"id", id}, {"waits", true}}.dump());
  const auto deadline = std::chrono::steady_clock::now() + 10s;
  while (at.held.size() < kMost && std::chrono::steady_clock::now() < deadline) at.io.run_one_for(5ms);
  REQUIRE(at.held.size() == kMost);
  at.send(R"({"type":"request","id":100,"request":"echo","job":"mine"})");
  const nlohmann::json refused = at.next();
  CHECK(refused.at("id") == 100);
  CHECK(refused.at("kind") == "busy");
  at.held.clear();
  at.send(R"({"type":"request","id":101,"request":"echo","job":"mine"})");
  CHECK(at.next().at("echo") == "mine");
}

TEST_CASE("client service: bytes that are put are as many as was said, and not too many", "[client]") {
  const std::string hash(64, 'a');
  const auto put = [&hash](std::int64_t bytes) {
    return nlohmann::json{{"type", "put"}, {"id", 3}, {"sha256", hash}, {"offset", 0}, {"bytes", bytes}}.dump();
  };
  Desk none;
  none.send(put(0));
  CHECK(none.next().at("error") == "no files are taken here");
  none.send(R"({"type":"put","id":4,"sha256":7})");
  CHECK(none.next().at("ok") == false);
  none.send(put(coordinator::ClientService::kPutBytesMax + 1));
  CHECK(none.next().is_null());
  Desk other;
  other.send(put(5));
  other.send(put(5));  // In place of a chunk.
  CHECK(other.next().is_null());
}
