#pragma once
// A node's connection for files: dials the coordinator, dials again, and cuts what comes into messages with
// their bytes. A connection of its own, so that megabytes never hold up a heartbeat.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>

#include "common/messages/transfer.hpp"
#include "launcher/net/connection.hpp"
#include "launcher/net/dialer.hpp"

namespace sgd::agent {

class FileLink {
 public:
  struct Handlers {
    /// The coordinator can be reached, for the first time or again: it remembers nothing of what was asked
    /// before.
    std::function<void()> on_open;
    /// `bytes` are those that a Data announces.
    std::function<void(transfer::ToNode message, std::string bytes)> on_message;
    std::function<void(const std::string& reason)> on_lost;
  };

  /// `io` must outlive it. `tls` null: plain text.
  FileLink(boost::asio::io_context& io, net::Address coordinator, transfer::Files own, core::Random random,
           std::shared_ptr<const net::TlsContext> tls = nullptr);
  ~FileLink();

  void start(Handlers handlers);
  [[nodiscard]] bool is_open() const;
  /// Dropped while there is no connection.
  void send(const transfer::FromNode& message, std::string_view bytes = {});
  /// Its connection ends, and the next one is made in so long.
  void rest(Duration time);
  /// No handler is called from here on.
  void stop();

 private:
  struct End;
  void talk(net::Socket socket);

  net::ReadBuffer buffer_;
  transfer::Files own_;
  net::Security security_;
  std::shared_ptr<End> end_;
  std::optional<net::Dialer> dialer_;
};

}  // namespace sgd::agent
