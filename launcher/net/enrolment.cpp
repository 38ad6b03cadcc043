#include "launcher/net/enrolment.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include "launcher/net/certificate.hpp"
#include "launcher/net/identity_files.hpp"
#include "launcher/net/timer.hpp"
#include "launcher/net/wall_clock.hpp"

namespace sgd::net {

/// Handlers of an attempt that is over find `done` empty.
struct Enrolment::Attempt : std::enable_shared_from_this<Attempt> {
  Attempt(boost::asio::io_context& loop, const Address& coordinator)
      : io(loop), dialer(loop, coordinator, core::Random({1, 2, 3, 4})), limit(loop) {}

  void talk(Socket socket) {
    connection = std::make_shared<Connection>(std::move(socket), buffer, Security{tls, TlsSide::kDials});
    Connection::Handlers handlers;
    handlers.on_open = [self = shared_from_this()](int) {
      // Only now: the handshake has shown that this is the cluster the token is of.
      (void)self->connection->send(FrameKind::kJson, join::encode(self->message));
    };
    handlers.on_frame = [self = shared_from_this()](const Frame& frame) { self->finish(self->take(frame)); };
    handlers.on_closed = [self = shared_from_this()](const std::string& reason) { self->finish(Error{reason}); };
    connection->start(std::move(handlers));
  }

  Result<PeerIdentity> take(const Frame& frame) {
    const Result<join::Response> answer = join::decode_response(frame.bytes);
    if (!answer) return Error{"the coordinator's answer: " + answer.error().message};
    if (const auto* refused = std::get_if<join::Refused>(&answer.value())) return Error{refused->reason};
    const auto& joined = std::get<join::Joined>(answer.value());
    files.certificate = joined.certificate;
    files.ca = joined.ca;
    Result<PeerIdentity> identity = identity_in(files.certificate);
    if (!identity) return identity.error();
    if (identity.value().role != role) return Error{"the certificate is of another role than was asked for"};
    if (has_token) {
      const Result<Digest> ca_key = public_key_digest_in(files.ca);
      if (!ca_key || ca_key.value() != pinned_ca_key) return Error{"the answer names another authority than the token"};
    }
    if (const Status saved = save_identity(folder, files); !saved) return saved.error();
    return identity;
  }

  void finish(Result<PeerIdentity> result) {
    if (!done) return;
    limit.cancel();
    boost::asio::post(io, [result = std::move(result), call = std::exchange(done, nullptr)] { call(result); });
    if (connection) connection->abandon("the answer has come");
  }

  /// The connection's handlers hold this attempt: without letting go of it here, an event loop that ends before the
  /// connection has would leave both.
  void give_up() {
    done = nullptr;
    limit.cancel();
    if (connection) connection->abandon("given up");
    connection.reset();
  }

  boost::asio::io_context& io;
  Dialer dialer;
  Timer limit;
  ReadBuffer buffer;
  std::shared_ptr<const TlsContext> tls;
  std::shared_ptr<Connection> connection;
  join::Request message;
  IdentityFiles files;  ///< The key, and then what comes for it.
  std::string folder;
  Role role = Role::kNone;
  bool has_token = false;
  Digest pinned_ca_key{};
  Done done;
};

Enrolment::Enrolment(boost::asio::io_context& io, Address coordinator, std::string identity_folder)
    : io_(io), coordinator_(std::move(coordinator)), folder_(std::move(identity_folder)) {}

Enrolment::~Enrolment() {
  if (attempt_) attempt_->give_up();
}

void Enrolment::join(const JoinToken& token, std::string name, std::string default_name, Done done) {
  if (attempt_) attempt_->give_up();
  attempt_ = std::make_shared<Attempt>(io_, coordinator_);
  attempt_->role = token.role;
  attempt_->has_token = true;
  attempt_->pinned_ca_key = token.ca_key;
  begin(TlsContext::for_joining(token.ca_key), join::Join{to_text(token), {}, std::move(name), std::move(default_name)},
        std::move(done));
}

void Enrolment::renew(std::shared_ptr<const TlsContext> tls, Done done) {
  if (attempt_) attempt_->give_up();
  attempt_ = std::make_shared<Attempt>(io_, coordinator_);
  attempt_->role = tls->own().role;
  begin(std::move(tls), join::Renew{}, std::move(done));
}

void Enrolment::begin(std::shared_ptr<const TlsContext> tls, join::Request message, Done done) {
  const std::shared_ptr<Attempt>& attempt = attempt_;
  attempt->tls = std::move(tls);
  attempt->folder = folder_;
  attempt->files.key = make_key();
  attempt->done = std::move(done);
  const Result<std::string> request = make_request(attempt->files.key);
  if (!request) return attempt->finish(request.error());
  std::visit([&](auto& one) { one.csr = request.value(); }, message);
  attempt->message = std::move(message);
  attempt->limit.after(
      kLimit, [attempt] { attempt->finish(Error{fmt::format("no answer within {}", format_duration(kLimit))}); });
  const std::weak_ptr<Attempt> weak = attempt;
  attempt->dialer.start({[weak](Socket socket) {
                           if (const auto here = weak.lock()) here->talk(std::move(socket));
                         },
                         [weak](const std::string& reason) {
                           if (const auto here = weak.lock()) here->finish(Error{reason});
                         }});
}

// ---- renewal ----

Renewer::Renewer(boost::asio::io_context& io, Address coordinator, std::string identity_folder,
                 std::shared_ptr<const TlsContext> tls, Pace pace)
    : io_(io),
      coordinator_(std::move(coordinator)),
      folder_(std::move(identity_folder)),
      tls_(std::move(tls)),
      pace_(pace),
      timer_(io) {}

Renewer::~Renewer() = default;

void Renewer::start(Handlers handlers) {
  handlers_ = std::move(handlers);
  look_after(Duration::zero());
}

void Renewer::look_after(Duration wait) {
  timer_.after(wait, [this] { look(); });
}

void Renewer::look() {
  (void)tls_->refresh();  // Ignoring: if the files are damaged a renewal mends them.
  const std::int64_t left_s = renew_at_s(tls_->own()) - unix_now_s();
  if (left_s > 0) return look_after(std::min<Duration>(pace_.look, std::chrono::seconds(left_s)));
  enrolment_ = std::make_unique<Enrolment>(io_, coordinator_, folder_);
  enrolment_->renew(tls_, [this](const Result<PeerIdentity>& renewed) {
    enrolment_.reset();
    look_after(renewed.ok() ? pace_.look : pace_.retry);
    if (renewed.ok() && handlers_.on_renewed) handlers_.on_renewed(renewed.value());
    if (!renewed.ok() && handlers_.on_failure) handlers_.on_failure(renewed.error().message);
  });
}

}  // namespace sgd::net
