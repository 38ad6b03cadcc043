#pragma once
// How this side gets a certificate: it makes a key, sends a signing request over one connection, and writes
// what comes back to an identity folder. With a join token the first time, with the certificate that still
// holds from then on.

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "common/messages/join.hpp"
#include "launcher/net/connection.hpp"
#include "launcher/net/dialer.hpp"
#include "launcher/net/join_token.hpp"
#include "launcher/net/timer.hpp"

namespace sgd::net {

/// One attempt; it ends when it goes.
class Enrolment {
 public:
  static constexpr Duration kLimit = std::chrono::seconds(20);  ///< From the first dial to the answer.
  using Done = std::function<void(Result<PeerIdentity> identity)>;

  /// `io` must outlive it. The folder is written to when the coordinator has agreed.
  Enrolment(boost::asio::io_context& io, Address coordinator, std::string identity_folder);
  ~Enrolment();

  /// `done` is called once, never inside. `name` empty: the token's, else `default_name`.
  void join(const JoinToken& token, std::string name, std::string default_name, Done done);
  /// `tls` is the context of the folder's identity.
  void renew(std::shared_ptr<const TlsContext> tls, Done done);

 private:
  struct Attempt;
  void begin(std::shared_ptr<const TlsContext> tls, join::Request message, Done done);

  boost::asio::io_context& io_;
  Address coordinator_;
  std::string folder_;
  std::shared_ptr<Attempt> attempt_;
};

/// Keeps the certificate of an identity folder new: looks now and then, and asks when two thirds of its time
/// are over. A context takes the new one up by itself; connections that stand go on until the old one
/// expires.
class Renewer {
 public:
  struct Pace {
    Duration look = std::chrono::minutes(10);  ///< At most so long between two looks: clocks jump, machines sleep.
    Duration retry = std::chrono::minutes(1);  ///< After an attempt that failed.
  };
  struct Handlers {
    std::function<void(const PeerIdentity& identity)> on_renewed;
    std::function<void(const std::string& reason)> on_failure;  ///< The next attempt follows.
  };

  /// `io` must outlive it.
  Renewer(boost::asio::io_context& io, Address coordinator, std::string identity_folder,
          std::shared_ptr<const TlsContext> tls, Pace pace);
  ~Renewer();
  void start(Handlers handlers);

 private:
  void look_after(Duration wait);
  void look();

  boost::asio::io_context& io_;
  Address coordinator_;
  std::string folder_;
  std::shared_ptr<const TlsContext> tls_;
  Pace pace_;
  Handlers handlers_;
  Timer timer_;
  std::unique_ptr<Enrolment> enrolment_;
};

}  // namespace sgd::net
