#pragma once
// The coordinator's front end: one listener for agents, file transfers and clients, with admission limits. A connection
// is a stranger's until its first message, a JSON object whose "type" says what kind of session it is; then the service
// of that kind takes it, if the peer's certificate is of the right role.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "common/json/nlohmann.hpp"
#include "common/messages/frame.hpp"
#include "launcher/net/attempt_limit.hpp"
#include "launcher/net/connection.hpp"
#include "launcher/net/fair_queue.hpp"
#include "launcher/net/listener.hpp"
#include "launcher/net/timer.hpp"
#include "launcher/net/work_meter.hpp"

namespace sgd::net {

/// One connection whose first message has been read. Goes with its owner.
class Session {
 public:
  struct Handlers {
    std::function<void(Frame frame)> on_frame;
    /// Once and last.
    std::function<void(const std::string& reason)> on_closed;
  };
  struct State;

  explicit Session(std::shared_ptr<State> state);
  /// The other side is told nothing more; no handler is called from here on.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Frames that have come since the first message follow, never inside start().
  void start(Handlers handlers);
  /// Dropped when the connection is gone. Error: more bytes than the other side takes; the connection goes on.
  Status send(FrameKind kind, std::string_view bytes);
  /// As Connection::send() of shared frames.
  void send(std::shared_ptr<const std::string> frames);
  /// on_closed follows with `reason`. `kind`: what the other side has done wrong.
  void close(std::string reason, RefusalKind kind = RefusalKind::kNone);
  /// As Connection::rest().
  void rest(Duration duration);
  /// As Connection::unsent().
  [[nodiscard]] std::size_t unsent() const;
  /// What it has asked for is work that is done elsewhere: it counts as if its message had taken so long.
  void charge(Duration work);
  /// As net::peer_name() says it.
  [[nodiscard]] const std::string& peer() const;
  /// Who it has proved to be; kNone without TLS, with its account over a Unix socket.
  [[nodiscard]] const PeerIdentity& peer_identity() const;
  /// Whether TLS carries the connection, and so somebody has proved something.
  [[nodiscard]] bool is_secure() const;

 private:
  std::shared_ptr<State> state_;
};

class Gateway {
 public:
  /// Connections that have not said who they are. When there are more, one from the address that has most makes room.
  static constexpr std::size_t kStrangersMax = 1024;
  /// Of them from one address, where TLS is spoken; others from there wait: whoever has only one cannot keep everybody
  /// else out. A session that has shown no certificate counts until it leaves.
  static constexpr std::size_t kStrangersOfOneMax = 256;
  /// Connections that wait until there is a place for them, unread and before any TLS: thousands of agents that come
  /// back at once are served one after the other, and need not come again. None when three quarters of the files that
  /// this process may have open are in use.
  static constexpr std::size_t kQueueMax = 16384;
  std::size_t queue_max = kQueueMax;
  /// Less than an agent's patience.
  static constexpr Duration kQueueTime = std::chrono::seconds(15);
  /// Of the files that this process may have open, one in so many is not for sessions: runs and the store need some.
  static constexpr std::size_t kFilesSpared = 8;
  /// From the hello to the first message.
  static constexpr Duration kFirstMessage = std::chrono::seconds(5);
  /// What one connection costs beside its messages: its handshake, its beginning and its end.
  static constexpr Duration kSessionWork = std::chrono::milliseconds(2);
  /// Of one address, where TLS is spoken: connections that have proved nothing, or come of a name that has had its
  /// share of the loop. Further ones wait in line, and are served one in kVainRest, since a handshake costs more than
  /// all that a connection is refused for. An address from which a member has come lately is not kept waiting for
  /// others there.
  static constexpr double kVainFree = 256;
  static constexpr Duration kVainRest = std::chrono::milliseconds(100);
  static constexpr Duration kMembersAddress = std::chrono::seconds(10);
  AttemptLimit vain{kVainFree, kVainRest};
  /// Of the event loop's time, for all connections of one name together, whose handlers take it. Without TLS nobody has
  /// a name that means anything, and whoever gets in is one's own account.
  WorkShare work_share;

  /// Since the start. What one message is sent in, or several are sent together in, counts once.
  struct FrameCounts {
    std::uint64_t received = 0;
    std::uint64_t sent = 0;
  };
  FrameCounts frames;

  /// `first` is the session's first message.
  using OnSession = std::function<void(std::unique_ptr<Session> session, nlohmann::json first)>;
  struct Handlers {
    std::map<std::string, OnSession> kinds;  ///< By the "type" of the first message.
    /// A connection was closed before it had said who it is. May be absent.
    std::function<void(const std::string& peer, const Refusal& refusal)> on_refused;
    /// A session's connection ends because of what it has sent, or not sent. May be absent.
    std::function<void(const std::string& peer, const Refusal& refusal)> on_broken = {};
    /// The identity's folder was changed and is damaged: what was read of it before stays in force, who was revoked
    /// among it. Once for each new trouble. May be absent.
    std::function<void(const std::string& message)> on_trouble = {};
  };

  /// `io` must outlive the gateway, and the gateway all sessions.
  Gateway(boost::asio::io_context& io, std::unique_ptr<Listener> listener);
  ~Gateway();

  void start(Handlers handlers);
  [[nodiscard]] int port() const { return listener_->port(); }

 private:
  static constexpr Duration kQueueLook = std::chrono::milliseconds(250);
  struct Arrival {
    Socket socket;
    std::string address;  ///< Empty where it does not count.
  };

  void take(Socket socket);
  [[nodiscard]] std::string refusal_of_account(Socket& socket) const;
  [[nodiscard]] bool may_enter(const std::string& address) const;
  void enter(Arrival arrival);
  void serve_queue();
  void watch_queue();
  void on_closed(const std::shared_ptr<Session::State>& state, const std::string& reason);
  void look_for_revoked();
  [[nodiscard]] bool make_room(const std::string& address);
  void on_first(const std::shared_ptr<Session::State>& state, const Frame& frame);
  void on_frame(const std::shared_ptr<Session::State>& state, Frame frame);
  void meter(Session::State& state);
  void count_vain(const Session::State& state);
  void note_member(const Session::State& state);

  boost::asio::io_context& io_;
  ReadBuffer buffer_;
  std::unique_ptr<Listener> listener_;
  Handlers handlers_;
  std::set<std::shared_ptr<Session::State>> strangers_;
  std::uint64_t sessions_made_ = 0;
  /// Taken by those who have shown no certificate, by address. Connections that end later than the gateway hold it,
  /// too.
  std::shared_ptr<std::map<std::string, std::size_t>> places_;
  FairQueue<Arrival> queue_;
  Timer queue_timer_;
  std::vector<std::weak_ptr<Connection>> admitted_;  ///< By certificate.
  /// By role and name of those who are here, and of those who have not made up for their work yet.
  std::map<std::string, std::shared_ptr<WorkMeter>> meters_;
  std::map<std::string, TimePoint> members_;  ///< When a member last came from, or left, an address.
  std::uint64_t looked_version_ = 0;          ///< Of the TLS context, when they were looked at.
  std::string trouble_;                       ///< Of the identity's folder, as it was told.
  Timer revoked_timer_;
};

}  // namespace sgd::net
