#include "launcher/net/door.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <boost/asio/post.hpp>

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
class DoorPlace {
 public:
  using Taken = std::map<std::string, std::size_t>;
  DoorPlace(std::shared_ptr<Taken> taken, std::string address)
      : taken_(std::move(taken)), address_(std::move(address)) {
    ++(*taken_)[address_];
  }
  ~DoorPlace() {
    const auto one = taken_->find(address_);
    if (--one->second == 0) taken_->erase(one);
  }
  DoorPlace(const DoorPlace&) = delete;
  DoorPlace& operator=(const DoorPlace&) = delete;
  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  std::shared_ptr<Taken> taken_;
  std::string address_;
};

namespace {

std::size_t files_allowed() {
  rlimit files{};
  return ::getrlimit(RLIMIT_NOFILE, &files) == 0 ? files.rlim_cur : 0;
}

}  // namespace

/// One connection: a stranger's until its first message, then a visitor's.
struct Visitor::Visit {
  Visit(asio::io_context& loop, Door& entered) : io(loop), door(entered), deadline(loop) {}

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
  Door& door;                ///< Of no use when the visitor is gone.
  std::uint64_t number = 0;  ///< In the order in which they came.
  bool is_stranger = true;
  bool is_counted = false;           ///< Over TLS: its address means something.
  std::unique_ptr<DoorPlace> place;  ///< Until it has shown a certificate.
  std::weak_ptr<Connection> connection;
  std::string peer;
  PeerIdentity identity;  ///< From the first message on.
  bool is_secure = false;
  std::shared_ptr<WorkMeter> meter;  ///< With a certificate, from the first message on.
  asio::steady_timer deadline;       ///< For the first message; then for the rest with which a visitor begins.
  Handlers handlers;
  std::string closed_for;  ///< Closed before the visitor is started.
  bool is_started = false;
  bool is_dropped = false;  ///< The visitor is gone.
};

// ---- a visitor ----

Visitor::Visitor(std::shared_ptr<Visit> visit) : visit_(std::move(visit)) {}

Visitor::~Visitor() {
  visit_->is_dropped = true;
  if (const auto open = visit_->connection.lock()) open->abandon("this side lets it go");
}

void Visitor::start(Handlers handlers) {
  visit_->handlers = std::move(handlers);
  asio::post(visit_->io, [visit = visit_] {
    visit->is_started = true;
    if (visit->is_dropped) return;
    visit->begin();
    if (!visit->closed_for.empty()) visit->handlers.on_closed(visit->closed_for);
  });
}

Status Visitor::send(FrameKind kind, std::string_view bytes) {
  const auto open = visit_->connection.lock();
  return open && open->is_open() ? open->send(kind, bytes) : Status{};
}

void Visitor::send(std::shared_ptr<const std::string> frames) {
  const auto open = visit_->connection.lock();
  if (open && open->is_open()) open->send(std::move(frames));
}

void Visitor::close(std::string reason, RefusalKind kind) {
  visit_->close(std::move(reason), kind);
}

void Visitor::rest(Duration duration) {
  if (const auto open = visit_->connection.lock()) open->rest(duration);
}

std::size_t Visitor::unsent() const {
  const auto open = visit_->connection.lock();
  return open && open->is_open() ? open->unsent() : 0;
}

void Visitor::charge(Duration work) {
  visit_->charge(work);
}

const std::string& Visitor::peer() const {
  return visit_->peer;
}

const PeerIdentity& Visitor::peer_identity() const {
  return visit_->identity;
}

bool Visitor::is_secure() const {
  return visit_->is_secure;
}

// ---- the door ----

Door::Door(asio::io_context& io, std::unique_ptr<Listener> listener)
    : io_(io),
      listener_(std::move(listener)),
      places_(std::make_shared<DoorPlace::Taken>()),
      line_timer_(io),
      revoked_timer_(io) {
  work_share = kMemberShare;
}

Door::~Door() {
  for (const std::shared_ptr<Visitor::Visit>& visit : strangers_) {
    visit->deadline.cancel();
    if (const auto open = visit->connection.lock()) open->abandon("this side ends");
  }
}

void Door::start(Handlers handlers) {
  handlers_ = std::move(handlers);
  if (!handlers_.on_refused) handlers_.on_refused = [](const std::string&, const Refusal&) {};
  if (!handlers_.on_broken) handlers_.on_broken = [](const std::string&, const Refusal&) {};
  listener_->start([this](Socket socket) { take(std::move(socket)); });
  if (listener_->security().tls) look_for_revoked();
}

void Door::take(Socket socket) {
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
  if (line_.size() >= line_max || in_use >= allowed / 4 * 3)
    return handlers_.on_refused(peer,
                                {RefusalKind::kTooMany, fmt::format("{} others wait before the door", line_.size())});
  line_.push(std::chrono::steady_clock::now(), address, {std::move(socket), address});
  if (line_.size() == 1) look_after_line();
}

/// Why whoever is at the other end of a Unix socket may not come in; empty: it may, or proves itself by other means.
std::string Door::refusal_of_account(Socket& socket) const {
  if (!listener_->is_local_socket()) return {};
  const std::optional<LocalPeer> peer = local_peer(socket.native_handle());
  if (peer && is_trusted(*peer)) return {};
  return "only this coordinator's own account and root may connect: `sgd-launch init` lets others in by certificate";
}

bool Door::may_enter(const std::string& address) const {
  const auto taken = places_->find(address);
  if (taken != places_->end() && taken->second >= kStrangersOfOneMax) return false;
  const TimePoint now = std::chrono::steady_clock::now();
  if (address.empty() || vain.allows(now, address)) return true;
  const auto member = members_.find(address);
  return member != members_.end() && now - member->second < kMembersAddress;
}

void Door::count_vain(const Visitor::Visit& visit) {
  if (visit.is_counted) vain.count_failure(std::chrono::steady_clock::now(), address_of_peer(visit.peer));
}

void Door::note_member(const Visitor::Visit& visit) {
  if (visit.is_counted) members_[address_of_peer(visit.peer)] = std::chrono::steady_clock::now();
}

void Door::serve_line() {
  while (strangers_.size() < kStrangersMax) {
    std::optional<Arrival> next = line_.take([this](const std::string& address) { return may_enter(address); });
    if (!next) return;
    enter(std::move(*next));
  }
}

/// Places are also free again when visitors leave, of whom the door hears nothing.
void Door::look_after_line() {
  line_timer_.expires_after(kLineLook);
  line_timer_.async_wait([this, alive = std::weak_ptr<const char>(alive_)](const boost::system::error_code& error) {
    if (error || alive.expired()) return;
    for (Arrival& late : line_.take_older(std::chrono::steady_clock::now() - kLineTime))
      handlers_.on_refused(peer_name(late.socket),
                           {RefusalKind::kTooMany, fmt::format("no place within {}", format_duration(kLineTime))});
    serve_line();
    if (line_.size() > 0) look_after_line();
  });
}

/// Who says nothing and acknowledges nothing would be fed on for as long as the kernel takes to give it up.
void Door::look_for_revoked() {
  std::erase_if(admitted_, [](const std::weak_ptr<Connection>& one) { return one.expired(); });
  std::erase_if(meters_, [now = std::chrono::steady_clock::now()](const auto& one) {
    return one.second.use_count() == 1 && one.second->is_even(now);
  });
  std::erase_if(members_, [now = std::chrono::steady_clock::now()](const auto& one) {
    return now - one.second >= kMembersAddress;
  });
  const TlsContext& tls = *listener_->security().tls;
  tls.refresh_soon();
  if (std::exchange(looked_version_, tls.version()) != tls.version())
    for (const std::weak_ptr<Connection>& one : admitted_)
      if (const auto open = one.lock()) open->close_if_revoked();
  revoked_timer_.expires_after(TlsContext::kLook / 2);
  revoked_timer_.async_wait([this, alive = std::weak_ptr<const char>(alive_)](const boost::system::error_code& error) {
    if (!error && !alive.expired()) look_for_revoked();
  });
}

void Door::enter(Arrival arrival) {
  const Security security = listener_->security();
  const auto connection = std::make_shared<Connection>(std::move(arrival.socket), buffer_, security);
  const auto visit = std::make_shared<Visitor::Visit>(io_, *this);
  visit->is_counted = security.tls != nullptr;
  if (security.tls) visit->place = std::make_unique<DoorPlace>(places_, std::move(arrival.address));
  visit->number = ++visits_;
  visit->connection = connection;
  visit->peer = connection->peer();
  strangers_.insert(visit);
  Connection::Handlers handlers;
  handlers.on_open = [visit](int) {
    visit->deadline.expires_after(kFirstMessage);
    visit->deadline.async_wait([visit](const boost::system::error_code& error) {
      if (!error) visit->close(fmt::format("no message within {}", format_duration(kFirstMessage)), RefusalKind::kSlow);
    });
  };
  handlers.on_frame = [visit](Frame frame) { visit->door.on_frame(visit, std::move(frame)); };
  handlers.on_closed = [visit](const std::string& reason) { visit->door.on_closed(visit, reason); };
  connection->start(std::move(handlers));
}

/// A few addresses that hold every place must not keep out one that holds none: the oldest of the busiest goes.
bool Door::make_room(const std::string& address) {
  const auto busiest = std::max_element(places_->begin(), places_->end(),
                                        [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto own = places_->find(address);
  if (busiest == places_->end() || busiest->second <= (own == places_->end() ? 0 : own->second) + 1) return false;
  std::shared_ptr<Visitor::Visit> oldest;
  for (const std::shared_ptr<Visitor::Visit>& visit : strangers_)
    if (visit->place && visit->place->address() == busiest->first && (!oldest || visit->number < oldest->number))
      oldest = visit;
  if (!oldest) return false;
  oldest->deadline.cancel();
  oldest->place.reset();
  strangers_.erase(oldest);
  const Refusal refusal{RefusalKind::kTooMany, "it makes room for another address"};
  if (const auto open = oldest->connection.lock()) open->abandon(refusal.reason);
  handlers_.on_refused(oldest->peer, refusal);
  return true;
}

void Door::on_closed(const std::shared_ptr<Visitor::Visit>& visit, const std::string& reason) {
  visit->deadline.cancel();
  const auto connection = visit->connection.lock();
  Refusal refusal{connection ? connection->refusal() : RefusalKind::kNone, reason};
  if (std::exchange(visit->is_stranger, false)) {
    if (refusal.kind == RefusalKind::kNone) refusal.kind = RefusalKind::kGone;
    strangers_.erase(visit);
    visit->place.reset();
    count_vain(*visit);
    handlers_.on_refused(visit->peer, refusal);
    return serve_line();
  }
  if (visit->is_dropped) return;
  if (refusal.kind == RefusalKind::kNone && visit->is_within_share()) note_member(*visit);
  if (refusal.kind != RefusalKind::kNone) handlers_.on_broken(visit->peer, refusal);
  visit->on_closed(reason);
}

void Door::on_frame(const std::shared_ptr<Visitor::Visit>& visit, Frame frame) {
  const auto begin = std::chrono::steady_clock::now();
  if (visit->is_stranger) {
    on_first(visit, frame);
  } else {
    visit->on_frame(std::move(frame));
  }
  visit->charge(std::chrono::steady_clock::now() - begin);
}

void Door::meter(Visitor::Visit& visit) {
  std::shared_ptr<WorkMeter>& meter =
      meters_[fmt::format("{} {}", role_name(visit.identity.role), visit.identity.name)];
  if (!meter) meter = std::make_shared<WorkMeter>(work_share);
  meter->charge(std::chrono::steady_clock::now(), kVisitWork);
  visit.meter = meter;
}

/// A stranger's first message.
void Door::on_first(const std::shared_ptr<Visitor::Visit>& visit, const Frame& frame) {
  Result<nlohmann::json> parsed = Error{"no JSON"};
  if (frame.kind == FrameKind::kJson) parsed = codec::parse_object(frame.bytes, codec::kDepthMax);
  nlohmann::json first = parsed ? std::move(parsed).value() : nlohmann::json::object();
  const auto type = first.find("type");
  if (type == first.end() || !type->is_string())
    return visit->close("the first message does not say what kind of visitor it is", RefusalKind::kBadMessage);
  const auto kind = handlers_.kinds.find(type->get<std::string>());
  if (kind == handlers_.kinds.end())
    return visit->close("the first message is of a kind that nobody here serves", RefusalKind::kBadMessage);
  if (const auto connection = visit->connection.lock()) {
    visit->is_secure = connection->is_secure();
    visit->identity = connection->peer_identity();
    connection->pause();  // Until the visitor is started.
  }
  if (visit->is_secure) {
    const Refusal refusal = refusal_of_visit(kind->first, visit->identity);
    if (refusal.kind != RefusalKind::kNone) return visit->close(refusal.reason, refusal.kind);
    if (visit->identity.role != Role::kNone) {
      visit->place.reset();
      admitted_.push_back(visit->connection);
      meter(*visit);
      if (visit->is_within_share())
        note_member(*visit);
      else
        count_vain(*visit);
    }
  }
  visit->deadline.cancel();
  visit->is_stranger = false;
  strangers_.erase(visit);
  serve_line();
  kind->second(std::make_unique<Visitor>(visit), std::move(first));
}

}  // namespace sgd::net
