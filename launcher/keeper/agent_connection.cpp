#include "launcher/keeper/agent_connection.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "launcher/process/unix_socket.hpp"

namespace sgd::keeper {
namespace {

constexpr std::size_t kReceiveBytes = 64 << 10;
/// Receives per wake-up, so that a talkative agent cannot keep the loop from the pipes.
constexpr int kReceivesMax = 16;
constexpr std::size_t kPartsMax = 64;

void put_u32(std::string& out, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<char>(value >> shift & 0xff));
}

/// Frame header and output header for `bytes` console bytes (the layouts of frame.hpp and keeper.hpp).
std::string frame_head(const OutputHead& output, std::size_t bytes) {
  std::string head;
  put_u32(head, static_cast<std::uint32_t>(kOutputHeaderBytes + bytes));
  head.push_back(static_cast<char>(FrameKind::kChunk));
  return head + encode(output);
}

/// Bytes written, 0 when the socket is full, -1 when it is broken.
ssize_t write_some(int fd, std::span<const iovec> parts) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  for (;;) {
    const ssize_t sent = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return sent;
    if (errno == EINTR) continue;
    return errno == EAGAIN ? 0 : -1;
  }
}

}  // namespace

Status AgentConnection::send_started(const Started& started, std::span<const int> descriptors) {
  const std::string frame = encode(FromKeeper(started));
  auto sent = process::send_with_descriptors(socket_.get(), frame, descriptors);
  if (!sent) return sent.error();
  if (sent.value() != frame.size()) return Error{"the agent's socket took only a part of the first message", EIO};
  if (!process::set_nonblocking(socket_.get())) return system_error("cannot set up the agent's socket");
  return {};
}

void AgentConnection::attach(process::UniqueFd socket) {
  disconnect();
  socket_ = std::move(socket);
}

void AgentConnection::disconnect() {
  socket_.reset();
  reader_ = {};
  window_ = ConsoleWindow(kOutputWindowBytes, static_cast<std::int64_t>(kConsoleRoom));
  queue_.clear();
  queue_begin_ = queue_bytes_ = 0;
  for (const auto& [end, dropped] : std::exchange(unwritten_, {})) keep_count(dropped);
  flushed_bytes_ = 0;
  lost_ = is_resumed_ = false;
}

Status AgentConnection::resume(const Attach& attach, Started started, std::span<const int> descriptors) {
  if (const Status known = kept_.acknowledge(attach.received); !known) return known;
  started.received = told_received_ = received_;
  if (const Status sent = send_started(started, descriptors); !sent) return sent;
  is_resumed_ = true;
  queue_bytes_max_ = kAgentQueueBytesMax + kept_.bytes() + untaken_.memory();
  const auto write = [this](std::string_view frame) { write_parts(std::span(&frame, 1)); };
  resend_output();  // A rank's lines, and how many were lost, come before its exit.
  for (const auto& [place, dropped] : std::exchange(untold_, {})) send(dropped);
  for (const std::string& frame : kept_.kept()) write(frame);
  return {};
}

void AgentConnection::resend_output() {
  for (const UntakenOutput::Chunk& chunk : untaken_.resend()) {
    const std::string_view frame = chunk.frame;
    write_parts(std::span(&frame, 1));
    window_.sent(chunk.bytes);
  }
}

void AgentConnection::output_taken(TimePoint now, std::int64_t bytes) {
  window_.acknowledged(now, bytes);
  if (keeps_) untaken_.taken(bytes);
}

void AgentConnection::keep_count(const OutputDropped& dropped) {
  const bool is_full = untold_.size() >= kUntoldMax && !untold_.contains({dropped.rank, dropped.reason});
  OutputDropped& kept = is_full ? untold_.rbegin()->second : untold_[{dropped.rank, dropped.reason}];
  kept = {is_full ? kept.rank : dropped.rank, kept.lines + dropped.lines, kept.bytes + dropped.bytes,
          is_full ? kept.reason : dropped.reason, dropped.is_on_console && (kept.bytes == 0 || kept.is_on_console)};
}

void AgentConnection::acknowledge() {
  if (!keeps_ || !is_resumed_ || told_received_ == received_) return;
  told_received_ = received_;
  send(Received{received_});
}

void AgentConnection::send(const FromKeeper& message) {
  const std::string frame = encode(message);
  if (keeps_ && is_counted(message)) kept_.push(frame);
  const auto* dropped = keeps_ ? std::get_if<OutputDropped>(&message) : nullptr;
  if (is_alone()) {
    if (dropped != nullptr) keep_count(*dropped);
    return;
  }
  const std::string_view part = frame;
  write_parts(std::span(&part, 1));
  if (dropped != nullptr && (lost_ || !queue_.empty()))
    unwritten_.emplace_back(flushed_bytes_ + queue_bytes_, *dropped);
}

std::int64_t AgentConnection::send_output(const OutputHead& output, std::span<const ConsolePiece> pieces,
                                          bool finish_line) {
  if (is_alone() && output.is_open) return 0;
  std::string_view parts[kPartsMax];
  std::size_t count = 1;
  std::size_t bytes = 0;
  const auto add = [&](std::string_view part) {
    SGD_ASSERT(count < kPartsMax);
    parts[count++] = part;
    bytes += part.size();
  };
  for (const ConsolePiece& piece : pieces) {
    add(piece.bytes);
    if (piece.split) add(kSplitMark);
  }
  if (finish_line) add("\n");
  if (bytes == 0) return 0;
  if (is_alone() && untaken_.memory() + bytes > UntakenOutput::kMemoryMax) return 0;
  OutputHead numbered = output;
  if (!output.is_open) output_end_ += bytes;
  numbered.keeper = keeper_;
  numbered.end = output_end_;
  const std::string head = frame_head(numbered, bytes);
  parts[0] = head;
  const auto size = static_cast<std::int64_t>(bytes);
  if (keeps_) {
    std::string frame;
    frame.reserve(head.size() + bytes);
    for (const std::string_view part : std::span(parts, count)) frame += part;
    untaken_.push({std::move(frame), size, output.is_open});
  }
  if (is_alone()) return size;
  write_parts(std::span(parts, count));
  window_.sent(size);
  return size;
}

void AgentConnection::write_parts(std::span<const std::string_view> parts) {
  if (lost_) return;
  std::size_t written = 0;
  std::size_t total = 0;
  for (const std::string_view part : parts) total += part.size();
  if (queue_.empty()) {
    iovec vectors[kPartsMax];
    for (std::size_t i = 0; i < parts.size(); ++i) {
      vectors[i] = {const_cast<char*>(parts[i].data()), parts[i].size()};
    }
    const ssize_t sent = write_some(socket_.get(), std::span(vectors, parts.size()));
    if (sent < 0) {
      lost_ = true;
      return;
    }
    written = static_cast<std::size_t>(sent);
  }
  if (written < total) enqueue(parts, written);
}

void AgentConnection::enqueue(std::span<const std::string_view> parts, std::size_t skip) {
  std::string rest;
  for (std::string_view part : parts) {
    const std::size_t skipped = std::min(skip, part.size());
    skip -= skipped;
    part.remove_prefix(skipped);
    rest.append(part);
  }
  queue_bytes_ += rest.size();
  queue_.push_back(std::move(rest));
  if (queue_bytes_ > queue_bytes_max_) lost_ = true;
}

void AgentConnection::flush() {
  while (!queue_.empty() && !lost_) {
    iovec vectors[kPartsMax];
    std::size_t count = 0;
    for (const std::string& entry : queue_) {
      if (count == kPartsMax) break;
      const std::size_t begin = count == 0 ? queue_begin_ : 0;
      vectors[count++] = {const_cast<char*>(entry.data()) + begin, entry.size() - begin};
    }
    const ssize_t sent = write_some(socket_.get(), std::span(vectors, count));
    if (sent < 0) lost_ = true;
    if (sent <= 0) return;
    queue_bytes_ -= static_cast<std::size_t>(sent);
    queue_begin_ += static_cast<std::size_t>(sent);
    flushed_bytes_ += static_cast<std::uint64_t>(sent);
    while (!unwritten_.empty() && unwritten_.front().first <= flushed_bytes_) unwritten_.pop_front();
    while (!queue_.empty() && queue_begin_ >= queue_.front().size()) {
      queue_begin_ -= queue_.front().size();
      queue_.pop_front();
    }
  }
}

Status AgentConnection::receive(std::vector<ToKeeper>& out) {
  char buffer[kReceiveBytes];
  for (int i = 0; i < kReceivesMax; ++i) {
    const ssize_t count = ::recv(socket_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count < 0) return system_error("cannot read from the agent");
    if (count == 0) return Error{"the agent has closed its link"};
    reader_.append(std::string_view(buffer, static_cast<std::size_t>(count)));
    for (;;) {
      auto frame = reader_.next();
      if (!frame) return Error{"the agent sent a bad frame: " + frame.error().message};
      if (!frame.value()) break;
      if (const Status taken = take(*frame.value(), out); !taken) return taken;
    }
    if (static_cast<std::size_t>(count) < sizeof buffer) break;
  }
  return {};
}

Status AgentConnection::take(const Frame& frame, std::vector<ToKeeper>& out) {
  if (frame.kind != FrameKind::kJson) return Error{"the agent sent a chunk, which only a keeper may"};
  auto message = decode_to_keeper(frame.bytes);
  if (!message) return Error{"the agent sent a bad message: " + message.error().message};
  if (const auto* received = std::get_if<Received>(&message.value())) return kept_.acknowledge(received->count);
  if (is_counted(message.value())) ++received_;
  out.push_back(std::move(message).value());
  return {};
}

}  // namespace sgd::keeper
