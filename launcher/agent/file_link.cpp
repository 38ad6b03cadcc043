#include "launcher/agent/file_link.hpp"

#include <utility>

namespace sgd::agent {

/// Connections hold this, not the link, so that one may go in a handler of the other.
struct FileLink::End {
  Handlers handlers;
  std::weak_ptr<net::Connection> connection;
  std::optional<transfer::Data> announced;  ///< Its bytes are the next frame.
  net::Dialer* dialer = nullptr;            ///< Null: the link is gone.
  std::optional<Duration> rest;             ///< Before the next connection.

  void on_frame(Frame frame) {
    if (announced) {
      transfer::Data data = *std::exchange(announced, std::nullopt);
      if (frame.kind != FrameKind::kChunk || static_cast<std::int64_t>(frame.bytes.size()) != data.bytes)
        return close("the bytes that were announced do not follow");
      return handlers.on_message(std::move(data), std::move(frame.bytes));
    }
    if (frame.kind == FrameKind::kChunk) return close("bytes that were not announced");
    auto message = transfer::decode_to_node(frame.bytes);
    if (!message) return close("a message of the coordinator: " + message.error().message);
    if (auto* data = std::get_if<transfer::Data>(&message.value()); data != nullptr && data->bytes != 0) {
      announced = std::move(*data);
      return;
    }
    handlers.on_message(std::move(message).value(), {});
  }
  void close(const std::string& reason) const {
    if (const auto open = connection.lock()) open->close(reason);
  }
};

FileLink::FileLink(boost::asio::io_context& io, net::Address coordinator, transfer::Files own, core::Random random,
                   std::shared_ptr<const net::TlsContext> tls)
    : own_(std::move(own)),
      security_(net::dialling(coordinator, std::move(tls))),
      end_(std::make_shared<End>()),
      dialer_(std::in_place, io, std::move(coordinator), random) {}

FileLink::~FileLink() {
  stop();
}

void FileLink::stop() {
  end_->dialer = nullptr;
  if (const auto connection = end_->connection.lock()) connection->abandon("the agent ends");
  dialer_.reset();
}

void FileLink::start(Handlers handlers) {
  end_->handlers = std::move(handlers);
  end_->dialer = &*dialer_;
  dialer_->start({[this](net::Socket socket) { talk(std::move(socket)); }, nullptr});
}

void FileLink::talk(net::Socket socket) {
  const auto connection = std::make_shared<net::Connection>(std::move(socket), buffer_, security_);
  end_->connection = connection;
  end_->announced.reset();
  const auto was_open = std::make_shared<bool>(false);
  net::Connection::Handlers handlers;
  handlers.on_open = [end = end_, was_open, own = own_](int) {
    *was_open = true;
    const auto open = end->connection.lock();
    if (!open || end->dialer == nullptr) return;
    (void)open->send(FrameKind::kJson, transfer::encode(own));  // Ignoring: it is short.
    end->handlers.on_open();
  };
  handlers.on_frame = [end = end_](Frame frame) {
    if (end->dialer != nullptr) end->on_frame(std::move(frame));
  };
  handlers.on_closed = [end = end_, was_open](const std::string& reason) {
    if (end->dialer == nullptr) return;
    if (const auto rest = std::exchange(end->rest, std::nullopt))
      end->dialer->rest(*rest);
    else
      end->dialer->again(*was_open);
    if (*was_open) end->handlers.on_lost(reason);
  };
  connection->start(std::move(handlers));
}

void FileLink::rest(Duration time) {
  const auto connection = end_->connection.lock();
  if (!connection) return dialer_->rest(time);
  end_->rest = time;
  connection->close("it rests for " + format_duration(time));
}

bool FileLink::is_open() const {
  const auto connection = end_->connection.lock();
  return connection && connection->is_open();
}

void FileLink::send(const transfer::FromNode& message, std::string_view bytes) {
  const auto connection = end_->connection.lock();
  if (!connection || !connection->is_open()) return;
  Status sent = connection->send(FrameKind::kJson, transfer::encode(message));
  if (sent && !bytes.empty()) sent = connection->send(FrameKind::kChunk, bytes);
  if (!sent) connection->close(sent.error().message);
}

}  // namespace sgd::agent
