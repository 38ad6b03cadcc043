#include "launcher/agent/spare_request.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include "common/json/words.hpp"
#include "common/messages/warm.hpp"
#include "launcher/process/random_seed.hpp"
#include "launcher/process/setting.hpp"
#include "launcher/process/unix_socket.hpp"

namespace sgd::agent {
namespace {

/// Below which strays of a keeper are found that nobody has left to us.
constexpr const char* kMarkName = "SGD_KEEPER";

process::SharedFd copy_of(int fd) {
  return std::make_shared<const process::UniqueFd>(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
}

}  // namespace

void SpareRequest::ask(const std::string& socket, const keeper::StartForkServer& wanted, int input,
                       OnAnswer on_answer) {
  on_answer_ = std::move(on_answer);
  if (input >= 0) input_ = copy_of(input);
  const Status sent = seek(socket, wanted);
  if (!sent) boost::asio::post(io_, [self = shared_from_this()] { self->answer(std::nullopt, ""); });
}

Status SpareRequest::seek(const std::string& socket, const keeper::StartForkServer& wanted) {
  setting_ = warm::with_server(process::own_setting(), wanted);
  for (const auto& [name, value] : setting_.environment)
    if (!json::is_utf8(name) || !json::is_utf8(value))
      return Error{"a variable is no UTF-8 text, as which it would be sent"};
  auto connection = process::connect_unix(socket, kConnectLimit);
  if (!connection) return connection.error();
  mark_ = fmt::format("{}={:016x}", kMarkName, process::random_seed().front());
  setting_.environment[kMarkName] = mark_.substr(mark_.find('=') + 1);
  stream_ = std::make_shared<LocalStream>(io_, std::move(connection).value());
  stream_->start([self = shared_from_this()](std::string_view bytes, const auto&) { self->on_bytes(bytes); },
                 [self = shared_from_this()](const std::string&) { self->answer(std::nullopt, ""); });
  limit_.expires_after(kAnswerLimit);
  limit_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (!error) self->answer(std::nullopt, fmt::format("it has not answered within {}", format_duration(kAnswerLimit)));
  });
  stream_->send(warm::encode(warm::ToServer(warm::Seek{setting_})));
  return {};
}

/// Only a server that answers gets the run's standard streams.
Status SpareRequest::take() {
  auto ends = process::socket_pair(SOCK_STREAM);
  if (!ends) return ends.error();
  process::UniqueFd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  std::vector<process::SharedFd> descriptors = {input_ ? input_ : copy_of(nothing.get()), copy_of(STDOUT_FILENO),
                                                copy_of(STDERR_FILENO)};
  descriptors.push_back(std::make_shared<const process::UniqueFd>(std::move(ends.value().second)));
  for (process::SharedFd& fd : descriptors)
    if (!*fd) fd = copy_of(nothing.get());
  link_ = std::move(ends.value().first);
  stream_->send(warm::encode(warm::ToServer(warm::Take{std::move(setting_)})), std::move(descriptors));
  return {};
}

void SpareRequest::on_bytes(std::string_view bytes) {
  if (!on_answer_) return;  // It was waited for long enough.
  reader_.append(bytes);
  const auto frame = reader_.next();
  if (frame && !frame.value()) return;
  const auto message = frame ? warm::decode_from_server(frame.value()->bytes) : Result<warm::FromServer>(frame.error());
  if (message && std::holds_alternative<warm::Found>(message.value()) && !link_) {
    if (!take()) answer(std::nullopt, "");
    return;
  }
  if (message)
    if (const auto* taken = std::get_if<warm::Taken>(&message.value()))
      return answer(SpareKeeper{std::move(link_), taken->pid, mark_}, "");
  const auto* refused = message ? std::get_if<warm::Refused>(&message.value()) : nullptr;
  answer(std::nullopt, refused != nullptr && refused->is_near ? refused->reason : "");
}

void SpareRequest::answer(std::optional<SpareKeeper> spare, std::string refusal) {
  const OnAnswer on_answer = std::exchange(on_answer_, nullptr);
  if (!on_answer) return;
  limit_.cancel();
  if (stream_) stream_->close("answered");
  on_answer(std::move(spare), std::move(refusal));
}

}  // namespace sgd::agent
