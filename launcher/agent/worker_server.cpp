#include "launcher/agent/worker_server.hpp"

#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include "launcher/process/foreign_fds.hpp"
#include "launcher/process/unix_socket.hpp"

namespace sgd::agent {

WorkerServer::WorkerServer(boost::asio::io_context& io, Handlers handlers)
    : io_(io), handlers_(std::move(handlers)), wait_timer_(io) {}

Status WorkerServer::listen(const RunId& run, const std::string& path,
                            const std::optional<process::SocketOwner>& owner) {
  (void)::unlink(path.c_str());  // Ignoring: mostly there is none.
  auto listener = process::listen_unix(path, owner);
  if (!listener) return listener.error();
  const uid_t user = owner ? owner->uid : ::getuid();
  process::AcceptLoop::Handlers handlers;
  handlers.on_socket = [this, run, user](process::UniqueFd socket) { add(run, user, std::move(socket)); };
  handlers.on_trouble = [this, run](const std::string& reason) {
    handlers_.on_dropped(fmt::format("run {}: links of its ranks: {}", run, reason));
  };
  listeners_[run] = {path, std::make_unique<process::AcceptLoop>(io_, std::move(listener).value(), std::move(handlers)),
                     net::WorkMeter(work_share)};
  return {};
}

void WorkerServer::forget(const RunId& run) {
  const auto listener = listeners_.extract(run);
  if (!listener.empty()) (void)::unlink(listener.mapped().path.c_str());  // Ignoring: its folder goes, too.
}

void WorkerServer::add(const RunId& run, uid_t user, process::UniqueFd socket) {
  const auto peer = process::peer_credentials(socket.get());
  if (!peer || (peer.value().uid != user && peer.value().uid != 0)) {
    process::discard(std::move(socket));
    return handlers_.on_dropped("worker link from another user refused");
  }
  const auto strangers = std::count_if(connections_.begin(), connections_.end(), [&](const auto& connection) {
    return !connection.second.greeted && connection.second.run == run;
  });
  if (static_cast<std::size_t>(strangers) >= kStrangersMax) {
    process::discard(std::move(socket));
    return handlers_.on_dropped(fmt::format("worker link refused: {} links have not said hello", strangers));
  }
  const core::ConnectionId id = next_++;
  Connection& connection = connections_[id];
  connection.number = std::make_shared<core::ConnectionId>(id);
  connection.peer_pid = peer.value().pid;
  connection.run = run;
  connection.stream = std::make_shared<LocalStream>(io_, std::move(socket));
  connection.hello_timer = std::make_unique<net::Timer>(io_);
  connection.hello_timer->after(hello_deadline, [this, id] { drop(id, "no hello in time"); });
  connection.stream->start(
      [this, number = connection.number](std::string_view bytes, std::vector<process::UniqueFd> descriptors) {
        if (descriptors.empty()) return on_bytes(number, bytes);
        process::close_aside(std::move(descriptors));
        drop(*number, "it sent descriptors, and none are taken");
      },
      [this, number = connection.number](const std::string&) {
        if (connections_.erase(*number) > 0) handlers_.on_event(core::agent_event::LinkClosed{*number});
      });
  if (const Duration wait = charge(run, kLinkWork); wait > Duration::zero()) rest(connections_.at(id), wait);
}

void WorkerServer::on_bytes(const std::shared_ptr<core::ConnectionId>& number, std::string_view bytes) {
  const TimePoint begin = std::chrono::steady_clock::now();
  const bool has_time = take_lines(number, bytes, begin + kTurn);
  const auto place = connections_.find(*number);
  if (place == connections_.end()) return;
  Connection& connection = place->second;
  acknowledge(connection);
  const Duration wait = charge(connection.run, std::chrono::steady_clock::now() - begin);
  if (!has_time || wait > Duration::zero()) rest(connection, wait);
}

/// Who has its links made and its lines read faster than its share waits, and holds up itself alone.
Duration WorkerServer::charge(const RunId& run, Duration work) {
  const auto listener = listeners_.find(run);
  if (listener == listeners_.end()) return Duration::zero();
  const TimePoint now = std::chrono::steady_clock::now();
  listener->second.meter.charge(now, work);
  const Duration wait = listener->second.meter.wait(now);
  if (wait == Duration::zero()) return wait;
  const auto ranks = std::count_if(connections_.begin(), connections_.end(),
                                   [&](const auto& one) { return one.second.greeted && one.second.run == run; });
  return std::min(kRestMax, wait / std::max<std::ptrdiff_t>(ranks, 1));
}

/// What a rank has said last is waited for a short time only: once it has ended, all of it is taken.
void WorkerServer::rest(Connection& connection, Duration duration) {
  if (!connection.stream || connection.rest) return;
  connection.stream->pause();
  if (connection.stream->has_peer_left()) duration = Duration::zero();
  connection.rest = std::make_unique<net::Timer>(io_);
  connection.rest->after(duration, [this, number = connection.number] {
    connections_.at(*number).rest.reset();
    go_on(number);
  });
}

/// What has come already is taken first. Then it is read once, also where its run has not made up for its share yet: at
/// the least it has its turn between two rests, and is heard, whatever one line has cost.
void WorkerServer::go_on(const std::shared_ptr<core::ConnectionId>& number) {
  const auto is_held = [this, &number] {
    const auto place = connections_.find(*number);
    return place == connections_.end() || !place->second.stream || place->second.is_paused || place->second.rest;
  };
  if (is_held()) return;
  const auto stream = connections_.at(*number).stream;
  const std::string untaken = std::exchange(connections_.at(*number).untaken, {});
  if (!untaken.empty()) on_bytes(number, untaken);
  if (!is_held() && connections_.at(*number).stream == stream) stream->resume();
}

/// False when time is up: the rest is taken later.
bool WorkerServer::take_lines(const std::shared_ptr<core::ConnectionId>& number, std::string_view bytes,
                              TimePoint until) {
  while (!bytes.empty()) {
    const auto place = connections_.find(*number);
    if (place == connections_.end() || place->second.is_dropped) return true;
    Connection& connection = place->second;
    const bool has_time = std::chrono::steady_clock::now() < until;
    if (connection.is_paused || !has_time) {
      connection.untaken.append(bytes);
      return has_time;
    }
    const std::size_t newline = bytes.find('\n');
    connection.partial.append(bytes.substr(0, newline));
    if (connection.partial.size() > link::kLineBytesMax) {
      drop(*number, "line over 64 KiB");
      return true;
    }
    if (newline == std::string_view::npos) return true;
    bytes.remove_prefix(newline + 1);
    const std::string line = std::exchange(connection.partial, {});
    on_line(*number, connection, line);
  }
  return true;
}

void WorkerServer::on_line(core::ConnectionId id, Connection& connection, std::string_view line) {
  auto message = link::decode_from_worker(line);
  if (!message) return drop(id, message.error().message);
  if (const auto* hello = std::get_if<link::Hello>(&message.value())) {
    if (handlers_.has_process && !handlers_.has_process(connection.run, connection.peer_pid))
      return drop(id, "it is no process of its run");
    connection.greeted = true;
    connection.hello_timer.reset();
    if (hello->returns && take_back(id, *hello)) return;
    connection.returns = hello->returns;
    connection.token = hello->token;
    if (hello->returns) connection.stream->send(link::encode(link::ToWorker(link::Received{})));
  } else if (const auto* received = std::get_if<link::Received>(&message.value())) {
    const Status known = connection.sent.acknowledge(received->count);
    if (!known) drop(id, known.error().message);
    return;
  } else if (link::is_counted(message.value())) {
    ++connection.received;
  }
  RunId run = std::holds_alternative<link::Hello>(message.value()) ? connection.run : RunId();
  handlers_.on_event(
      core::agent_event::FromWorker{id, connection.peer_pid, std::move(message).value(), std::move(run)});
}

void WorkerServer::acknowledge(Connection& connection) {
  if (!connection.returns || !connection.stream || connection.told_received == connection.received) return;
  connection.told_received = connection.received;
  connection.stream->send(link::encode(link::ToWorker(link::Received{connection.received})));
}

void WorkerServer::send(core::ConnectionId id, const link::ToWorker& message,
                        std::vector<process::SharedFd> descriptors) {
  const auto place = connections_.find(id);
  if (place == connections_.end()) return;
  Connection& connection = place->second;
  std::string line = link::encode(message);
  if (connection.returns && link::is_counted(message)) connection.sent.push(line);
  if (connection.stream) connection.stream->send(std::move(line), std::move(descriptors));
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
  boost::asio::post(io_, [this, number = place->second.number] { go_on(number); });
}

void WorkerServer::drop(core::ConnectionId id, const std::string& reason) {
  const auto place = connections_.find(id);
  if (place == connections_.end()) return;
  Connection& connection = place->second;
  if (!connection.stream) {  // In a replay: it was dropped, and had no time to go.
    connection.returns = false;
    return;
  }
  if (connection.is_dropped) return;
  handlers_.on_dropped(fmt::format("worker link of pid {} dropped: {}", connection.peer_pid, reason));
  if (connection.returns) connection.stream->send(link::encode(link::ToWorker(link::Dropped{reason})));
  connection.returns = false;
  connection.is_dropped = true;
  connection.stream->close(reason);
}

void WorkerServer::stop() {
  while (!listeners_.empty()) forget(RunId(listeners_.begin()->first));
  wait_timer_.cancel();
  for (auto& [id, connection] : connections_) {
    connection.process.reset();
    if (!connection.stream) continue;
    if (connection.returns) connection.stream->send(link::encode(link::ToWorker(link::Dropped{"the agent ends"})));
    connection.stream->close("the agent ends");
  }
}

}  // namespace sgd::agent
