#include "launcher/agent/worker_server.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

#include "launcher/process/unix_socket.hpp"

namespace sgd::agent {

WorkerServer::WorkerServer(boost::asio::io_context& io, OnEvent on_event, OnDropped on_dropped)
    : io_(io), on_event_(std::move(on_event)), on_dropped_(std::move(on_dropped)), listener_(io) {}

Status WorkerServer::listen(const std::string& path) {
  auto listener = process::listen_unix(path);
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
  if (!peer || (peer.value().uid != ::getuid() && peer.value().uid != 0))
    return on_dropped_("worker link from another user refused");
  const auto strangers = std::count_if(connections_.begin(), connections_.end(),
                                       [](const auto& connection) { return !connection.second.greeted; });
  if (static_cast<std::size_t>(strangers) >= kStrangersMax)
    return on_dropped_(fmt::format("worker link refused: {} links have not said hello", strangers));
  const core::ConnectionId id = next_++;
  Connection& connection = connections_[id];
  connection.peer_pid = peer.value().pid;
  connection.stream = std::make_shared<LocalStream>(io_, std::move(socket));
  connection.hello_timer = std::make_unique<boost::asio::steady_timer>(io_, kHelloDeadline);
  connection.hello_timer->async_wait([this, id](const boost::system::error_code& error) {
    if (!error) drop(id, "no hello in time");
  });
  connection.stream->start([this, id](std::string_view bytes, std::vector<process::UniqueFd>) { on_bytes(id, bytes); },
                           [this, id](const std::string&) {
                             if (connections_.erase(id) > 0) on_event_(core::agent_event::LinkClosed{id});
                           });
}

void WorkerServer::on_bytes(core::ConnectionId id, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto place = connections_.find(id);
    if (place == connections_.end()) return;
    Connection& connection = place->second;
    const std::size_t newline = bytes.find('\n');
    connection.partial.append(bytes.substr(0, newline));
    if (connection.partial.size() > link::kLineBytesMax) return drop(id, "line over 64 KiB");
    if (newline == std::string_view::npos) return;
    bytes.remove_prefix(newline + 1);
    const std::string line = std::exchange(connection.partial, {});
    on_line(id, connection, line);
  }
}

void WorkerServer::on_line(core::ConnectionId id, Connection& connection, std::string_view line) {
  auto message = link::decode_from_worker(line);
  if (!message) return drop(id, message.error().message);
  if (std::holds_alternative<link::Hello>(message.value())) {
    connection.greeted = true;
    connection.hello_timer.reset();
  }
  on_event_(core::agent_event::FromWorker{id, connection.peer_pid, std::move(message).value()});
}

void WorkerServer::send(core::ConnectionId id, const link::ToWorker& message, const std::vector<int>& descriptors) {
  const auto place = connections_.find(id);
  if (place != connections_.end()) place->second.stream->send(link::encode(message), descriptors);
}

void WorkerServer::drop(core::ConnectionId id, const std::string& reason) {
  const auto place = connections_.find(id);
  if (place == connections_.end()) return;
  on_dropped_(fmt::format("worker link of pid {} dropped: {}", place->second.peer_pid, reason));
  place->second.stream->close(reason);
}

void WorkerServer::stop() {
  boost::system::error_code ignored;
  listener_.close(ignored);
  for (auto& [id, connection] : connections_) connection.stream->close("the agent ends");
}

}  // namespace sgd::agent
