#include "launcher/net/embedded_link.hpp"

#include <boost/asio/post.hpp>

namespace sgd::net {
namespace {

template <class Message>
struct Inbox {
  std::function<void(Message)> handler;
};

/// One direction's sender and the other's receiver.
template <class Base, class Outgoing, class Incoming>
class End : public Base {
 public:
  End(boost::asio::io_context& io, std::shared_ptr<Inbox<Outgoing>> peer, std::shared_ptr<Inbox<Incoming>> own)
      : io_(io), peer_(std::move(peer)), own_(std::move(own)) {}
  ~End() override { own_->handler = nullptr; }  // What is still on its way to us is dropped.

  void send(Outgoing message) override {
    auto deliver = [peer = peer_, message = std::move(message)]() mutable {
      if (peer->handler) peer->handler(std::move(message));
    };
    boost::asio::post(io_, std::move(deliver));
  }
  void on_message(std::function<void(Incoming)> handler) override { own_->handler = std::move(handler); }

 private:
  boost::asio::io_context& io_;
  std::shared_ptr<Inbox<Outgoing>> peer_;
  std::shared_ptr<Inbox<Incoming>> own_;
};

}  // namespace

EmbeddedLink make_embedded_link(boost::asio::io_context& io) {
  auto to_agent = std::make_shared<Inbox<cluster::ToAgent>>();
  auto from_agent = std::make_shared<Inbox<cluster::FromAgent>>();
  EmbeddedLink link;
  link.agent = std::make_unique<End<AgentLink, cluster::FromAgent, cluster::ToAgent>>(io, from_agent, to_agent);
  link.coordinator =
      std::make_unique<End<CoordinatorLink, cluster::ToAgent, cluster::FromAgent>>(io, to_agent, from_agent);
  return link;
}

}  // namespace sgd::net
