#include "launcher/http/probe_server.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

namespace sgd::http {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

/// Descriptors have run out, for example: whoever waits is served when some are free again.
constexpr Duration kPause = std::chrono::milliseconds(100);
/// Read and thrown away after the last answer, so that closing does not cut it off on its way.
constexpr std::size_t kDrainBytesMax = 256 << 10;

}  // namespace

struct ProbeServer::Shared : std::enable_shared_from_this<Shared> {
  Shared(asio::io_context& io, ProbeSources with, ProbeLimits within)
      : sources(std::move(with)), limits(within), acceptor(io), pause(io) {}
  void accept();
  void take(tcp::socket socket);
  void stop();
  void move_to_back(const Session& session);
  void make_room();

  ProbeSources sources;
  ProbeLimits limits;
  tcp::acceptor acceptor;
  asio::steady_timer pause;
  /// In the order in which they came to rest, or their requests began: the first of a kind is so for the longest.
  std::vector<std::shared_ptr<Session>> sessions;
  bool is_stopped = false;
};

/// One connection: bytes in, one request at a time, its answer out.
class ProbeServer::Session : public std::enable_shared_from_this<Session> {
 public:
  Session(tcp::socket socket, std::shared_ptr<Shared> shared)
      : socket_(std::move(socket)), deadline_(socket_.get_executor()), shared_(std::move(shared)) {}

  void start() {
    arm(shared_->limits.request);
    read();
  }
  [[nodiscard]] bool is_idle() const { return is_idle_; }
  /// A request has begun, or is awaited for the first time, and is not whole.
  [[nodiscard]] bool is_half_read() const { return is_half_read_; }
  void close() {
    if (std::exchange(is_closed_, true)) return;
    error_code ignored;
    deadline_.cancel();
    socket_.close(ignored);
    std::erase(shared_->sessions, shared_from_this());
  }

 private:
  void arm(Duration limit) {
    deadline_.expires_after(limit);
    deadline_.async_wait([self = shared_from_this()](const error_code& error) {
      // A wait that had ended before it was armed anew is not of this deadline.
      if (!error && self->deadline_.expiry() <= asio::steady_timer::clock_type::now()) self->close();
    });
  }

  void read() {
    socket_.async_read_some(asio::buffer(bytes_),
                            [self = shared_from_this()](const error_code& error, std::size_t count) {
                              if (self->is_closed_) return;
                              if (error) return self->close();
                              if (std::exchange(self->is_idle_, false)) self->begin_request();
                              if (self->is_ending_) return self->drain(count);
                              self->reader_.append({self->bytes_.data(), count});
                              self->serve();
                            });
  }

  void begin_request() {
    is_half_read_ = true;
    shared_->move_to_back(*this);
    arm(shared_->limits.request);
  }

  void serve() {
    const Result<std::optional<Request>> request = reader_.next();
    is_half_read_ = request && !request.value();
    if (!request) return answer(refusal(request.error().code, request.error().message), false);
    if (!request.value()) return read();
    const bool goes_on = request.value()->keep_alive && ++served_ < shared_->limits.requests_per_connection;
    answer(reply_to(*request.value(), shared_->sources, goes_on), goes_on);
  }

  void answer(std::string text, bool goes_on) {
    answer_ = std::move(text);
    asio::async_write(socket_, asio::buffer(answer_),
                      [self = shared_from_this(), goes_on](const error_code& error, std::size_t) {
                        if (self->is_closed_) return;
                        if (error) return self->close();
                        self->answer_.clear();
                        goes_on ? self->rest() : self->end();
                      });
  }

  /// Between two requests; the next one may be here already.
  void rest() {
    if (!reader_.is_empty()) {
      begin_request();
      return serve();
    }
    is_idle_ = true;
    shared_->move_to_back(*this);
    arm(shared_->limits.idle);
    read();
  }

  /// The client reads the answer and closes; until then, within the deadline, what it still sends is thrown
  /// away.
  void end() {
    error_code error;
    is_ending_ = true;
    socket_.shutdown(tcp::socket::shutdown_send, error);
    error ? close() : read();
  }
  void drain(std::size_t count) {
    drained_bytes_ += count;
    drained_bytes_ > kDrainBytesMax ? close() : read();
  }

  tcp::socket socket_;
  asio::steady_timer deadline_;
  std::shared_ptr<Shared> shared_;
  RequestReader reader_;
  std::array<char, 4 << 10> bytes_{};
  std::string answer_;
  int served_ = 0;
  std::size_t drained_bytes_ = 0;
  bool is_idle_ = false;
  bool is_half_read_ = true;
  bool is_ending_ = false;
  bool is_closed_ = false;
};

void ProbeServer::Shared::accept() {
  acceptor.async_accept([self = shared_from_this()](const error_code& error, tcp::socket socket) {
    if (self->is_stopped) return;
    if (!error) {
      self->take(std::move(socket));
      return self->accept();
    }
    self->pause.expires_after(kPause);
    self->pause.async_wait([self](const error_code& ended) {
      if (!ended && !self->is_stopped) self->accept();
    });
  });
}

void ProbeServer::Shared::move_to_back(const Session& session) {
  const auto is_it = [&session](const auto& one) { return one.get() == &session; };
  const auto at = std::find_if(sessions.begin(), sessions.end(), is_it);
  if (at != sessions.end()) std::rotate(at, std::next(at), sessions.end());
}

/// A request of this machine comes whole at once: who has begun with one and does not go on has had time for it, and so
/// has who does not take the answer. Else any account could keep all others out for as long as a request may take.
void ProbeServer::Shared::make_room() {
  auto least = std::find_if(sessions.begin(), sessions.end(), [](const auto& one) { return one->is_idle(); });
  if (least == sessions.end())
    least = std::find_if(sessions.begin(), sessions.end(), [](const auto& one) { return one->is_half_read(); });
  if (least == sessions.end()) least = sessions.begin();
  const std::shared_ptr<Session> closed = *least;
  closed->close();
}

void ProbeServer::Shared::take(tcp::socket socket) {
  if (sessions.size() >= limits.connections) make_room();
  sessions.push_back(std::make_shared<Session>(std::move(socket), shared_from_this()));
  sessions.back()->start();
}

void ProbeServer::Shared::stop() {
  if (std::exchange(is_stopped, true)) return;
  error_code ignored;
  acceptor.close(ignored);
  pause.cancel();
  while (!sessions.empty()) {
    const std::shared_ptr<Session> last = sessions.back();
    last->close();
  }
}

ProbeServer::ProbeServer(asio::io_context& io, std::function<std::string()> metrics, std::function<Health()> health,
                         ProbeLimits limits)
    : shared_(std::make_shared<Shared>(io, ProbeSources{std::move(metrics), std::move(health)}, limits)) {}

ProbeServer::~ProbeServer() {
  stop();
}

Status ProbeServer::listen(int port) {
  if (port < 0 || port > 65535) return Error{fmt::format("cannot serve metrics on port {}: no such port", port)};
  tcp::acceptor& acceptor = shared_->acceptor;
  const tcp::endpoint endpoint(asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(port));
  error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    error_code ignored;
    acceptor.close(ignored);
    return Error{fmt::format("cannot serve metrics on 127.0.0.1:{}: {}", port, error.message()), error.value()};
  }
  shared_->accept();
  return {};
}

int ProbeServer::port() const {
  error_code error;
  const tcp::endpoint endpoint = shared_->acceptor.local_endpoint(error);
  return error ? 0 : endpoint.port();
}

void ProbeServer::stop() {
  shared_->stop();
}

}  // namespace sgd::http
