#include "launcher/warm/warm_server.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include "launcher/process/setting.hpp"
#include "launcher/process/unix_socket.hpp"
#include "launcher/warm/memory_of.hpp"
#include "launcher/warm/setting_match.hpp"

namespace sgd::warm {
namespace {

constexpr std::size_t kDescriptorsMax = 4;

}  // namespace

std::string socket_in(const std::string& base) {
  return base + "/warm.sock";
}

WarmServer::WarmServer(std::string program)
    : program_(std::move(program)), signals_(io_, SIGINT, SIGTERM, SIGHUP), idle_(io_) {}

Status WarmServer::listen(const std::string& base) {
  lock_.reset(::open((base + "/warm.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock_) return system_error("cannot open " + base + "/warm.lock");
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) return Error{"a warm server of this user runs already", EADDRINUSE};
  socket_ = socket_in(base);
  (void)::unlink(socket_.c_str());  // Ignoring: one that a dead server has left, or none.
  auto listener = process::listen_unix(socket_, {}, process::kBacklog, process::Brings::kDescriptors);
  if (!listener) return listener.error();
  accept_loop_ = std::make_unique<process::AcceptLoop>(
      io_, std::move(listener).value(),
      process::AcceptLoop::Handlers{[this](process::UniqueFd socket) { on_client(std::move(socket)); }});
  return {};
}

void WarmServer::run() {
  (void)std::signal(SIGPIPE, SIG_IGN);
  signals_.async_wait([this](const boost::system::error_code& error, int) {
    if (!error) io_.stop();
  });
  rest_idle();
  io_.run();
  (void)::unlink(socket_.c_str());  // Before the lock goes with us: the next one's is another.
  slots_.clear();
}

/// A run that works counts as somebody who wants something, and so does an interpreter that is on its way.
void WarmServer::rest_idle() {
  idle_.expires_after(idle_time_);
  idle_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    const bool is_at_work = std::any_of(slots_.begin(), slots_.end(), [](const auto& slot) {
      return slot->keeper && slot->keeper->state() != HeldKeeper::State::kReady;
    });
    if (!is_at_work) return io_.stop();
    rest_idle();
  });
}

// Clients -----------------------------------------------------------------------------------------

void WarmServer::on_client(process::UniqueFd socket) {
  const auto peer = process::peer_credentials(socket.get());
  if (!peer || peer.value().uid != ::geteuid() || clients_.size() >= kClientsMax) return;
  const ClientId id = next_client_++;
  Client& client = clients_[id];
  client.pid = peer.value().pid;
  client.stream = std::make_shared<agent::LocalStream>(io_, std::move(socket));
  client.reader.limit(kJsonFrameBytesMax);
  client.stream->start(
      [this, id](std::string_view bytes, std::vector<process::UniqueFd> fds) { on_bytes(id, bytes, std::move(fds)); },
      [this, id](const std::string&) { on_client_gone(id); });
}

/// Who is gone starts one itself: a keeper that has not answered would hold its standard streams.
void WarmServer::on_client_gone(ClientId id) {
  clients_.erase(id);
  for (const auto& slot : slots_)
    if (slot->taker == id && slot->keeper && slot->keeper->state() == HeldKeeper::State::kAsked) slot->keeper->kill();
}

void WarmServer::on_bytes(ClientId id, std::string_view bytes, std::vector<process::UniqueFd> descriptors) {
  Client& client = clients_.at(id);
  for (process::UniqueFd& fd : descriptors) client.descriptors.push_back(std::move(fd));
  if (client.descriptors.size() > kDescriptorsMax) return client.stream->close("it sends too many descriptors");
  client.reader.append(bytes);
  for (;;) {
    const auto frame = client.reader.next();
    if (frame && !frame.value()) return;
    const auto message = frame ? decode_to_server(frame.value()->bytes) : Result<ToServer>(frame.error());
    if (!message) return client.stream->close(message.error().message);
    std::visit([this, id](const auto& body) { handle(id, body); }, message.value());
  }
}

void WarmServer::answer(ClientId id, const FromServer& message) {
  const auto client = clients_.find(id);
  if (client != clients_.end()) client->second.stream->send(encode(message));
}

std::string WarmServer::difference(ClientId peer, pid_t pid) const {
  const auto theirs = process::inherited_from(clients_.at(peer).pid);
  const auto ours = process::inherited_from(pid);
  if (!theirs || !ours) return "what it hands down cannot be looked at";
  for (const auto& [name, value] : ours.value()) {
    const auto found = theirs.value().find(name);
    if (found == theirs.value().end() || found->second != value) return name + " differs from where it was started";
  }
  return "";
}

WarmServer::Choice WarmServer::choose(ClientId id, const Setting& wanted) const {
  Refused refused{"none is held", false};
  std::vector<Slot*> by_fit;
  for (const auto& slot : slots_) by_fit.push_back(slot.get());
  std::stable_partition(by_fit.begin(), by_fit.end(),
                        [&wanted](const Slot* slot) { return is_of_same_script(slot->setting, wanted); });
  for (Slot* slot : by_fit) {
    if (const auto differs = mismatch(slot->setting, wanted)) {
      if (!refused.is_near) refused = {differs->reason, differs->is_near};
      continue;
    }
    const std::string state = state_of(*slot);
    if (state == "ready") {
      const std::string differs = difference(id, slot->keeper->pid());
      return differs.empty() ? Choice{slot, {}} : Choice{nullptr, {differs, true}};
    }
    refused = {state == "starting" ? "it is not ready yet"
               : state == "failed" ? slot->failure
                                   : "another run has it; the next one is made when that has ended",
               true};
  }
  return {nullptr, refused};
}

void WarmServer::handle(ClientId id, const Seek& seek) {
  rest_idle();
  const Choice choice = choose(id, seek.setting);
  answer(id, choice.slot != nullptr ? FromServer(Found{}) : FromServer(choice.refused));
}

void WarmServer::handle(ClientId id, const Take& take) {
  rest_idle();
  Client& client = clients_.at(id);
  if (client.descriptors.size() != kDescriptorsMax) return answer(id, Refused{"it has sent too few descriptors", true});
  const Choice choice = choose(id, take.setting);
  if (choice.slot == nullptr) return answer(id, choice.refused);
  choice.slot->taker = id;
  choice.slot->keeper->adopt(take.setting, std::exchange(client.descriptors, {}));
}

void WarmServer::handle(ClientId id, const Keep& keep) {
  if (keep.idle_s > 0) idle_time_ = from_seconds(keep.idle_s);
  rest_idle();
  const std::string differs = difference(id, ::getpid());
  if (!differs.empty()) return answer(id, Refused{differs + "; end the server there (sgd-launch warm --stop)", true});
  const auto same = std::find_if(slots_.begin(), slots_.end(), [&](const auto& slot) {
    return slot->name == keep.name && !mismatch(slot->setting, keep.setting);
  });
  if (same == slots_.end() && slots_.size() >= kSlotsMax)
    return answer(id, Refused{fmt::format("{} interpreters are held already", kSlotsMax), true});
  Slot& slot = same == slots_.end() ? *slots_.emplace_back(std::make_unique<Slot>()) : **same;
  slot.setting = keep.setting;
  slot.name = keep.name;
  if (!slot.keeper) start(slot);
  answer(id, held());
}

void WarmServer::handle(ClientId id, const Look&) {
  answer(id, held());
}

void WarmServer::handle(ClientId id, const End&) {
  answer(id, held());
  boost::asio::post(io_, [this] { io_.stop(); });
}

// Slots -------------------------------------------------------------------------------------------

void WarmServer::start(Slot& slot) {
  slot.rest.reset();
  slot.failure.clear();
  HeldKeeper::Handlers handlers;
  handlers.on_ready = [this, &slot] {
    slot.start_s = slot.keeper->start_s();
    rest_idle();
  };
  handlers.on_answer = [this, &slot](const std::string& reason) { on_answer(slot, reason); };
  handlers.on_ended = [this, &slot](const std::string& reason) { on_ended(slot, reason); };
  slot.keeper = std::make_unique<HeldKeeper>(io_, std::move(handlers));
  const Status started = slot.keeper->start(program_, slot.setting);
  if (started) return;
  slot.failure = started.error().message;
  slot.keeper.reset();
}

void WarmServer::start_later(Slot& slot) {
  slot.rest = std::make_unique<boost::asio::steady_timer>(io_, kRest);
  slot.rest->async_wait([this, &slot](const boost::system::error_code& error) {
    if (!error) start(slot);
  });
}

void WarmServer::on_answer(Slot& slot, const std::string& reason) {
  if (reason.empty()) {
    ++slot.runs;
    return answer(slot.taker, Taken{slot.keeper->pid()});
  }
  answer(slot.taker, Refused{reason, true});
}

/// Of one that a run has taken, the run has ended: the next one begins. One that has looked and did not fit any more is
/// replaced, too; one that could not even be prepared is not.
void WarmServer::on_ended(Slot& slot, const std::string& reason) {
  const bool was_ready = slot.keeper->start_s() > 0;
  slot.keeper.reset();
  rest_idle();
  if (reason.empty()) return start(slot);
  if (was_ready) return start_later(slot);
  slot.failure = reason;
}

std::string WarmServer::state_of(const Slot& slot) {
  if (!slot.keeper) return slot.rest ? "resting" : "failed";
  switch (slot.keeper->state()) {
    case HeldKeeper::State::kStarting:
      return "starting";
    case HeldKeeper::State::kReady:
      return "ready";
    default:
      return "resting";
  }
}

Held WarmServer::held() const {
  Held held;
  held.pid = ::getpid();
  held.idle_s = to_seconds(idle_time_);
  for (const auto& slot : slots_) {
    Spare spare;
    spare.name = slot->name;
    spare.state = state_of(*slot);
    spare.reason = slot->failure;
    spare.runs = slot->runs;
    spare.start_s = slot->start_s;
    if (slot->keeper) spare.pid = slot->keeper->pid();
    if (spare.state == "ready") spare.bytes = memory_of_tree(spare.pid);
    held.spares.push_back(std::move(spare));
  }
  return held;
}

}  // namespace sgd::warm
