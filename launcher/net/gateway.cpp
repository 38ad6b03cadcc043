#include "launcher/net/gateway.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <ctime>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include "common/base/assert.hpp"
#include "common/messages/codec.hpp"
#include "launcher/net/admission.hpp"
#include "launcher/net/attempt_limit.hpp"
#include "launcher/net/local_peer.hpp"

namespace sgd::net {

namespace asio = boost::asio;

/// A node of sixty ranks that report ten times a second takes less; a few that do nothing else must leave the machine
/// to those who work.
constexpr WorkShare kMemberShare{std::chrono::seconds(1), 0.05};

/// One of those that an address has; free again when this goes.
class AddressSlot {
 public:
  using Taken = std::map<std::string, std::size_t>;
  AddressSlot(std::shared_ptr<Taken> taken, std::string address)
      : taken_(std::move(taken)), address_(std::move(address)) {
    ++(*taken_)[address_];
  }
  ~AddressSlot() {
    const auto one = taken_->find(address_);
    if (--one->second == 0) taken_->erase(one);
  }
  AddressSlot(const AddressSlot&) = delete;
  AddressSlot& operator=(const AddressSlot&) = delete;
  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  std::shared_ptr<Taken> taken_;
  std::string address_;
};

namespace {

/// Of this thread. Of a machine that is busy with other things a peer is not to blame: it would be read too seldom, and
/// its own system would give the connection up.
Duration processor_time() {
  timespec used{};
  SGD_ASSERT(::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used) == 0);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

std::size_t files_allowed() {
  rlimit files{};
  return ::getrlimit(RLIMIT_NOFILE, &files) == 0 ? files.rlim_cur : 0;
}

}  // namespace

/// One connection: a stranger's until its first message, then a session.
struct Session::State {
  State(asio::io_context& loop, Gateway& entered) : io(loop), gateway(entered), deadline(loop) {}

  void close(std::string reason, RefusalKind kind) const {
    if (const auto open = connection.lock()) open->close(std::move(reason), kind);
  }
  void on_frame(Frame frame) {
    if (!is_dropped) handlers.on_frame(std::move(frame));
  }
  void on_closed(const std::string& reason) {
    if (is_dropped) return;
    if (is_started) return handlers.on_closed(reason);
    closed_for = reason;
  }
  /// Who comes anew waits as it would have waited over its connection before.
  void begin() {
    const Duration wait = meter ? meter->wait(std::chrono::steady_clock::now()) : Duration::zero();
    const auto go_on = [open = connection] {
      if (const auto still = open.lock()) still->go_on();
    };
    if (wait == Duration::zero()) return go_on();
    deadline.expires_after(wait);
    deadline.async_wait([go_on](const boost::system::error_code&) { go_on(); });
  }
  void charge(Duration work) const {
    if (!meter) return;
    const TimePoint now = std::chrono::steady_clock::now();
    meter->charge(now, work);
    const Duration wait = meter->wait(now);
    if (wait > Duration::zero() && is_started)
      if (const auto open = connection.lock()) open->rest(wait);
  }

  /// A member that has not had more than its share of the loop.
  [[nodiscard]] bool is_within_share() const {
    return meter && meter->wait(std::chrono::steady_clock::now()) == Duration::zero();
  }

  asio::io_context& io;
  Gateway& gateway;          ///< Of no use when the session is gone.
  std::uint64_t number = 0;  ///< In the order in which they came.
  bool is_stranger = true;
  bool is_counted = false;             ///< Over TLS: its address means something.
  std::unique_ptr<AddressSlot> place;  ///< Until it has shown a certificate.
  std::weak_ptr<Connection> connection;
  std::string peer;
  PeerIdentity identity;  ///< From the first message on.
  bool is_secure = false;
  std::shared_ptr<WorkMeter> meter;  ///< With a certificate, from the first message on.
  asio::steady_timer deadline;       ///< For the first message; then for the rest with which a session begins.
  Handlers handlers;
  std::string closed_for;  ///< Closed before the session is started.
  bool is_started = false;
  bool is_dropped = false;  ///< The session is gone.
};

// ---- a session ----

Session::Session(std::shared_ptr<State> state) : state_(std::move(state)) {}

Session::~Session() {
  state_->is_dropped = true;
  if (const auto open = state_->connection.lock()) open->abandon("this side lets it go");
}

void Session::start(Handlers handlers) {
  state_->handlers = std::move(handlers);
  asio::post(state_->io, [state = state_] {
    state->is_started = true;
    if (state->is_dropped) return;
    state->begin();
    if (!state->closed_for.empty()) state->handlers.on_closed(state->closed_for);
  });
}

Status Session::send(FrameKind kind, std::string_view bytes) {
  const auto open = state_->connection.lock();
  if (!open || !open->is_open()) return {};
  ++state_->gateway.frames.sent;
  return open->send(kind, bytes);
}

void Session::send(std::shared_ptr<const std::string> frames) {
  const auto open = state_->connection.lock();
  if (!open || !open->is_open()) return;
  ++state_->gateway.frames.sent;
  open->send(std::move(frames));
}

void Session::close(std::string reason, RefusalKind kind) {
  state_->close(std::move(reason), kind);
}

void Session::rest(Duration duration) {
  if (const auto open = state_->connection.lock()) open->rest(duration);
}

std::size_t Session::unsent() const {
  const auto open = state_->connection.lock();
  return open && open->is_open() ? open->unsent() : 0;
}

void Session::charge(Duration work) {
  state_->charge(work);
}

const std::string& Session::peer() const {
  return state_->peer;
}

const PeerIdentity& Session::peer_identity() const {
  return state_->identity;
}

bool Session::is_secure() const {
  return state_->is_secure;
}

// ---- the gateway ----

Gateway::Gateway(asio::io_context& io, std::unique_ptr<Listener> listener)
    : io_(io),
      listener_(std::move(listener)),
      places_(std::make_shared<AddressSlot::Taken>()),
      queue_timer_(io),
      revoked_timer_(io) {
  work_share = kMemberShare;
}

Gateway::~Gateway() {
  for (const std::shared_ptr<Session::State>& state : strangers_) {
    state->deadline.cancel();
    if (const auto open = state->connection.lock()) open->abandon("this side ends");
  }
}

void Gateway::start(Handlers handlers) {
  handlers_ = std::move(handlers);
  if (!handlers_.on_refused) handlers_.on_refused = [](const std::string&, const Refusal&) {};
  if (!handlers_.on_broken) handlers_.on_broken = [](const std::string&, const Refusal&) {};
  if (!handlers_.on_trouble) handlers_.on_trouble = [](const std::string&) {};
  listener_->start([this](Socket socket) { take(std::move(socket)); });
  if (listener_->security().tls) look_for_revoked();
}

void Gateway::take(Socket socket) {
  std::string peer = peer_name(socket);
  if (const std::string refusal = refusal_of_account(socket); !refusal.empty())
    return handlers_.on_refused(peer, {RefusalKind::kWrongAccount, refusal});
  // The kernel gives the lowest number that is free: all below it are in use.
  const std::size_t in_use = static_cast<std::size_t>(socket.native_handle()), allowed = files_allowed();
  if (in_use >= allowed - allowed / kFilesSpared)
    return handlers_.on_refused(peer,
                                {RefusalKind::kTooMany, fmt::format("{} of {} files are in use", in_use, allowed)});
  // Plain text is for loopback only, where everybody has the same address.
  std::string address = listener_->security().tls ? address_of_peer(peer) : "";
  const bool has_place = may_enter(address) && (strangers_.size() < kStrangersMax || make_room(address));
  if (has_place) return enter({std::move(socket), std::move(address)});
  if (queue_.size() >= queue_max || in_use >= allowed / 4 * 3)
    return handlers_.on_refused(peer,
                                {RefusalKind::kTooMany, fmt::format("too many connections wait: {}", queue_.size())});
  queue_.push(std::chrono::steady_clock::now(), address, {std::move(socket), address});
  if (queue_.size() == 1) watch_queue();
}

/// Why whoever is at the other end of a Unix socket may not come in; empty: it may, or proves itself by other means.
std::string Gateway::refusal_of_account(Socket& socket) const {
  if (!listener_->is_local_socket()) return {};
  const std::optional<LocalPeer> peer = local_peer(socket.native_handle());
  if (peer && is_trusted(*peer)) return {};
  return "only this coordinator's own account and root may connect: `sgd-launch init` lets others in by certificate";
}

bool Gateway::may_enter(const std::string& address) const {
  const auto taken = places_->find(address);
  if (taken != places_->end() && taken->second >= kStrangersOfOneMax) return false;
  const TimePoint now = std::chrono::steady_clock::now();
  if (address.empty() || vain.allows(now, address)) return true;
  const auto member = members_.find(address);
  return member != members_.end() && now - member->second < kMembersAddress;
}

void Gateway::count_vain(const Session::State& state) {
  if (state.is_counted) vain.count_failure(std::chrono::steady_clock::now(), address_of_peer(state.peer));
}

void Gateway::note_member(const Session::State& state) {
  if (state.is_counted) members_[address_of_peer(state.peer)] = std::chrono::steady_clock::now();
}

void Gateway::serve_queue() {
  while (strangers_.size() < kStrangersMax) {
    std::optional<Arrival> next = queue_.take([this](const std::string& address) { return may_enter(address); });
    if (!next) return;
    enter(std::move(*next));
  }
}

/// Places are also free again when sessions end, which the gateway is not told.
void Gateway::watch_queue() {
  queue_timer_.after(kQueueLook, [this] {
    for (Arrival& late : queue_.take_older(std::chrono::steady_clock::now() - kQueueTime))
      handlers_.on_refused(peer_name(late.socket),
                           {RefusalKind::kTooMany, fmt::format("no place within {}", format_duration(kQueueTime))});
    serve_queue();
    if (queue_.size() > 0) watch_queue();
  });
}

/// Who says nothing and acknowledges nothing would be fed on for as long as the kernel takes to give it up.
void Gateway::look_for_revoked() {
  std::erase_if(admitted_, [](const std::weak_ptr<Connection>& one) { return one.expired(); });
  std::erase_if(meters_, [now = std::chrono::steady_clock::now()](const auto& one) {
    return one.second.use_count() == 1 && one.second->owes_nothing(now);
  });
  std::erase_if(members_, [now = std::chrono::steady_clock::now()](const auto& one) {
    return now - one.second >= kMembersAddress;
  });
  const TlsContext& tls = *listener_->security().tls;
  const Status read = tls.refresh();
  const std::string trouble = read ? "" : read.error().message;
  if (std::exchange(trouble_, trouble) != trouble && !trouble.empty()) handlers_.on_trouble(trouble);
  if (std::exchange(looked_version_, tls.version()) != tls.version())
    for (const std::weak_ptr<Connection>& one : admitted_)
      if (const auto open = one.lock()) open->close_if_revoked();
  revoked_timer_.after(TlsContext::kLook / 2, [this] { look_for_revoked(); });
}

void Gateway::enter(Arrival arrival) {
  const Security security = listener_->security();
  const auto connection = std::make_shared<Connection>(std::move(arrival.socket), buffer_, security);
  const auto state = std::make_shared<Session::State>(io_, *this);
  state->is_counted = security.tls != nullptr;
  if (security.tls) state->place = std::make_unique<AddressSlot>(places_, std::move(arrival.address));
  state->number = ++sessions_made_;
  state->connection = connection;
  state->peer = connection->peer();
  strangers_.insert(state);
  Connection::Handlers handlers;
  handlers.on_open = [state](int) {
    state->deadline.expires_after(kFirstMessage);
    state->deadline.async_wait([state](const boost::system::error_code& error) {
      if (!error) state->close(fmt::format("no message within {}", format_duration(kFirstMessage)), RefusalKind::kSlow);
    });
  };
  handlers.on_frame = [state](Frame frame) { state->gateway.on_frame(state, std::move(frame)); };
  handlers.on_closed = [state](const std::string& reason) { state->gateway.on_closed(state, reason); };
  connection->start(std::move(handlers));
}

/// A few addresses that hold every place must not keep out one that holds none: the oldest of the busiest goes.
bool Gateway::make_room(const std::string& address) {
  const auto busiest = std::max_element(places_->begin(), places_->end(),
                                        [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto own = places_->find(address);
  if (busiest == places_->end() || busiest->second <= (own == places_->end() ? 0 : own->second) + 1) return false;
  std::shared_ptr<Session::State> oldest;
  for (const std::shared_ptr<Session::State>& state : strangers_)
    if (state->place && state->place->address() == busiest->first && (!oldest || state->number < oldest->number))
      oldest = state;
  if (!oldest) return false;
  oldest->deadline.cancel();
  oldest->place.reset();
  strangers_.erase(oldest);
  const Refusal refusal{RefusalKind::kTooMany, "it makes room for another address"};
  if (const auto open = oldest->connection.lock()) open->abandon(refusal.reason);
  handlers_.on_refused(oldest->peer, refusal);
  return true;
}

void Gateway::on_closed(const std::shared_ptr<Session::State>& state, const std::string& reason) {
  state->deadline.cancel();
  const auto connection = state->connection.lock();
  Refusal refusal{connection ? connection->refusal() : RefusalKind::kNone, reason};
  if (std::exchange(state->is_stranger, false)) {
    if (refusal.kind == RefusalKind::kNone) refusal.kind = RefusalKind::kGone;
    strangers_.erase(state);
    state->place.reset();
    count_vain(*state);
    handlers_.on_refused(state->peer, refusal);
    return serve_queue();
  }
  if (state->is_dropped) return;
  if (refusal.kind == RefusalKind::kNone && state->is_within_share()) note_member(*state);
  if (refusal.kind != RefusalKind::kNone) handlers_.on_broken(state->peer, refusal);
  state->on_closed(reason);
}

void Gateway::on_frame(const std::shared_ptr<Session::State>& state, Frame frame) {
  const Duration begin = processor_time();
  ++frames.received;
  if (state->is_stranger) {
    on_first(state, frame);
  } else {
    state->on_frame(std::move(frame));
  }
  state->charge(processor_time() - begin);
}

void Gateway::meter(Session::State& state) {
  std::shared_ptr<WorkMeter>& meter =
      meters_[fmt::format("{} {}", role_name(state.identity.role), state.identity.name)];
  if (!meter) meter = std::make_shared<WorkMeter>(work_share);
  meter->charge(std::chrono::steady_clock::now(), kSessionWork);
  state.meter = meter;
}

/// A stranger's first message.
void Gateway::on_first(const std::shared_ptr<Session::State>& state, const Frame& frame) {
  Result<nlohmann::json> parsed = Error{"no JSON"};
  if (frame.kind == FrameKind::kJson) parsed = codec::parse_object(frame.bytes, codec::kDepthMax);
  nlohmann::json first = parsed ? std::move(parsed).value() : nlohmann::json::object();
  const auto type = first.find("type");
  if (type == first.end() || !type->is_string())
    return state->close("the first message does not say what kind of session it begins", RefusalKind::kBadMessage);
  const auto kind = handlers_.kinds.find(type->get<std::string>());
  if (kind == handlers_.kinds.end())
    return state->close("the first message is of a kind that nobody here serves", RefusalKind::kBadMessage);
  if (const auto connection = state->connection.lock()) {
    state->is_secure = connection->is_secure();
    state->identity = connection->peer_identity();
    connection->pause();  // Until the session is started.
  }
  if (state->is_secure) {
    const Refusal refusal = refusal_of_visit(kind->first, state->identity);
    if (refusal.kind != RefusalKind::kNone) return state->close(refusal.reason, refusal.kind);
    if (state->identity.role != Role::kNone) {
      state->place.reset();
      admitted_.push_back(state->connection);
      meter(*state);
      if (state->is_within_share())
        note_member(*state);
      else
        count_vain(*state);
    }
  }
  state->deadline.cancel();
  state->is_stranger = false;
  strangers_.erase(state);
  serve_queue();
  kind->second(std::make_unique<Session>(state), std::move(first));
}

}  // namespace sgd::net
