#include "launcher/callbacks/exec_process.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "launcher/process/pidfd.hpp"
#include "launcher/process/spawn.hpp"
#include "launcher/process/unix_socket.hpp"

namespace sgd::callbacks {
namespace {

/// A name through one of our descriptors, as another process may use it.
std::string for_another_process(const std::string& folder) {
  static const std::string kSelf = "/proc/self/";
  return folder.starts_with(kSelf) ? fmt::format("/proc/{}/{}", ::getpid(), folder.substr(kSelf.size())) : folder;
}

}  // namespace

ExecProcess::ExecProcess(boost::asio::io_context& io, Duration timeout, Warn warn)
    : warn_(std::move(warn)), timeout_(timeout), socket_(io), pidfd_(io), limit_(io) {}

ExecProcess::~ExecProcess() {
  *is_here_ = false;
}

Status ExecProcess::start(const std::string& program, const std::string& run_dir,
                          const std::vector<std::string>& words) {
  auto pair = process::socket_pair(SOCK_SEQPACKET);
  if (!pair) return pair.error();
  process::SpawnOptions options;
  options.argv = {program, "callback", for_another_process(run_dir)};
  options.argv.insert(options.argv.end(), words.begin(), words.end());
  options.control_fd = pair.value().second.get();
  options.group = process::ChildGroup::kOwnSession;
  options.dies_with_us = false;  // It outlives us long enough to end what it has started.
  auto child = process::spawn(options);
  if (!child) return child.error();
  if (!process::set_nonblocking(pair.value().first.get())) return system_error("cannot set up the guard's socket");
  socket_.assign(pair.value().first.release());
  pidfd_.assign(child.value().pidfd.release());
  is_gone_ = false;
  read();
  wait_for_end();
  return {};
}

void ExecProcess::send(char byte) {
  if (!socket_.is_open()) return;
  // Ignoring: a full socket has nudges enough, and the end is said by closing, too.
  (void)::send(socket_.native_handle(), &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void ExecProcess::wake() {
  send('n');
}

void ExecProcess::end(std::function<void()> done) {
  if (is_gone_) return done();
  done_ = std::move(done);
  send('e');
  limit_.expires_after(timeout_ + kGuardLimit);
  limit_.async_wait([this, is_here = is_here_](const boost::system::error_code& error) {
    if (error || !*is_here || is_gone_) return;
    warn_(fmt::format("the guard of a callback does not end in {}, and is killed",
                      format_duration(timeout_ + kGuardLimit)));
    (void)process::pidfd_send_signal(pidfd_.native_handle(), SIGKILL);  // Ignoring: it may have ended.
  });
}

void ExecProcess::give_up() {
  boost::system::error_code ignored;
  socket_.close(ignored);
  if (const auto done = std::exchange(done_, nullptr)) done();
}

void ExecProcess::read() {
  socket_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [this, is_here = is_here_](const boost::system::error_code& error) {
                       if (!error && *is_here) on_message();
                     });
}

void ExecProcess::on_message() {
  std::array<char, 8192> text{};
  for (;;) {
    const ssize_t count = ::recv(socket_.native_handle(), text.data(), text.size(), MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return read();
    if (count <= 0) return;  // Its end is told by the pidfd.
    warn_(std::string(text.data(), static_cast<std::size_t>(count)));
  }
}

void ExecProcess::wait_for_end() {
  pidfd_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                    [this, is_here = is_here_](const boost::system::error_code& error) {
                      if (!error && *is_here) finish();
                    });
}

void ExecProcess::finish() {
  on_message();  // Its last words.
  const auto status = process::wait_exit(pidfd_.native_handle());
  (void)status;  // Ignoring: what happened to its program it has said.
  is_gone_ = true;
  limit_.cancel();
  boost::system::error_code ignored;
  pidfd_.close(ignored);
  socket_.close(ignored);
  if (const auto done = std::exchange(done_, nullptr)) done();
}

}  // namespace sgd::callbacks
