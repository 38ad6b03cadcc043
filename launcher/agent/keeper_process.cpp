#include "launcher/agent/keeper_process.hpp"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <cstring>

#include "launcher/process/pidfd.hpp"
#include "launcher/process/spawn.hpp"
#include "launcher/process/unix_socket.hpp"

namespace sgd::agent {

KeeperProcess::KeeperProcess(boost::asio::io_context& io, Handlers handlers)
    : handlers_(std::move(handlers)), io_(io), pidfd_(io) {}

Status KeeperProcess::start(const std::string& program) {
  auto pair = process::socket_pair(SOCK_STREAM);
  if (!pair) return pair.error();
  process::SpawnOptions options;
  options.argv = {program, "keeper"};
  options.control_fd = pair.value().second.get();
  options.group = process::ChildGroup::kOwnSession;
  options.dies_with_us = false;  // It outlives us long enough to end what the run has started.
  auto child = process::spawn(options);
  if (!child) return child.error();
  pid_ = child.value().pid;
  pidfd_.assign(child.value().pidfd.release());
  stream_ = std::make_shared<LocalStream>(io_, std::move(pair.value().first));
  stream_->start([this](std::string_view bytes, std::vector<process::UniqueFd> fds) { on_bytes(bytes, std::move(fds)); },
                 [this](std::string reason) { on_stream_closed(std::move(reason)); });
  return {};
}

void KeeperProcess::send(const keeper::ToKeeper& message) { stream_->send(keeper::encode(message)); }

std::vector<int> KeeperProcess::descriptors() const {
  std::vector<int> numbers;
  for (const process::UniqueFd& fd : descriptors_) numbers.push_back(fd.get());
  return numbers;
}

void KeeperProcess::on_bytes(std::string_view bytes, std::vector<process::UniqueFd> descriptors) {
  for (process::UniqueFd& fd : descriptors) descriptors_.push_back(std::move(fd));
  reader_.append(bytes);
  for (;;) {
    auto frame = reader_.next();
    if (!frame) return stream_->close(frame.error().message);
    if (!frame.value()) return;
    on_frame(std::move(*frame.value()));
  }
}

void KeeperProcess::on_frame(Frame frame) {
  if (frame.kind == FrameKind::kChunk) {
    if (frame.bytes.size() < keeper::kOutputHeaderBytes) return stream_->close("output without a header");
    std::uint32_t generation = 0;
    std::uint32_t rank = 0;
    std::memcpy(&generation, frame.bytes.data(), sizeof generation);
    std::memcpy(&rank, frame.bytes.data() + sizeof generation, sizeof rank);
    Output output;
    output.generation = ntohl(generation);
    output.rank = static_cast<Rank>(ntohl(rank));
    output.bytes = std::move(frame.bytes);
    output.bytes.erase(0, keeper::kOutputHeaderBytes);
    return handlers_.on_output(std::move(output));
  }
  auto message = keeper::decode_from_keeper(frame.bytes);
  if (!message) return stream_->close(message.error().message);
  handlers_.on_message(std::move(message).value());
}

void KeeperProcess::on_stream_closed(std::string reason) {
  close_reason_ = std::move(reason);
  wait_for_end();
}

void KeeperProcess::wait_for_end() {
  pidfd_.async_wait(boost::asio::posix::stream_descriptor::wait_read, [this](const boost::system::error_code& error) {
    if (!error) reap();
  });
}

void KeeperProcess::reap() {
  const auto status = process::wait_exit(pidfd_.native_handle());
  const int signal = status && status.value() ? status.value()->signal : 0;
  const std::string how = status && status.value() ? process::describe(*status.value()) : close_reason_;
  boost::system::error_code ignored;
  pidfd_.close(ignored);
  handlers_.on_closed(signal, signal != 0 ? std::string() : how);
}

}  // namespace sgd::agent
