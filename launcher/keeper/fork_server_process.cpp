#include "launcher/keeper/fork_server_process.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "launcher/keeper/tail.hpp"
#include "launcher/process/own_path.hpp"
#include "launcher/process/pidfd.hpp"
#include "launcher/process/spawn.hpp"
#include "launcher/process/unix_socket.hpp"

namespace sgd::keeper {

void set_environment(const Environment& environment, process::SpawnOptions& options) {
  options.env = environment.set;
  options.env_defaults = environment.defaults;
  options.env_appended = environment.appended;
}

Result<process::UniqueFd> ForkServerProcess::open_log(const std::string& path) {
  log_path_ = path;
  const std::string log_path = path.empty() ? "/dev/null" : path;
  const auto place = process::OwnPath::find(log_path, process::OwnPath::Folders::kAreMade);
  if (!place) return Error{"cannot open log file " + log_path + ": " + place.error().message, place.error().code};
  process::UniqueFd log = place.value().open(O_WRONLY | O_APPEND | O_CREAT, 0644);
  if (!log) return system_error("cannot open log file " + log_path);
  struct stat info {};
  if (::fstat(log.get(), &info) == 0) log_begin_ = static_cast<std::size_t>(info.st_size);
  return log;
}

Result<ForkServerProcess> ForkServerProcess::start(const StartForkServer& request, TimePoint now) {
  ForkServerProcess server;
  server.started_at_ = now;
  const auto log = server.open_log(request.log_path);
  if (!log) return log.error();
  auto ends = process::socket_pair(SOCK_SEQPACKET);
  if (!ends) return ends.error();
  process::SpawnOptions options;
  options.argv = request.argv;
  options.workdir = request.workdir;
  set_environment(request.environment, options);
  options.output_fd = log.value().get();
  options.control_fd = ends.value().second.get();
  auto child = process::spawn(options);
  if (!child) return child.error();
  server.pid_ = child.value().pid;
  server.pidfd_ = std::move(child.value().pidfd);
  server.socket_ = std::move(ends.value().first);
  if (!process::set_nonblocking(server.socket_.get())) return system_error("cannot set up the fork server's socket");
  const Status queued = server.enqueue(encode(fork_server::ToForkServer(fork_server::Prepare{request.job})), {});
  if (!queued) {
    server.kill();
    return queued.error();
  }
  server.flush();
  return server;
}

Status ForkServerProcess::prepare_again(const std::string& log_path, const nlohmann::json& job) {
  auto log = open_log(log_path);
  if (!log) return log.error();
  std::vector<process::UniqueFd> descriptors;
  descriptors.push_back(std::move(log).value());
  const Status queued = enqueue(encode(fork_server::ToForkServer(fork_server::Prepare{job})), std::move(descriptors));
  if (queued) flush();
  return queued;
}

Status ForkServerProcess::enqueue(std::string message, std::vector<process::UniqueFd> pipes) {
  if (message.size() > kForkMessageBytesMax) return Error{"the message to the fork server is too long", EMSGSIZE};
  if (queue_.size() >= kForkRequestsMax) return Error{"too many requests wait for the fork server", EAGAIN};
  queue_.push_back({std::move(message), std::move(pipes)});
  return {};
}

bool ForkServerProcess::takes(const fork_server::Fork& fork) {
  return encode(fork_server::ToForkServer(fork)).size() <= kForkMessageBytesMax;
}

Status ForkServerProcess::request_fork(const fork_server::Fork& fork, std::vector<process::UniqueFd> pipes) {
  if (!socket_) return Error{"the fork server has closed its link", EPIPE};
  const Status queued = enqueue(encode(fork_server::ToForkServer(fork)), std::move(pipes));
  if (queued) flush();
  return queued;
}

void ForkServerProcess::flush() {
  while (wants_write()) {
    const Request& request = queue_.front();
    std::vector<int> descriptors;
    for (const process::UniqueFd& pipe : request.pipes) descriptors.push_back(pipe.get());
    auto sent = process::send_with_descriptors(socket_.get(), request.message, descriptors);
    if (!sent && sent.error().code == EAGAIN) return;
    if (!sent)
      socket_.reset();  // It is ending; its pidfd tells the rest.
    else
      queue_.pop_front();
  }
}

Status ForkServerProcess::receive(std::vector<Reply>& out) {
  std::vector<char> buffer(kForkMessageBytesMax);
  while (socket_) {
    auto received = process::receive_with_descriptors(socket_.get(), buffer);
    if (!received && received.error().code == EAGAIN) return {};
    if (!received || received.value().bytes == 0) {
      socket_.reset();
      return {};
    }
    if (received.value().truncated) return Error{"it sent a message of more than 128 KiB"};
    auto message = fork_server::decode_from_fork_server({buffer.data(), received.value().bytes});
    if (!message) return Error{"it sent a bad message: " + message.error().message};
    Reply reply{std::move(message).value(), {}};
    auto& descriptors = received.value().descriptors;
    if (!descriptors.empty()) reply.pidfd = std::move(descriptors.front());
    out.push_back(std::move(reply));
  }
  return {};
}

void ForkServerProcess::kill() {
  (void)process::pidfd_send_signal(pidfd_.get(), SIGKILL);  // Ignoring: it may have ended.
}

std::string ForkServerProcess::explain(const std::string& what) const {
  std::string text = what;
  if (log_path_.empty()) return text;
  for (const std::string& line : file_tail(log_path_, log_begin_)) text += "\n" + line;
  return text;
}

}  // namespace sgd::keeper
