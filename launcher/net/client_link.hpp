#pragma once
// A client's end of a connection to the coordinator: dials, says what it is, and carries messages both ways; a broken
// connection is made again. What the messages mean: launcher/coordinator/client_service.hpp.

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>

#include "common/json/nlohmann.hpp"
#include "common/messages/frame.hpp"
#include "launcher/net/connection.hpp"
#include "launcher/net/dialer.hpp"

namespace sgd::net {

class ClientLink {
 public:
  struct Handlers {
    /// The coordinator has greeted, for the first time or again.
    std::function<void()> on_open;
    std::function<void(nlohmann::ordered_json message)> on_message;
    /// Bytes that belong to the message before.
    std::function<void(const std::string& bytes)> on_chunk;
    /// No connection, or no more. The next attempt follows.
    std::function<void(const std::string& reason)> on_lost;
    /// What it greets with, in front of on_open(): its version and its clock. May be empty.
    std::function<void(const nlohmann::ordered_json& welcome)> on_welcome = {};
  };

  /// `io` must outlive the link. `tls` null: plain text.
  ClientLink(boost::asio::io_context& io, Address coordinator, core::Random random,
             std::shared_ptr<const TlsContext> tls = nullptr);
  ~ClientLink();

  /// No handler is called inside start() or send().
  void start(Handlers handlers);
  /// Dropped while there is no connection.
  void send(const nlohmann::ordered_json& message);
  /// The same, and `bytes` that belong to it.
  void send(const nlohmann::ordered_json& message, std::string_view bytes);

 private:
  struct End;
  void talk(Socket socket);

  ReadBuffer buffer_;
  Security security_;
  std::shared_ptr<End> end_;
  Dialer dialer_;
};

}  // namespace sgd::net
