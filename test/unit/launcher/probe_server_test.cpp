// The probes over real sockets: what a scraper, an orchestrator and a hostile neighbour get.

#include "launcher/http/probe_server.hpp"

#include <functional>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <catch2/catch.hpp>

#include "launcher/http/loop_lag.hpp"

using namespace sgd;
using namespace std::chrono_literals;
using boost::asio::ip::tcp;

namespace {

struct ServedProbes {
  boost::asio::io_context io;
  http::Health health{true, true, ""};
  int scrapes = 0;
  http::ProbeServer server;

  explicit ServedProbes(http::ProbeLimits limits = {})
      : server(
            io,
            [this] {
              ++scrapes;
              return std::string("up 1\n");
            },
            [this] { return health; }, limits) {
    REQUIRE(server.listen(0).ok());
  }

  tcp::socket connect() {
    tcp::socket socket(io);
    socket.connect({boost::asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(server.port())});
    socket.non_blocking(true);
    return socket;
  }
  bool run_until(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (!done() && std::chrono::steady_clock::now() < deadline) io.run_one_for(5ms);
    return done();
  }
  /// Reads what there is; true at the end of the stream.
  static bool read_more(tcp::socket& socket, std::string& text) {
    char bytes[4096];
    boost::system::error_code error;
    const std::size_t count = socket.read_some(boost::asio::buffer(bytes), error);
    text.append(bytes, count);
    return error && error != boost::asio::error::would_block;
  }
  /// All that comes until the server closes.
  std::string until_closed(tcp::socket& socket) {
    std::string text;
    CHECK(run_until([&] { return read_more(socket, text); }));
    return text;
  }
  std::string until(tcp::socket& socket, const std::string& end) {
    std::string text;
    CHECK(run_until([&] { return read_more(socket, text) || text.ends_with(end); }));
    return text;
  }
  static void send(tcp::socket& socket, const std::string& bytes) {
    boost::asio::write(socket, boost::asio::buffer(bytes));
  }
  /// One request on a connection of its own.
  std::string ask(const std::string& request) {
    tcp::socket socket = connect();
    send(socket, request);
    return until_closed(socket);
  }
  std::string get(const std::string& target) {
    return ask("GET " + target + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  }
};

int status_of(const std::string& reply) {
  REQUIRE(reply.starts_with("HTTP/1.1 "));
  return std::stoi(reply.substr(9, 3));
}
std::string body_of(const std::string& reply) {
  return reply.substr(reply.find("\r\n\r\n") + 4);
}

const std::string kScrape = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";

}  // namespace

TEST_CASE("probes: a scrape, and what does not exist", "[http]") {
  ServedProbes at;
  const std::string reply = at.get("/metrics");
  CHECK(status_of(reply) == 200);
  CHECK(body_of(reply) == "up 1\n");
  CHECK_THAT(reply, Catch::Contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  CHECK_THAT(reply, Catch::Contains("\r\nContent-Length: 5\r\n") && Catch::Contains("\r\nConnection: close\r\n"));
  CHECK(status_of(at.get("/metrics?x=1")) == 200);
  for (const char* path : {"/", "/metrics/", "/..", "/metric", "*", "http://a/metrics"})
    CHECK(status_of(at.get(path)) == 404);
  const std::string head = at.ask("HEAD /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  CHECK(status_of(head) == 200);
  CHECK_THAT(head, Catch::Contains("Content-Length: 5\r\n") && Catch::EndsWith("\r\n\r\n"));
}

TEST_CASE("probes: alive and ready are two questions", "[http]") {
  ServedProbes at;
  CHECK(body_of(at.get("/healthz")) == "ok\n");
  CHECK(body_of(at.get("/readyz")) == "ok\n");
  at.health = {true, false, "the job store is being read"};
  CHECK(status_of(at.get("/healthz")) == 200);
  CHECK(status_of(at.get("/readyz")) == 503);
  CHECK(body_of(at.get("/readyz")) == "the job store is being read\n");
  at.health = {false, true, "the disk is full"};
  CHECK(status_of(at.get("/healthz")) == 503);
  CHECK(status_of(at.get("/readyz")) == 503);
}

TEST_CASE("probes: other methods and bodies are refused", "[http]") {
  ServedProbes at;
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "get", "NOSUCH"}) {
    const std::string reply =
        at.ask(std::string(method) + " /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    CHECK(status_of(reply) == 405);
    CHECK_THAT(reply, Catch::Contains("\r\nAllow: GET, HEAD\r\n"));
  }
  CHECK(status_of(at.ask("POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")) == 413);
  CHECK(status_of(at.ask("GET /metrics HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")) == 413);
  CHECK(at.scrapes == 0);
}

TEST_CASE("probes: what is no HTTP is refused at once", "[http]") {
  ServedProbes at;
  CHECK(status_of(at.ask(std::string("\0\0\0\x05\x01hello", 10))) == 400);
  CHECK(status_of(at.ask("\x16\x03\x01")) == 400);
  CHECK(status_of(at.ask("GET /metrics\r\n\r\n")) == 400);
  CHECK(status_of(at.ask("GET /metrics HTTP/9.9\r\n\r\n")) == 400);
  CHECK(status_of(at.ask("GET /metrics HTTP/1.1\r\nno colon\r\n\r\n")) == 400);
  CHECK(at.scrapes == 0);
}

TEST_CASE("probes: oversize requests are answered, and the answer arrives", "[http]") {
  ServedProbes at;
  const std::string long_field = "GET /metrics HTTP/1.1\r\nX: " + std::string(100'000, 'x') + "\r\n\r\n";
  CHECK(status_of(at.ask(long_field)) == 431);
  CHECK(status_of(at.ask("GET /" + std::string(9'000, 'x'))) == 431);
  std::string many = "GET /metrics HTTP/1.1\r\n";
  for (int field = 0; field < 65; ++field) many += "A: b\r\n";
  CHECK(status_of(at.ask(many + "\r\n")) == 431);
  CHECK(at.scrapes == 0);
}

TEST_CASE("probes: who goes on after a refusal is not read for ever; limit kDrainBytesMax", "[http]") {
  http::ProbeLimits limits;
  limits.request = 60s;
  ServedProbes at(limits);
  tcp::socket socket = at.connect();
  ServedProbes::send(socket, "no request\r\n\r\n");
  CHECK(status_of(at.until_closed(socket)) == 400);
  const std::string more(16 << 10, 'x');
  std::size_t sent = 0;
  CHECK(at.run_until([&] {
    boost::system::error_code error;
    sent += socket.write_some(boost::asio::buffer(more), error);
    return error && error != boost::asio::error::would_block;
  }));
  CHECK(sent > std::size_t{256} << 10);
}

TEST_CASE("probes: one byte at a time, and several requests at once", "[http]") {
  ServedProbes at;
  tcp::socket slow = at.connect();
  for (const char letter : kScrape) {
    ServedProbes::send(slow, std::string(1, letter));
    at.io.poll();
  }
  CHECK(status_of(at.until(slow, "up 1\n")) == 200);
  std::string pipelined;
  for (int number = 0; number < 20; ++number) pipelined += kScrape;
  const std::string replies =
      at.ask(pipelined + "GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n");
  CHECK(at.scrapes == 21);
  CHECK_THAT(replies, Catch::EndsWith("ok\n"));
  std::size_t answered = 0;
  for (std::size_t place = 0; (place = replies.find("HTTP/1.1 200 OK", place)) != std::string::npos; ++place)
    ++answered;
  CHECK(answered == 21);  // Nothing is answered behind "close".
}

TEST_CASE("probes: a connection is kept for the next scrape, for a bounded number of them", "[http]") {
  http::ProbeLimits limits;
  limits.requests_per_connection = 3;
  ServedProbes at(limits);
  tcp::socket socket = at.connect();
  for (int number = 0; number < 2; ++number) {
    ServedProbes::send(socket, kScrape);
    CHECK_THAT(at.until(socket, "up 1\n"), Catch::Contains("Connection: keep-alive"));
  }
  ServedProbes::send(socket, kScrape);
  CHECK_THAT(at.until_closed(socket), Catch::Contains("Connection: close"));
  const std::string old = at.ask("GET /metrics HTTP/1.0\r\n\r\n");  // HTTP/1.0 closes unless it asks otherwise.
  CHECK_THAT(old, Catch::Contains("Connection: close"));
}

TEST_CASE("probes: who dawdles over a request is cut off at its deadline, however busy he looks", "[http]") {
  http::ProbeLimits limits;
  limits.request = 100ms;
  ServedProbes at(limits);
  const auto begin = std::chrono::steady_clock::now();  // The server counts from when it accepts.
  tcp::socket silent = at.connect();
  tcp::socket slow = at.connect();
  std::string text;
  ServedProbes::send(slow, "GET /metrics HTTP/1.1\r\n");
  // Each millisecond brings one more byte: a deadline that began anew with each would never end.
  auto next = begin;
  CHECK(at.run_until([&] {
    boost::system::error_code error;
    if (const auto now = std::chrono::steady_clock::now(); now >= next) {
      boost::asio::write(slow, boost::asio::buffer("X", 1), error);
      next = now + 1ms;
    }
    return ServedProbes::read_more(slow, text);
  }));
  CHECK(text.empty());
  CHECK(std::chrono::steady_clock::now() - begin >= 100ms);
  CHECK(at.until_closed(silent).empty());
  CHECK(status_of(at.get("/metrics")) == 200);
}

TEST_CASE("probes: an idle connection has its own, longer limit", "[http]") {
  http::ProbeLimits limits;
  limits.request = 10s;
  limits.idle = 50ms;
  ServedProbes at(limits);
  tcp::socket socket = at.connect();
  ServedProbes::send(socket, kScrape);
  CHECK_THAT(at.until_closed(socket), Catch::EndsWith("up 1\n"));
}

TEST_CASE("probes: connections are limited, and idle ones make room", "[http]") {
  http::ProbeLimits limits;
  limits.connections = 3;
  ServedProbes at(limits);
  std::vector<tcp::socket> idle;
  for (int number = 0; number < 3; ++number) {
    idle.push_back(at.connect());
    ServedProbes::send(idle.back(), kScrape);
    at.until(idle.back(), "up 1\n");
  }
  ServedProbes::send(idle[0], kScrape);  // The first is now the last to have come to rest.
  at.until(idle[0], "up 1\n");
  tcp::socket fourth = at.connect();
  CHECK(at.until_closed(idle[1]).empty());
  tcp::socket fifth = at.connect();
  CHECK(at.until_closed(idle[2]).empty());
  tcp::socket sixth = at.connect();
  CHECK(at.until_closed(idle[0]).empty());
  // Fourth to sixth are no idle ones: their first request is awaited.
  tcp::socket seventh = at.connect();
  CHECK(at.until_closed(fourth).empty());
  ServedProbes::send(fifth, kScrape);
  CHECK(status_of(at.until(fifth, "up 1\n")) == 200);
}

TEST_CASE("probes: who holds all connections with half a request keeps nobody out", "[http]") {
  http::ProbeLimits limits;
  limits.connections = 3;
  limits.request = 60s;
  ServedProbes at(limits);
  std::vector<tcp::socket> held;
  for (int number = 0; number < 30; ++number) {
    held.push_back(at.connect());
    ServedProbes::send(held.back(), "GET /metrics HTTP/1.1\r\n");
    at.io.poll();
  }
  const auto begin = std::chrono::steady_clock::now();
  CHECK(status_of(at.get("/metrics")) == 200);
  CHECK(std::chrono::steady_clock::now() - begin < 10s);
  std::string text;
  CHECK(at.run_until([&] { return ServedProbes::read_more(held[27], text); }));  // The oldest of the last three.
  CHECK(text.empty());
  CHECK_FALSE(ServedProbes::read_more(held[29], text));
}

TEST_CASE("probes: who does not take its answer keeps nobody out", "[http]") {
  http::ProbeLimits limits;
  limits.connections = 2;
  limits.request = 60s;
  ServedProbes at(limits);
  std::vector<tcp::socket> held;
  for (int number = 0; number < 2; ++number) {  // They have their answers, and do not close.
    held.push_back(at.connect());
    ServedProbes::send(held.back(), "no request\r\n\r\n");
    std::string text;
    CHECK(at.run_until([&] { return ServedProbes::read_more(held.back(), text); }));
    CHECK(status_of(text) == 400);
  }
  CHECK(status_of(at.get("/healthz")) == 200);
}

TEST_CASE("probes: a client that does not read its answer is given up", "[http]") {
  boost::asio::io_context io;
  http::ProbeLimits limits;
  limits.request = 100ms;
  bool is_asked = false;
  const auto answer = [&is_asked] {
    is_asked = true;
    return std::string(16 << 20, 'x');
  };
  http::ProbeServer server(
      io, answer, [] { return http::Health{}; }, limits);
  REQUIRE(server.listen(0).ok());
  tcp::socket socket(io);
  socket.connect({boost::asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(server.port())});
  ServedProbes::send(socket, kScrape);
  while (!is_asked) REQUIRE(io.run_one_for(20s) == 1);
  // The server has set its own limit before: it ends first.
  boost::asio::steady_timer limit(io, limits.request);
  bool is_over = false;
  limit.async_wait([&is_over](const boost::system::error_code&) { is_over = true; });
  while (!is_over) REQUIRE(io.run_one_for(20s) == 1);
  std::string text;
  boost::system::error_code error;
  boost::asio::read(socket, boost::asio::dynamic_buffer(text), error);
  CHECK(error);
  CHECK(text.size() < (16 << 20));
}

TEST_CASE("probes: stop closes everything, and the loop ends", "[http]") {
  ServedProbes at;
  tcp::socket socket = at.connect();
  ServedProbes::send(socket, kScrape);
  at.until(socket, "up 1\n");
  const int port = at.server.port();
  CHECK(port > 0);
  at.server.stop();
  at.server.stop();
  CHECK(at.server.port() == 0);
  at.io.restart();
  at.io.run();  // Returns because no work is left.
  std::string text;
  CHECK(at.run_until([&] { return ServedProbes::read_more(socket, text); }));
  ServedProbes other;
  CHECK_FALSE(other.server.listen(70000).ok());
}

TEST_CASE("probes: a port that is in use is said", "[http]") {
  ServedProbes at;
  http::ProbeServer second(
      at.io, [] { return std::string(); }, [] { return http::Health{}; });
  const Status status = second.listen(at.server.port());
  REQUIRE_FALSE(status.ok());
  CHECK_THAT(status.error().message,
             Catch::StartsWith("cannot serve metrics on 127.0.0.1:") && Catch::EndsWith("Address already in use"));
}

TEST_CASE("loop lag: reports each second while it lives, and leaves no work behind", "[http]") {
  boost::asio::io_context io;
  std::vector<double> lags;
  {
    const http::LoopLag lag(io, [&](double lag_s) { lags.push_back(lag_s); });
    while (lags.empty()) REQUIRE(io.run_one_for(30s) == 1);
  }
  CHECK(lags.front() >= 0);
  CHECK(io.run() <= 1);
  CHECK(lags.size() == 1);
}
