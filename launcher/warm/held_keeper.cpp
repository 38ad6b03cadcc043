#include "launcher/warm/held_keeper.hpp"

#include <sys/socket.h>

#include <csignal>
#include <utility>

#include "launcher/process/clock.hpp"
#include "launcher/process/pidfd.hpp"
#include "launcher/process/spawn.hpp"
#include "launcher/process/unix_socket.hpp"

namespace sgd::warm {

HeldKeeper::HeldKeeper(boost::asio::io_context& io, Handlers handlers)
    : io_(io), handlers_(std::move(handlers)), pidfd_(io) {}

/// One that nobody has taken ends with its link.
HeldKeeper::~HeldKeeper() {
  handlers_ = {};
  if (stream_) stream_->close("let go");
}

Status HeldKeeper::start(const std::string& program, const Setting& setting) {
  auto ends = process::socket_pair(SOCK_STREAM);
  if (!ends) return ends.error();
  process::SpawnOptions options;
  options.argv = {program, "spare-keeper"};
  options.control_fd = ends.value().second.get();
  options.group = process::ChildGroup::kOwnSession;
  options.dies_with_us = false;  // Its run outlives us.
  begin_ = process::monotonic_now();
  auto child = process::spawn(options);
  if (!child) return child.error();
  pid_ = child.value().pid;
  pidfd_.assign(child.value().pidfd.release());
  stream_ = std::make_shared<agent::LocalStream>(io_, std::move(ends.value().first));
  stream_->start([this](std::string_view bytes, const auto&) { on_bytes(bytes); }, [](const std::string&) {});
  stream_->send(encode(ToSpare(Prepare{setting})));
  wait_for_end();
  return {};
}

void HeldKeeper::adopt(const Setting& setting, std::vector<process::UniqueFd> descriptors) {
  state_ = State::kAsked;
  std::vector<process::SharedFd> shared;
  for (process::UniqueFd& fd : descriptors) shared.push_back(std::make_shared<const process::UniqueFd>(std::move(fd)));
  stream_->send(encode(ToSpare(Adopt{setting})), std::move(shared));
}

void HeldKeeper::kill() {
  if (pidfd_.is_open())
    (void)process::pidfd_send_signal(pidfd_.native_handle(), SIGKILL);  // Ignoring: it may have ended.
}

void HeldKeeper::on_bytes(std::string_view bytes) {
  reader_.append(bytes);
  for (;;) {
    const auto frame = reader_.next();
    if (frame && !frame.value()) return;
    const auto message = frame ? decode_from_spare(frame.value()->bytes) : Result<FromSpare>(frame.error());
    if (!message) return on_ready(message.error().message);
    on_ready(std::get<Ready>(message.value()).reason);
  }
}

void HeldKeeper::on_ready(const std::string& reason) {
  const State before = state_;
  if (before == State::kUseless || before == State::kTaken) return;
  reason_ = reason;
  state_ = !reason.empty() ? State::kUseless : before == State::kAsked ? State::kTaken : State::kReady;
  if (before == State::kAsked) {
    if (handlers_.on_answer) handlers_.on_answer(reason);
  } else if (reason.empty()) {
    start_s_ = to_seconds(process::monotonic_now() - begin_);
    if (handlers_.on_ready) handlers_.on_ready();
  }
}

void HeldKeeper::wait_for_end() {
  pidfd_.async_wait(boost::asio::posix::stream_descriptor::wait_read, [this](const boost::system::error_code& error) {
    if (error) return;
    (void)process::wait_exit(pidfd_.native_handle());  // Ignoring how it has ended: its run knows.
    boost::system::error_code ignored;
    pidfd_.close(ignored);
    if (state_ == State::kAsked && handlers_.on_answer) handlers_.on_answer("it has ended");
    const bool was_of_use = state_ == State::kTaken;
    state_ = State::kUseless;
    const auto on_ended = handlers_.on_ended;
    if (on_ended) on_ended(was_of_use ? "" : reason_.empty() ? "it has ended" : reason_);
  });
}

}  // namespace sgd::warm
