#pragma once
// A link between coordinator and agent over TCP. The agent's end dials and dials again; the coordinator's door takes
// connections and hands each on when its first message has said which node it is.

#include <functional>
#include <memory>
#include <set>
#include <string>

#include <boost/asio/io_context.hpp>

#include "launcher/net/agent_link.hpp"
#include "launcher/net/connection.hpp"
#include "launcher/net/dialer.hpp"
#include "launcher/net/listener.hpp"

namespace sgd::net {

/// `io` and `buffer` must outlive the link.
[[nodiscard]] std::unique_ptr<AgentLink> make_tcp_agent_link(boost::asio::io_context& io, ReadBuffer& buffer,
                                                             Address coordinator, core::Random random);

class AgentDoor {
 public:
  /// Connections that have not said who they are; more are closed at once.
  static constexpr std::size_t kStrangersMax = 1024;
  /// From the hello to the first message.
  static constexpr Duration kFirstMessage = std::chrono::seconds(5);

  struct Handlers {
    /// The link's first message, a NodeState of `node`, comes after its start().
    std::function<void(const NodeId& node, std::unique_ptr<CoordinatorLink> link)> on_agent;
    /// A connection was closed before it had said who it is.
    std::function<void(const std::string& peer, const std::string& reason)> on_refused;
  };

  /// `io` must outlive the door, and the door all links that it has made.
  AgentDoor(boost::asio::io_context& io, std::unique_ptr<Listener> listener);
  ~AgentDoor();

  void start(Handlers handlers);
  [[nodiscard]] int port() const { return listener_->port(); }

 private:
  struct Visit;
  class Link;
  void take(boost::asio::ip::tcp::socket socket);
  void on_message(const std::shared_ptr<Visit>& visit, cluster::FromAgent message);

  boost::asio::io_context& io_;
  ReadBuffer buffer_;
  std::unique_ptr<Listener> listener_;
  Handlers handlers_;
  std::set<std::shared_ptr<Visit>> strangers_;
};

}  // namespace sgd::net
