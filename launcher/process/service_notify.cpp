#include "launcher/process/service_notify.hpp"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/steady_timer.hpp>

namespace sgd::process {
namespace {

std::string take(const char* name) {
  const char* value = std::getenv(name);
  const std::string text = value != nullptr ? value : "";
  ::unsetenv(name);
  return text;
}

std::optional<std::int64_t> number(const std::string& text) {
  std::int64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

/// The bytes of the address; empty when the text names none.
std::string address_of(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const bool is_abstract = name.size() > 1 && name.front() == '@';
  // A path ends with a NUL byte, a name in the abstract namespace has its length.
  if ((!is_abstract && name.front() != '/') || name.size() + (is_abstract ? 0 : 1) > sizeof(address.sun_path))
    return {};
  std::memcpy(address.sun_path, name.data(), name.size());
  if (is_abstract) address.sun_path[0] = '\0';
  const std::size_t bytes = offsetof(sockaddr_un, sun_path) + name.size() + (is_abstract ? 0 : 1);
  return {reinterpret_cast<const char*>(&address), bytes};
}

/// One line of the protocol; a status in more lines would be read as more assignments.
std::string one_line(std::string_view text) {
  std::string line(text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

}  // namespace

NotifyEnvironment take_notify_environment() {
  return {take("NOTIFY_SOCKET"), take("WATCHDOG_USEC"), take("WATCHDOG_PID")};
}

Result<ServiceNotify> ServiceNotify::open(const NotifyEnvironment& environment) {
  ServiceNotify notify;
  if (environment.socket.empty()) return notify;
  notify.address_ = address_of(environment.socket);
  if (notify.address_.empty())
    return Error{
        fmt::format("NOTIFY_SOCKET={}: neither an absolute path nor @name of at most 107 bytes", environment.socket)};
  notify.socket_ = UniqueFd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!notify.socket_) return system_error("socket for the service manager");
  timeval limit{};
  limit.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(kSendLimit).count();
  (void)::setsockopt(notify.socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  const auto usec = number(environment.watchdog_usec);
  const bool is_for_us = environment.watchdog_pid.empty() || number(environment.watchdog_pid) == ::getpid();
  if (usec && *usec > 0 && is_for_us) notify.watchdog_interval_ = std::chrono::microseconds(*usec / 2);
  return notify;
}

Status ServiceNotify::send(std::string_view lines, bool may_wait) {
  if (!socket_) return {};
  const auto* address = reinterpret_cast<const sockaddr*>(address_.data());
  const int flags = MSG_NOSIGNAL | (may_wait ? 0 : MSG_DONTWAIT);
  ssize_t sent = -1;
  do {
    sent = ::sendto(socket_.get(), lines.data(), lines.size(), flags, address, static_cast<socklen_t>(address_.size()));
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) return system_error("cannot tell the service manager");
  return {};
}

Status ServiceNotify::ready(std::string_view status) {
  return send(fmt::format("READY=1\nSTATUS={}\n", one_line(status)), true);
}

Status ServiceNotify::reloading(TimePoint now) {
  const auto usec = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count();
  return send(fmt::format("RELOADING=1\nMONOTONIC_USEC={}\n", usec), true);
}

Status ServiceNotify::stopping(std::string_view status) {
  return send(fmt::format("STOPPING=1\nSTATUS={}\n", one_line(status)), true);
}

void ServiceNotify::status(std::string_view text) {
  (void)send(fmt::format("STATUS={}\n", one_line(text)), false);  // Ignoring a full socket: see the header.
}

void ServiceNotify::extend_timeout(Duration duration) {
  const auto usec = std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
  (void)send(fmt::format("EXTEND_TIMEOUT_USEC={}\n", usec),
             false);  // Ignoring a full socket: it is said again.
}

void ServiceNotify::feed_watchdog() {
  (void)send("WATCHDOG=1\n", false);  // Ignoring a full socket: half of the time is left for the next one.
}

struct WatchdogFeeder::Timer : std::enable_shared_from_this<Timer> {
  Timer(boost::asio::io_context& io, ServiceNotify& with) : timer(io), notify(with) {}

  void feed() {
    notify.feed_watchdog();
    timer.expires_after(notify.watchdog_interval());
    timer.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (!error && !self->is_over) self->feed();
    });
  }

  boost::asio::steady_timer timer;
  ServiceNotify& notify;
  bool is_over = false;
};

WatchdogFeeder::WatchdogFeeder(boost::asio::io_context& io, ServiceNotify& notify) {
  if (notify.watchdog_interval() <= Duration::zero()) return;
  timer_ = std::make_shared<Timer>(io, notify);
  timer_->feed();
}

WatchdogFeeder::~WatchdogFeeder() {
  if (!timer_) return;
  timer_->is_over = true;
  timer_->timer.cancel();
}

}  // namespace sgd::process
