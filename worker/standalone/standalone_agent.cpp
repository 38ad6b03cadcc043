#include "worker/standalone/standalone_agent.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/checkpoint/scan.hpp"
#include "common/exit_codes.hpp"
#include "common/json/lenient.hpp"
#include "common/messages/codec.hpp"
#include "worker/link/socket.hpp"

namespace sgd::worker {
namespace {

constexpr int kInterrupted = 130;

/// A stream socket that listens at `path`.
Result<UniqueFd> listen_at(const std::string& path) {
  UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return Error{path + " is too long for a socket"};
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  if (listener.get() < 0 || ::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener.get(), 1) != 0)
    return system_error("cannot listen at " + path);
  return listener;
}

UniqueFd watch_signals() {
  sigset_t ends;
  sigemptyset(&ends);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ends, signal);
  if (::pthread_sigmask(SIG_BLOCK, &ends, nullptr) != 0) return UniqueFd();
  return UniqueFd(::signalfd(-1, &ends, SFD_CLOEXEC));
}

void say(const std::string& text) {
  std::fprintf(stderr, "sgd-worker: %s\n", text.c_str());
}

}  // namespace

Result<std::unique_ptr<StandaloneAgent>> StandaloneAgent::start(Setup setup) {
  std::unique_ptr<StandaloneAgent> agent(new StandaloneAgent());
  agent->setup_ = std::move(setup);
  const char* temporary = std::getenv("TMPDIR");
  std::string folder = fmt::format("{}/sgd-worker-XXXXXX", temporary != nullptr && *temporary ? temporary : "/tmp");
  if (::mkdtemp(folder.data()) == nullptr) return system_error("cannot make a folder for the link: " + folder);
  agent->folder_ = folder;
  agent->path_ = folder + "/link";
  auto listener = listen_at(agent->path_);
  if (!listener) return listener.error();
  agent->listener_ = std::move(listener).value();
  agent->signals_ = watch_signals();
  agent->wakeup_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  if (agent->signals_.get() < 0 || agent->wakeup_.get() < 0) return system_error("cannot watch signals");
  agent->thread_ = std::thread([raw = agent.get()] { raw->run(); });
  return agent;
}

StandaloneAgent::~StandaloneAgent() {
  if (thread_.joinable()) {
    (void)::eventfd_write(wakeup_.get(), 1);
    thread_.join();
  }
  if (folder_.empty()) return;
  (void)::unlink(path_.c_str());
  (void)::rmdir(folder_.c_str());
}

void StandaloneAgent::run() {
  for (bool is_over = false;;) {
    std::array<pollfd, 3> polled = {pollfd{rank_.get() >= 0 ? rank_.get() : listener_.get(), POLLIN, 0},
                                    pollfd{signals_.get(), POLLIN, 0}, pollfd{is_over ? -1 : wakeup_.get(), POLLIN, 0}};
    // What the rank said last may still be in the socket when it is done.
    const int ready = ::poll(polled.data(), polled.size(), is_over ? 0 : -1);
    if (ready < 0 && errno != EINTR) return;
    if (is_over && (ready <= 0 || polled[0].revents == 0)) return;
    if (ready <= 0) continue;
    if (polled[1].revents != 0) on_signal();
    if (polled[0].revents != 0 && !(rank_.get() >= 0 ? read_rank() : accept_rank())) return;
    if (polled[2].revents != 0) is_over = true;
  }
}

bool StandaloneAgent::accept_rank() {
  rank_ = UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  return rank_.get() >= 0;
}

/// False: the rank has closed its link.
bool StandaloneAgent::read_rank() {
  const Received received = receive(rank_.get(), input_);
  for (std::size_t end = input_.find('\n'); end != std::string::npos; end = input_.find('\n')) {
    const auto message = link::decode_from_worker(std::string_view(input_).substr(0, end));
    if (message)
      handle(message.value());
    else
      say(message.error().message);
    input_.erase(0, end + 1);
  }
  return received.state != Received::State::kEnd;
}

void StandaloneAgent::handle(const link::FromWorker& message) {
  if (std::holds_alternative<link::Hello>(message)) {
    assign();
  } else if (const auto* put = std::get_if<link::ExchangePut>(&message)) {
    answer(link::ExchangeValue{put->key, 0, 1, put->value});
  } else if (const auto* fetch = std::get_if<link::Fetch>(&message)) {
    answer(link::Fetched{fetch->path, "it is not in the folder", true});
  } else if (const auto* report = std::get_if<link::Report>(&message)) {
    nlohmann::ordered_json line = {{"phase", report->key.phase}, {"epoch", report->key.epoch}, {"step", report->step}};
    nlohmann::json metrics = report->metrics;
    codec::infinity_texts_to_null(metrics);
    line.update(nlohmann::ordered_json(metrics));
    std::printf("%s\n", dump_text(line).c_str());
    std::fflush(stdout);
  } else if (const auto* ready = std::get_if<link::Ready>(&message)) {
    if (ready->source != "fresh") say(fmt::format("goes on from step {} ({})", ready->step, ready->path));
  } else if (const auto* saved = std::get_if<link::CheckpointSaved>(&message)) {
    say(fmt::format("saved {}/{} ({} bytes)", setup_.assignment.run_dir, saved->path, saved->bytes));
    remove_old_checkpoints();
  } else if (const auto* lost = std::get_if<link::CheckpointFailed>(&message)) {
    say(fmt::format("the state of step {} is not saved: {}", lost->step, lost->reason));
  } else if (const auto* rejected = std::get_if<link::CheckpointRejected>(&message)) {
    say(fmt::format("{} is left out: {}", rejected->path, rejected->reason));
  } else if (const auto* result = std::get_if<link::ResultMade>(&message)) {
    std::printf("%s\n", dump_text(nlohmann::ordered_json{{"result", result->value}}).c_str());
    std::fflush(stdout);
  }
}

void StandaloneAgent::answer(const link::ToWorker& message) {
  const std::string line = link::encode(message);
  for (std::size_t sent = 0; sent < line.size();) {
    const ssize_t more = ::send(rank_.get(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (more < 0 && errno != EINTR) return;  // The rank is gone, and says why itself.
    if (more > 0) sent += static_cast<std::size_t>(more);
  }
}

/// With the two descriptors that a keeper would give.
void StandaloneAgent::assign() {
  const UniqueFd region(::memfd_create("sgd-shared-region", MFD_CLOEXEC));
  const UniqueFd memory(::memfd_create("sgd-memory-checkpoint", MFD_CLOEXEC));
  const std::array<int, 2> descriptors = {region.get(), memory.get()};
  const std::string line = link::encode(link::ToWorker(setup_.assignment));
  iovec part{const_cast<char*>(line.data()), line.size()};
  std::array<char, CMSG_SPACE(sizeof descriptors)> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof descriptors);
  std::memcpy(CMSG_DATA(head), descriptors.data(), sizeof descriptors);
  // A resolved job fits a socket's buffer (kResolvedBytesMax), so it goes as a whole.
  if (::sendmsg(rank_.get(), &message, MSG_NOSIGNAL) != static_cast<ssize_t>(line.size()))
    say("the assignment cannot be sent");
}

/// The folder is this run's alone: a checkpoint that the rank has gone on from lies in another one. A damaged one
/// counts as none, and stays for whoever looks for the reason.
void StandaloneAgent::remove_old_checkpoints() {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(setup_.assignment.run_dir) / checkpoint::kDirectory;
  const auto found = checkpoint::list_checkpoints(folder.string(), checkpoint::Proof::kSizes);
  if (!found) return say(found.error().message);
  int whole = 0;
  for (const checkpoint::Found& one : found.value()) {
    if (!one.damage.empty() || ++whole <= setup_.checkpoints_kept) continue;
    std::error_code error;
    // At first what makes it one: after an end in the middle of this, nobody takes the rest for a checkpoint.
    fs::remove(fs::path(one.path) / checkpoint::kManifestFile, error);
    if (!error) fs::remove_all(one.path, error);
    if (error) say(fmt::format("cannot remove the old checkpoint {}: {}", one.path, error.message()));
  }
}

void StandaloneAgent::on_signal() {
  signalfd_siginfo info{};
  if (::read(signals_.get(), &info, sizeof info) != sizeof info) return;
  if (++signals_seen_ > 1 || rank_.get() < 0) ::_exit(kInterrupted);
  say(fmt::format("stopping with a checkpoint, at most {}; once more to end at once", format_duration(setup_.grace)));
  answer(link::Stop{to_seconds(setup_.grace), true});
}

}  // namespace sgd::worker
