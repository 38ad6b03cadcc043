#include "launcher/agent/worker_server.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include "launcher/process/unix_socket.hpp"

namespace sgd::agent {

WorkerServer::WorkerServer(boost::asio::io_context& io, Handlers handlers)
    : io_(io), handlers_(std::move(handlers)), listener_(io), wait_timer_(io) {}

Status WorkerServer::listen(const std::string& path, process::Reach reach) {
  auto listener = process::listen_unix(path, reach);
  if (!listener) return listener.error();
  listener_.assign(std::move(listener).value().release());
  wait_accept();
  return {};
}

void WorkerServer::wait_accept() {
  listener_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                       [this](const boost::system::error_code& error) {
                         if (error) return;
                         accept_all();
                         wait_accept();
                       });
}

void WorkerServer::accept_all() {
  for (;;) {
    process::UniqueFd socket(::accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) return;
    add(std::move(socket));
  }
}

void WorkerServer::add(process::UniqueFd socket) {
  const auto peer = process::peer_credentials(socket.get());
  const bool is_ours = peer && (peer.value().uid == ::getuid() || peer.value().uid == 0);
  if (!is_ours && !(peer && handlers_.admits && handlers_.admits(peer.value().uid)))
    return handlers_.on_dropped("worker link from another user refused");
  const auto strangers = std::count_if(connections_.begin(), connections_.end(), [&](const auto& connection) {
    return !connection.second.greeted && connection.second.peer_user == peer.value().uid;
  });
  if (static_cast<std::size_t>(strangers) >= kStrangersMax)
    return handlers_.on_dropped(fmt::format("worker link refused: {} links have not said hello", strangers));
  const core::ConnectionId id = next_++;
  Connection& connection = connections_[id];
  connection.number = std::make_shared<core::ConnectionId>(id);
  connection.peer_pid = peer.value().pid;
  connection.peer_user = peer.value().uid;
  connection.stream = std::make_shared<LocalStream>(io_, std::move(socket));
  connection.hello_timer = std::make_unique<boost::asio::steady_timer>(io_, kHelloDeadline);
  connection.hello_timer->async_wait([this, id](const boost::system::error_code& error) {
    if (!error) drop(id, "no hello in time");
  });
  connection.stream->start([this, number = connection.number](
                               std::string_view bytes, std::vector<process::UniqueFd>) { on_bytes(number, bytes); },
                           [this, number = connection.number](const std::string&) {
                             if (connections_.erase(*number) > 0)
                               handlers_.on_event(core::agent_event::LinkClosed{*number});
                           });
}

void WorkerServer::on_bytes(const std::shared_ptr<core::ConnectionId>& number, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto place = connections_.find(*number);
    if (place == connections_.end()) return;
    Connection& connection = place->second;
    if (connection.is_paused) {
      connection.untaken.append(bytes);
      break;
    }
    const std::size_t newline = bytes.find('\n');
    connection.partial.append(bytes.substr(0, newline));
    if (connection.partial.size() > link::kLineBytesMax) return drop(*number, "line over 64 KiB");
    if (newline == std::string_view::npos) break;
    bytes.remove_prefix(newline + 1);
    const std::string line = std::exchange(connection.partial, {});
    on_line(*number, connection, line);
  }
  if (const auto place = connections_.find(*number); place != connections_.end()) acknowledge(place->second);
}

void WorkerServer::on_line(core::ConnectionId id, Connection& connection, std::string_view line) {
  auto message = link::decode_from_worker(line);
  if (!message) return drop(id, message.error().message);
  if (const auto* hello = std::get_if<link::Hello>(&message.value())) {
    connection.greeted = true;
    connection.hello_timer.reset();
    if (hello->returns && take_back(id, *hello)) return;
    connection.returns = hello->returns;
    if (hello->returns) connection.stream->send(link::encode(link::ToWorker(link::Received{})));
  } else if (const auto* received = std::get_if<link::Received>(&message.value())) {
    const Status known = connection.sent.acknowledge(received->count);
    if (!known) drop(id, known.error().message);
    return;
  } else if (link::is_counted(message.value())) {
    ++connection.received;
  }
  handlers_.on_event(core::agent_event::FromWorker{id, connection.peer_pid, std::move(message).value()});
}

void WorkerServer::acknowledge(Connection& connection) {
  if (!connection.returns || !connection.stream || connection.told_received == connection.received) return;
  connection.told_received = connection.received;
  connection.stream->send(link::encode(link::ToWorker(link::Received{connection.received})));
}

void WorkerServer::send(core::ConnectionId id, const link::ToWorker& message, const std::vector<int>& descriptors) {
  const auto place = connections_.find(id);
  if (place == connections_.end()) return;
  Connection& connection = place->second;
  std::string line = link::encode(message);
  if (const auto* assignment = std::get_if<link::Assignment>(&message)) connection.run = assignment->run;
  if (connection.returns && link::is_counted(message)) connection.sent.push(line);
  if (connection.stream) connection.stream->send(std::move(line), descriptors);
  if (connection.sent.bytes() > kKeptBytesMax && connection.stream) drop(id, "it acknowledges nothing");
}

void WorkerServer::pause(core::ConnectionId id) {
  const auto place = connections_.find(id);
  if (place == connections_.end()) return;
  place->second.is_paused = true;
  if (place->second.stream) place->second.stream->pause();
}

/// Later: lines are events, and this is what follows from one.
void WorkerServer::resume(core::ConnectionId id) {
  const auto place = connections_.find(id);
  if (place == connections_.end()) return;
  place->second.is_paused = false;
  if (!place->second.stream) return;
  boost::asio::post(io_, [this, id] {
    const auto paused = connections_.find(id);
    if (paused == connections_.end() || !paused->second.stream || paused->second.is_paused) return;
    const auto stream = paused->second.stream;
    const std::string untaken = std::exchange(paused->second.untaken, {});
    on_bytes(paused->second.number, untaken);
    const auto still = connections_.find(id);
    if (still != connections_.end() && still->second.stream == stream && !still->second.is_paused) stream->resume();
  });
}

void WorkerServer::drop(core::ConnectionId id, const std::string& reason) {
  const auto place = connections_.find(id);
  if (place == connections_.end()) return;
  Connection& connection = place->second;
  if (!connection.stream) {  // In a replay: it was dropped, and had no time to go.
    connection.returns = false;
    return;
  }
  handlers_.on_dropped(fmt::format("worker link of pid {} dropped: {}", connection.peer_pid, reason));
  if (connection.returns) connection.stream->send(link::encode(link::ToWorker(link::Dropped{reason})));
  connection.stream->close(reason);
}

void WorkerServer::stop() {
  boost::system::error_code ignored;
  listener_.close(ignored);
  wait_timer_.cancel();
  for (auto& [id, connection] : connections_) {
    connection.process.reset();
    if (!connection.stream) continue;
    if (connection.returns) connection.stream->send(link::encode(link::ToWorker(link::Dropped{"the agent ends"})));
    connection.stream->close("the agent ends");
  }
}

}  // namespace sgd::agent
