// WorkerServer after a replay: ranks whose agent has died come back to their links.

#include "launcher/agent/worker_server.hpp"

#include <algorithm>

#include <boost/asio/post.hpp>

#include "launcher/process/pidfd.hpp"

namespace sgd::agent {

void WorkerServer::replay(const core::agent_event::FromWorker& said) {
  next_ = std::max(next_, said.connection + 1);
  if (const auto* hello = std::get_if<link::Hello>(&said.message)) {
    Connection& connection = connections_[said.connection];
    connection.greeted = true;
    connection.returns = hello->returns;
    connection.token = hello->token;
    connection.run = said.run;
    connection.peer_pid = said.peer_pid;
  } else if (const auto place = connections_.find(said.connection); place != connections_.end()) {
    place->second.received += link::is_counted(said.message) ? 1 : 0;
  }
}

std::optional<KeptLink> WorkerServer::kept(core::ConnectionId id) const {
  const auto place = connections_.find(id);
  if (place == connections_.end() || !place->second.greeted) return std::nullopt;
  const Connection& from = place->second;
  return KeptLink{from.run,       from.token,    from.peer_pid,    from.returns,
                  from.is_paused, from.received, from.sent.sent(), from.sent.kept()};
}

void WorkerServer::restore(const std::map<core::ConnectionId, KeptLink>& links, core::ConnectionId next) {
  next_ = next;
  for (const auto& [id, kept] : links) {
    Connection& connection = connections_[id];
    connection.greeted = true;
    connection.returns = kept.returns;
    connection.token = kept.token;
    connection.run = kept.run;
    connection.peer_pid = kept.peer_pid;
    connection.is_paused = kept.is_paused;
    connection.received = kept.received;
    connection.sent.restore(kept.sent, kept.kept);
  }
}

void WorkerServer::await_return(Duration wait) {
  for (auto& [id, connection] : connections_) {
    auto process = connection.returns ? process::pidfd_open(connection.peer_pid) : Result<process::UniqueFd>(Error{});
    if (!process) {
      close_soon(id);
      continue;
    }
    // Should the number be another process's by now, the link ends with the wait instead.
    connection.process = std::make_unique<boost::asio::posix::stream_descriptor>(io_, process.value().release());
    watch_process(id, connection);
  }
  wait_timer_.after(wait, [this] {
    for (const auto& [id, connection] : connections_)
      if (!connection.stream) close_soon(id);
  });
}

void WorkerServer::watch_process(core::ConnectionId id, Connection& connection) {
  connection.process->async_wait(boost::asio::posix::stream_descriptor::wait_read,
                                 [this, id](const boost::system::error_code& error) {
                                   if (!error) close_soon(id);
                                 });
}

void WorkerServer::close_soon(core::ConnectionId id) {
  boost::asio::post(io_, [this, id] {
    const auto place = connections_.find(id);
    if (place == connections_.end() || place->second.stream) return;
    connections_.erase(place);
    handlers_.on_event(core::agent_event::LinkClosed{id});
  });
}

/// The link that waits for this process and its token gets the stranger's stream, and what it lacks. False: no link
/// waits for it.
bool WorkerServer::take_back(core::ConnectionId stranger, const link::Hello& hello) {
  const Connection& own = connections_.at(stranger);
  const auto waiting = std::find_if(connections_.begin(), connections_.end(), [&](const auto& one) {
    return !one.second.stream && one.second.returns && one.second.token == hello.token && one.second.run == own.run &&
           one.second.peer_pid == own.peer_pid;
  });
  if (waiting == connections_.end()) return false;
  auto node = connections_.extract(stranger);
  Connection& link = waiting->second;
  link.stream = std::move(node.mapped().stream);
  link.number = std::move(node.mapped().number);
  link.process.reset();
  if (link.is_paused) link.stream->pause();
  *link.number = waiting->first;
  if (const Status known = link.sent.acknowledge(hello.received); !known) {
    drop(waiting->first, known.error().message);
    return true;
  }
  link.told_received = link.received;
  link.stream->send(link::encode(link::ToWorker(link::Received{link.received})));
  bool is_assignment = hello.received == 0;  // The first that every link is sent.
  for (const std::string& line : link.sent.kept())
    link.stream->send(line, std::exchange(is_assignment, false) ? handlers_.descriptors_of(link.run)
                                                                : std::vector<process::SharedFd>());
  return true;
}

}  // namespace sgd::agent
