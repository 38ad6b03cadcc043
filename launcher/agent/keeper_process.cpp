#include "launcher/agent/keeper_process.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "launcher/process/cgroup_leaf.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/process/foreign_fds.hpp"
#include "launcher/process/pidfd.hpp"
#include "launcher/process/process_tree.hpp"
#include "launcher/process/spawn.hpp"
#include "launcher/process/unix_socket.hpp"

namespace sgd::agent {
namespace {

constexpr std::size_t kDescriptors = 2;  ///< The shared region and the memory checkpoint.
constexpr const char* kErrorPrefix = "sgd-launch: error: ";
constexpr std::size_t kShownBytes = 500;

process::SpawnOptions keeper_options(std::vector<std::string> argv, int control_fd,
                                     const std::optional<process::Account>& account) {
  process::SpawnOptions options;
  options.argv = std::move(argv);
  options.account = account;
  options.control_fd = control_fd;
  options.group = process::ChildGroup::kOwnSession;
  options.dies_with_us = false;  // It outlives us long enough to end what the run has started, or to be taken over.
  return options;
}

}  // namespace

KeeperProcess::KeeperProcess(boost::asio::io_context& io, Handlers handlers, std::optional<ReattachOptions> reattach)
    : handlers_(std::move(handlers)),
      reattach_(std::move(reattach)),
      io_(io),
      pidfd_(io),
      limit_(io),
      clear_timer_(io),
      look_timer_(io) {}

Status KeeperProcess::start(const std::string& program, const std::optional<process::Account>& account, int input) {
  if (account) user_ = account->uid;
  if (reattach_) {
    Status started = start_listening(program, account);
    if (!started && pid_ == 0) (void)::unlink(reattach_->socket.c_str());  // Ignoring: it may not have come so far.
    return started;
  }
  auto pair = process::socket_pair(SOCK_STREAM);
  if (!pair) return pair.error();
  process::SpawnOptions options = keeper_options({program, "keeper"}, pair.value().second.get(), account);
  options.input_fd = input;
  auto child = process::spawn(options);
  if (!child) return child.error();
  pid_ = child.value().pid;
  pidfd_.assign(child.value().pidfd.release());
  look_again();
  connect(std::move(pair.value().first));
  return {};
}

Status KeeperProcess::adopt(SpareKeeper spare) {
  auto pidfd = process::pidfd_open(spare.pid);
  if (!pidfd) return pidfd.error();
  // It will be killed by this number some time, so it has to be one of our own user's.
  const auto user = process::user_of_process(spare.pid);
  if (!user) return user.error();
  if (user.value() != ::geteuid()) return Error{fmt::format("pid {} is another user's", spare.pid)};
  pid_ = spare.pid;
  mark_ = std::move(spare.mark);
  pidfd_.assign(pidfd.value().release());
  look_again();
  connect(std::move(spare.link));
  return {};
}

/// The socket listens before there is a keeper, and only the keeper has it: whoever can connect to it, connects to
/// one that is there or about to be, and whoever cannot may start one.
Status KeeperProcess::start_listening(const std::string& program, const std::optional<process::Account>& account) {
  (void)::unlink(reattach_->socket.c_str());  // Ignoring: mostly there is none.
  auto listener = process::listen_unix(reattach_->socket);
  if (!listener) return listener.error();
  process::SpawnOptions options =
      keeper_options({program, "keeper", format_duration(reattach_->wait)}, listener.value().get(), account);
  options.inherits_environment = reattach_->inherits_environment;  // Other people's jobs have nothing of the daemon's.
  const std::size_t equals = reattach_->mark.find('=');
  options.env[reattach_->mark.substr(0, equals)] = reattach_->mark.substr(equals + 1);
  auto words = process::KeptStderr::make();
  if (!words) return words.error();
  words_ = std::move(words).value();
  options.output_fd = words_->fd();  // Nothing of ours: the run's processes can take descriptors of their keeper's.
  const auto leaf = process::CgroupLeaf::make(reattach_->cgroup);
  if (leaf) options.cgroup = leaf->path();
  auto child = process::spawn(options);
  if (!child && !options.cgroup.empty()) {  // Where the group may be made, and nobody moved there.
    options.cgroup.clear();
    if (leaf) leaf->remove();
    child = process::spawn(options);
  }
  if (!child) return child.error();
  pid_ = child.value().pid;
  is_our_child_ = true;
  pidfd_.assign(child.value().pidfd.release());
  look_again();
  auto socket = process::connect_unix(reattach_->socket, kConnectLimit);
  if (!socket) return socket.error();
  connect(std::move(socket).value());
  return {};
}

bool KeeperProcess::resume(const std::optional<storage::FileOwner>& owner) {
  if (owner) user_ = owner->uid;
  auto socket = process::connect_unix(reattach_->socket, kConnectLimit);
  if (!socket) return false;
  connect(std::move(socket).value());
  return true;
}

KeptKeeper KeeperProcess::kept() const {
  KeptKeeper kept{reattach_->number, was_started_, received_, sent_.sent()};
  for (const std::string& frame : sent_.kept()) kept.kept.push_back(frame.substr(kFrameHeaderBytes));
  return kept;
}

void KeeperProcess::restore(const KeptKeeper& kept) {
  was_started_ = kept.was_started;
  received_ = kept.received;
  std::deque<std::string> frames;
  for (const std::string& text : kept.kept) frames.push_back(encode_frame(FrameKind::kJson, text));
  sent_.restore(kept.sent, std::move(frames));
}

void KeeperProcess::connect(process::UniqueFd socket) {
  stream_ = std::make_shared<LocalStream>(io_, std::move(socket));
  stream_->start(
      [this](std::string_view bytes, std::vector<process::UniqueFd> fds) { on_bytes(bytes, std::move(fds)); },
      [this](std::string reason) { on_stream_closed(std::move(reason)); });
  if (!reattach_) return;
  stream_->send(keeper::encode(keeper::ToKeeper(keeper::Attach{received_})));
  told_received_ = received_;
  limit_.after(attach_limit, [this] { stream_->close("it does not answer"); });
}

void KeeperProcess::send(const keeper::ToKeeper& message) {
  const bool is_close = std::holds_alternative<keeper::Close>(message);
  is_closing_ |= is_close;
  // Whoever is told again has no more time for it.
  const bool is_end = is_close || std::holds_alternative<keeper::Clear>(message);
  if (is_end && !std::exchange(awaits_done_, true)) {
    told_to_end_at_ = process::monotonic_now();
    expect_done(clear_limit, false);
  }
  const bool is_of_ranks =
      std::holds_alternative<keeper::Signal>(message) || std::holds_alternative<keeper::SignalAll>(message);
  if (is_end || is_of_ranks || std::holds_alternative<keeper::AgentEnds>(message)) make_go_on();
  std::string frame = keeper::encode(message);
  if (reattach_ && keeper::is_counted(message)) sent_.push(frame);
  if (!reattach_ || is_attached_) stream_->send(std::move(frame));
}

/// Once more for a moment: where this process stood still itself, the answer may be in the socket.
void KeeperProcess::expect_done(Duration limit, bool is_last) {
  constexpr Duration kOnceMore = std::chrono::seconds(1);
  clear_timer_.after(limit, [this, is_last] {
    if (is_last)
      kill();
    else
      expect_done(kOnceMore, true);
  });
}

/// The end of ranks may have crossed the order to close, which is still to be answered then.
void KeeperProcess::note_done(const keeper::FromKeeper& message) {
  const auto* cleared = std::get_if<keeper::Cleared>(&message);
  if (cleared == nullptr || (is_closing_ && cleared->generation != 0)) return;
  awaits_done_ = false;
  clear_timer_.cancel();
}

void KeeperProcess::look_again() {
  look_timer_.after(look_interval, [this] { look(); });
}

/// Its ranks are of its own user, and name it as their parent: one line of theirs stops it, and with it their own ends
/// would never be heard, nor an order to end them.
void KeeperProcess::look() {
  look_again();
  const auto entry = process::read_process(pid_);
  if (!entry || !entry->stopped) return;
  const auto tell = [this](const char* what) {
    if (handlers_.on_stopped) handlers_.on_stopped(what);
  };
  if (awaits_done_ && process::monotonic_now() - *told_to_end_at_ >= stopped_limit) {
    tell("its keeper is stopped by a signal again and again, and is killed");
    return kill();
  }
  make_go_on();
  if (!std::exchange(was_stopped_, true))
    tell("its keeper was stopped by a signal (SIGSTOP), as its ranks could do, and is made to go on");
}

/// Nothing to one that is not stopped.
void KeeperProcess::make_go_on() {
  if (pidfd_.is_open())
    (void)process::pidfd_send_signal(pidfd_.native_handle(), SIGCONT);  // Ignoring: it may have ended.
}

/// What is below it ends with it, or is found by its mark.
void KeeperProcess::kill() {
  if (pidfd_.is_open())
    (void)process::pidfd_send_signal(pidfd_.native_handle(), SIGKILL);  // Ignoring: it may have ended.
}

bool KeeperProcess::ends_by(TimePoint until) {
  if (!pidfd_.is_open()) return true;
  const Duration left = std::max(Duration::zero(), until - process::monotonic_now());
  pollfd ended{pidfd_.native_handle(), POLLIN, 0};
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(left).count();
  if (::poll(&ended, 1, static_cast<int>(milliseconds)) == 1) return true;
  kill();
  return false;
}

void KeeperProcess::note_message(const keeper::FromKeeper& message) {
  received_ += keeper::is_counted(message) ? 1 : 0;
  note_done(message);
}

void KeeperProcess::on_bytes(std::string_view bytes, std::vector<process::UniqueFd> descriptors) {
  const bool is_memory = std::all_of(descriptors.begin(), descriptors.end(),
                                     [](const process::UniqueFd& fd) { return process::is_memory(fd.get()); });
  if (!is_memory || descriptors_.size() + descriptors.size() > kDescriptors) {
    process::close_aside(std::move(descriptors));
    return stream_->close("it sends other descriptors than it has to");
  }
  for (process::UniqueFd& fd : descriptors)
    descriptors_.push_back(std::make_shared<const process::UniqueFd>(std::move(fd)));
  reader_.append(bytes);
  for (;;) {
    auto frame = reader_.next();
    if (!frame) return stream_->close(frame.error().message);
    if (!frame.value()) break;
    on_frame(std::move(*frame.value()));
  }
  if (!is_attached_ || told_received_ == received_) return;
  told_received_ = received_;
  send(keeper::Received{received_});
}

void KeeperProcess::on_frame(Frame frame) {
  if (frame.kind == FrameKind::kChunk) {
    const auto head = keeper::decode_output_head(frame.bytes);
    if (!head) return stream_->close(head.error().message);
    Output output;
    output.head = head.value();
    output.chunk = std::move(frame.bytes);
    return handlers_.on_output(std::move(output));
  }
  auto message = keeper::decode_from_keeper(frame.bytes);
  if (!message) return stream_->close(message.error().message);
  if (reattach_) {
    Status known;
    if (const auto* received = std::get_if<keeper::Received>(&message.value())) {
      known = sent_.acknowledge(received->count);
      if (known) return;
    } else if (const auto* started = std::get_if<keeper::Started>(&message.value())) {
      known = on_started(*started);
      if (known && std::exchange(was_started_, true)) return;
    }
    if (!known) return stream_->close(known.error().message);
    note_message(message.value());
  } else {
    note_done(message.value());
  }
  handlers_.on_message(std::move(message).value());
}

Status KeeperProcess::on_started(const keeper::Started& started) {
  if (const Status known = sent_.acknowledge(started.received); !known) return known;
  limit_.cancel();
  if (!pidfd_.is_open()) {
    auto pidfd = process::pidfd_open(started.pid);
    if (!pidfd) return pidfd.error();
    // It will be killed by this number some time, so it has to be one of the run's own.
    const auto user = process::user_of_process(started.pid);
    if (!user) return user.error();
    if (user_ && user.value() != *user_)
      return Error{fmt::format("it says that it is pid {}, which is another user's", started.pid)};
    pidfd_.assign(pidfd.value().release());
    pid_ = started.pid;
    look_again();
    if (auto words = process::KeptStderr::of(pid_)) words_ = std::move(words).value();
  }
  is_attached_ = true;
  for (const std::string& frame : sent_.kept()) stream_->send(frame);
  if (handlers_.on_attached) handlers_.on_attached();
  return {};
}

void KeeperProcess::on_stream_closed(std::string reason) {
  close_reason_ = std::move(reason);
  is_attached_ = false;
  limit_.cancel();
  if (!pidfd_.is_open()) return handlers_.on_closed(0, close_reason_);
  wait_for_end();
}

/// A keeper that would wait for another agent while this one is here is of no use to anybody.
void KeeperProcess::wait_for_end() {
  if (reattach_) {
    limit_.after(kEndLimit, [this] { kill(); });
  }
  pidfd_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                    [this, alive = std::weak_ptr(alive_)](const boost::system::error_code& error) {
                      if (!error && !alive.expired()) reap();
                    });
}

void KeeperProcess::reap() {
  limit_.cancel();
  awaits_done_ = false;
  clear_timer_.cancel();
  look_timer_.cancel();
  const auto status = process::wait_exit(pidfd_.native_handle());
  const int signal = status && status.value() ? status.value()->signal : 0;
  const std::string how = status && status.value() ? process::describe(*status.value()) : close_reason_;
  boost::system::error_code ignored;
  pidfd_.close(ignored);
  std::string reason = signal != 0 ? std::string() : how;
  const std::string said = words_ ? words_->text() : std::string();
  if (!said.empty() && handlers_.on_words) handlers_.on_words(said);
  if (const std::string line = process::last_line(said, kErrorPrefix, kShownBytes); !line.empty())
    reason += (reason.empty() ? "" : ": ") + line;
  handlers_.on_closed(signal, reason);
}

}  // namespace sgd::agent
