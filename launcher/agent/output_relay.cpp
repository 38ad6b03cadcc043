#include "launcher/agent/output_relay.hpp"

#include <utility>
#include <variant>

#include "common/messages/node_output.hpp"
#include "launcher/process/unix_socket.hpp"

namespace sgd::agent {

OutputRelay::OutputRelay(boost::asio::io_context& io, std::string socket, Handlers handlers)
    : io_(io), socket_(std::move(socket)), handlers_(std::move(handlers)) {}

OutputRelay::~OutputRelay() {
  handlers_ = {};
  if (stream_) stream_->close("the agent ends");
}

void OutputRelay::pass(Output output) {
  is_ending_ = false;
  const std::size_t bytes = output.bytes().size();
  if (!stream_ && !connect()) {
    report_trouble();
    return handlers_.on_taken(output.run, bytes);
  }
  pieces_.push_back({output.run, bytes, std::move(output.chunk)});
  pump();
}

void OutputRelay::warn(const std::string& text) {
  if (stream_ || connect()) stream_->send(node_output::encode(node_output::FromAgent(node_output::Warning{text})));
  close_if_done();
}

void OutputRelay::end() {
  if (std::exchange(is_ending_, true)) return;
  // Nothing may have been said since an agent was killed whose launcher waits for the rest.
  if (!stream_ && !connect()) return;  // The launcher has gone, too.
  close_if_done();
}

bool OutputRelay::connect() {
  auto socket = process::connect_unix(socket_, kConnectLimit);
  if (!socket) {
    trouble_ = socket.error().message;
    return false;
  }
  is_in_trouble_ = false;
  reader_ = {};
  stream_ = std::make_shared<LocalStream>(io_, std::move(socket).value());
  const auto is_mine = [this, alive = std::weak_ptr(alive_), stream = std::weak_ptr(stream_)] {
    return !alive.expired() && stream_ && stream_ == stream.lock();
  };
  stream_->start(
      [this, is_mine](std::string_view bytes, const auto&) {
        if (is_mine()) on_bytes(bytes);
      },
      [this, is_mine](const std::string& reason) {
        if (is_mine()) on_lost(reason);
      });
  return true;
}

void OutputRelay::report_trouble() {
  if (!std::exchange(is_in_trouble_, true))
    handlers_.on_trouble("what ranks say is not shown by the launcher here: " + trouble_);
}

/// One that is larger than what may be untaken goes alone.
void OutputRelay::pump() {
  while (sent_ < pieces_.size()) {
    Piece& next = pieces_[sent_];
    if (sent_bytes_ > 0 && sent_bytes_ + next.bytes > kUntakenBytesMax) return;
    ++sent_;
    sent_bytes_ += next.bytes;
    stream_->send(encode_frame(FrameKind::kChunk, std::exchange(next.chunk, {})));
  }
}

void OutputRelay::on_bytes(std::string_view bytes) {
  reader_.append(bytes);
  for (;;) {
    const auto frame = reader_.next();
    if (frame && !frame.value()) return pump();
    auto message = frame ? node_output::decode_to_agent(frame.value()->bytes) : frame.error();
    const Status taken = message ? take(std::get<node_output::Taken>(message.value()).bytes) : Status(message.error());
    if (!taken) return on_lost("the launcher sent what it must not: " + taken.error().message);
    close_if_done();
    if (!stream_) return;
  }
}

Status OutputRelay::take(std::int64_t bytes) {
  if (bytes < 0 || static_cast<std::uint64_t>(bytes) > sent_bytes_) return Error{"more was taken than sent"};
  sent_bytes_ -= static_cast<std::size_t>(bytes);
  taken_ += static_cast<std::size_t>(bytes);
  while (sent_ > 0 && taken_ >= pieces_.front().bytes) {
    const Piece piece = std::move(pieces_.front());
    pieces_.pop_front();
    --sent_;
    taken_ -= piece.bytes;
    handlers_.on_taken(piece.run, piece.bytes);
  }
  return {};
}

void OutputRelay::on_lost(const std::string& reason) {
  if (!pieces_.empty())
    handlers_.on_trouble("some of what ranks have said is not shown by the launcher here: " + reason);
  give_up();
}

void OutputRelay::give_up() {
  if (stream_) std::exchange(stream_, nullptr)->close("the agent has no more");
  for (const Piece& piece : std::exchange(pieces_, {})) handlers_.on_taken(piece.run, piece.bytes);
  sent_ = sent_bytes_ = taken_ = 0;
}

void OutputRelay::close_if_done() {
  if (!is_ending_ || !pieces_.empty() || !stream_) return;
  stream_->send(node_output::encode(node_output::FromAgent(node_output::AllSaid{})));
  give_up();
}

}  // namespace sgd::agent
