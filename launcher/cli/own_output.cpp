#include "launcher/cli/own_output.hpp"

#include <poll.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "common/messages/node_output.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/process/unix_socket.hpp"

namespace sgd::cli {
namespace {

constexpr Duration kLookAgain = std::chrono::milliseconds(10);
/// A run has one keeper here at a time.
constexpr std::size_t kKeepersMax = 16;

}  // namespace

Result<std::unique_ptr<OwnOutput>> OwnOutput::listen(boost::asio::io_context& io, Console& console,
                                                     OwnOutputPlace place) {
  place.style.ranks = std::min(place.style.ranks, place.workers_here);
  std::unique_ptr<OwnOutput> made(new OwnOutput(io, console, std::move(place)));
  if (const Status opened = made->open(); !opened) return opened.error();
  return made;
}

/// Of equal machines that are filled one after the other.
OwnOutput::OwnOutput(boost::asio::io_context& io, Console& console, OwnOutputPlace place)
    : io_(io),
      console_(console),
      place_(std::move(place)),
      ranks_(io, console, place_.style, [each = std::max(place_.workers_here, 1)](Rank rank) { return rank % each; }),
      look_timer_(io) {}

OwnOutput::~OwnOutput() {
  for (auto& [id, agent] : agents_) agent.stream->close("the launcher ends");
}

Status OwnOutput::open() {
  auto listener = process::listen_unix(place_.socket);
  if (!listener) return listener.error();
  listener_ = listener.value().get();
  accepting_.emplace(io_, std::move(listener).value(),
                     process::AcceptLoop::Handlers{[this](process::UniqueFd socket) { take(std::move(socket)); }});
  return {};
}

void OwnOutput::take(process::UniqueFd socket) {
  const int id = next_id_++;
  lacks_rest_ = true;
  Agent& agent = agents_[id];
  agent.stream = std::make_shared<agent::LocalStream>(io_, std::move(socket));
  const auto is_here = [alive = std::weak_ptr(alive_)] { return !alive.expired(); };
  agent.stream->start(
      [this, is_here, id](std::string_view bytes, const auto&) {
        if (is_here()) on_bytes(id, bytes);
      },
      [this, is_here, id](const std::string&) {
        if (is_here()) agents_.erase(id);
      });
}

void OwnOutput::on_bytes(int id, std::string_view bytes) {
  moved_at_ = process::monotonic_now();
  Agent& agent = agents_.at(id);
  agent.reader.append(bytes);
  for (;;) {
    const auto frame = agent.reader.next();
    if (frame && !frame.value()) return;
    const Status done = frame ? on_frame(id, *frame.value()) : Status(frame.error());
    if (done) continue;
    console_.complain("warning", "what the agent here passes on is not understood: " + done.error().message);
    return agent.stream->close("it sent what it must not");
  }
}

Status OwnOutput::on_frame(int id, const Frame& frame) {
  if (frame.kind == FrameKind::kJson) {
    const auto message = node_output::decode_from_agent(frame.bytes);
    if (!message) return message.error();
    if (const auto* warning = std::get_if<node_output::Warning>(&message.value()))
      console_.complain("warning", warning->text);
    else
      lacks_rest_ = false;
    return {};
  }
  const auto head = keeper::decode_output_head(frame.bytes);
  if (!head) return head.error();
  const std::string_view lines = std::string_view(frame.bytes).substr(keeper::kOutputHeaderBytes);
  if (was_shown(head.value())) {
    on_written(id, lines.size());
    return {};
  }
  ranks_.add(head.value(), lines, [this, alive = std::weak_ptr(alive_), id, bytes = lines.size()] {
    if (!alive.expired()) on_written(id, bytes);
  });
  return {};
}

bool OwnOutput::was_shown(const keeper::OutputHead& head) {
  if (head.keeper == 0 || head.is_open) return false;
  const auto is_its = [&head](const auto& one) { return one.first == head.keeper; };
  const auto its = std::find_if(shown_.begin(), shown_.end(), is_its);
  if (its == shown_.end()) {
    shown_.emplace_back(head.keeper, head.end);
    if (shown_.size() > kKeepersMax) shown_.pop_front();
    return false;
  }
  if (head.end <= its->second) return true;
  its->second = head.end;
  return false;
}

void OwnOutput::on_written(int id, std::size_t bytes) {
  moved_at_ = process::monotonic_now();
  const auto agent = agents_.find(id);
  if (agent == agents_.end()) return;
  agent->second.stream->send(
      node_output::encode(node_output::ToAgent(node_output::Taken{static_cast<std::int64_t>(bytes)})));
}

bool OwnOutput::has_all() const {
  pollfd waiting{listener_, POLLIN, 0};
  return agents_.empty() && !lacks_rest_ && ::poll(&waiting, 1, 0) == 0;
}

void OwnOutput::finish(std::function<void()> then) {
  then_ = std::move(then);
  moved_at_ = process::monotonic_now();
  look();
}

void OwnOutput::flush() {
  ranks_.flush();
  ranks_.stop();
}

/// The agent says when it has no more; one that was killed says nothing, and the next one does. One that is frozen is
/// not waited for; whoever reads what we write is.
void OwnOutput::look() {
  const bool is_quiet = console_.drained() && process::monotonic_now() - moved_at_ > kQuietLimit;
  if (has_all() || is_quiet) {
    flush();
    if (const auto then = std::exchange(then_, nullptr)) then();
    return;
  }
  look_timer_.after(kLookAgain, [this] { look(); });
}

}  // namespace sgd::cli
