#include "launcher/warm/warm_client.hpp"

#include <poll.h>

#include <cerrno>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/messages/frame.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/process/unix_socket.hpp"

namespace sgd::warm {
namespace {

constexpr std::size_t kReadBytes = 64 << 10;

}  // namespace

Result<std::optional<FromServer>> ask_server(const std::string& socket, const ToServer& question, Duration limit) {
  using Answer = std::optional<FromServer>;
  const TimePoint deadline = process::monotonic_now() + limit;
  auto connection = process::connect_unix(socket, limit);
  if (!connection && (connection.error().code == ENOENT || connection.error().code == ECONNREFUSED)) return Answer();
  if (!connection) return connection.error();
  const int fd = connection.value().get();
  const std::string message = encode(question);
  for (std::size_t sent = 0; sent < message.size();) {
    const auto more = process::send_with_descriptors(fd, std::string_view(message).substr(sent), {});
    if (!more) return more.error();
    sent += more.value();
  }
  FrameReader reader;
  std::vector<char> buffer(kReadBytes);
  for (;;) {
    pollfd entry{fd, POLLIN, 0};
    if (::poll(&entry, 1, process::poll_timeout_ms(process::monotonic_now(), deadline)) == 0)
      return Error{fmt::format("the warm server has not answered within {}", format_duration(limit)), ETIMEDOUT};
    const auto received = process::receive_with_descriptors(fd, buffer);
    if (!received) return received.error();
    if (received.value().bytes == 0) return Answer();  // It has just ended.
    reader.append({buffer.data(), received.value().bytes});
    const auto frame = reader.next();
    if (frame && !frame.value()) continue;
    auto answer = frame ? decode_from_server(frame.value()->bytes) : Result<FromServer>(frame.error());
    if (!answer) return answer.error();
    return Answer(std::move(answer).value());
  }
}

}  // namespace sgd::warm
