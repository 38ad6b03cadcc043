#include "worker/link/client.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "common/exit_codes.hpp"
#include "worker/link/stack_signal.hpp"

namespace sgd::worker {
namespace {

constexpr Duration kHeartbeatDefault = std::chrono::milliseconds(500);
constexpr int kBeatsPerTimeout = 4;
constexpr int kNoDescriptor = -1;
/// Between two attempts to connect again.
constexpr Duration kConnectPause = std::chrono::milliseconds(10);

TimePoint now() {
  return std::chrono::steady_clock::now();
}

/// The heartbeat's interval as the resolved job gives it: short enough that a few may be late before the time-out.
Duration heartbeat_interval(const nlohmann::json& config) {
  const auto heartbeat = config.find("heartbeat");
  if (heartbeat == config.end() || !heartbeat->is_object()) return kHeartbeatDefault;
  const auto given = [&heartbeat](const char* key) {
    return parse_duration(heartbeat->value(key, std::string())).value_or(Duration::zero());
  };
  Duration interval = given("interval");
  if (interval <= Duration::zero()) interval = kHeartbeatDefault;
  const Duration longest = given("timeout") / kBeatsPerTimeout;
  return longest > Duration::zero() ? std::min(interval, longest) : interval;
}

/// The agent is gone or talks nonsense: nothing that this process does can count any more.
[[noreturn]] void leave(const char* reason) {
  std::fprintf(stderr, "sgd-worker: %s\n", reason);
  _exit(worker_exit::kEnvironment);
}

UniqueFd take(std::vector<UniqueFd>& descriptors, std::size_t index) {
  return index < descriptors.size() ? std::move(descriptors[index]) : UniqueFd(kNoDescriptor);
}

}  // namespace

Result<std::unique_ptr<LinkClient>> LinkClient::connect(const std::string& path, const std::string& token,
                                                        Duration deadline, Duration agent_wait) {
  Result<UniqueFd> socket = connect_unix(path, std::max(deadline, agent_wait));
  if (!socket) return socket.error();
  std::unique_ptr<LinkClient> client(new LinkClient(std::move(socket).value(), path, token, agent_wait));
  if (client->wake_.get() < 0) return system_error("cannot create an eventfd");
  if (Status sent = client->send(client->hello()); !sent) return sent.error();
  const StackSignalBlock no_stack_signal;  // The thread inherits it: stacks are the training thread's.
  client->thread_ = std::thread([raw = client.get()] { raw->run(); });
  return client;
}

LinkClient::LinkClient(UniqueFd socket, std::string path, std::string token, Duration agent_wait)
    : path_(std::move(path)),
      token_(std::move(token)),
      agent_wait_(agent_wait),
      socket_(std::move(socket)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      heartbeat_interval_ns_(kHeartbeatDefault.count()),
      last_beat_(now()) {}

LinkClient::~LinkClient() {
  finish(Duration::zero());
}

Result<ReceivedAssignment> LinkClient::next_assignment(Duration deadline) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, std::max(deadline, agent_wait_), [this] { return assignment_.has_value(); }))
    return Error{"the agent gave no assignment within " + format_duration(deadline)};
  ReceivedAssignment taken = std::move(*assignment_);
  assignment_.reset();
  taken_ = taken.assignment.generation;
  abort_handler_ = nullptr;
  heartbeat_interval_ns_ = heartbeat_interval(taken.assignment.config).count();
  return taken;
}

Status LinkClient::send(const link::FromWorker& message) {
  const std::string line = link::encode(message);
  if (line.size() > link::kLineBytesMax) return Error{"a line for the agent is longer than 64 KiB"};
  const std::lock_guard lock(mutex_);
  if (returns() && link::is_counted(message)) {
    if (sent_.bytes() + line.size() > kKeptBytesMax)
      return Error{"no agent has taken anything while 32 MiB of messages waited"};
    sent_.push(line);
  }
  if (link_ != Link::kOpen) return {};  // Sent when there is an agent again.
  if (!returns() && outbox_.size() + line.size() > kOutboxBytesMax)
    return Error{"the agent has read nothing while 4 MiB of messages waited"};
  outbox_ += line;
  write_outbox();
  if (!outbox_.empty()) wake();
  return {};
}

bool LinkClient::has_unsent() const {
  const std::lock_guard lock(mutex_);
  return !outbox_.empty() || (link_ != Link::kOpen && !sent_.kept().empty());
}

Result<std::vector<nlohmann::json>> LinkClient::exchange(const std::string& key, const nlohmann::json& value,
                                                         Duration deadline) {
  link::ExchangePut put;
  put.key = key;
  put.value = value;
  if (Status sent = send(put); !sent) return sent.error();
  std::unique_lock lock(mutex_);
  const bool complete = changed_.wait_for(lock, deadline, [this, &key] {
    if (aborted_ >= taken_) return true;
    const auto found = exchanges_.find(key);
    return found != exchanges_.end() && found->second.count > 0 &&
           static_cast<int>(found->second.values.size()) == found->second.count;
  });
  if (aborted_ >= taken_) return Error{"exchange \"" + key + "\": the agent aborted this generation"};
  ExchangeState& state = exchanges_[key];
  if (!complete)
    return Error{"exchange \"" + key + "\": no value from " + missing_ranks(state) + " within " +
                 format_duration(deadline)};
  std::vector<nlohmann::json> values;
  for (auto& [rank, one] : state.values) values.push_back(std::move(one));
  exchanges_.erase(key);
  return values;
}

Status LinkClient::ask_for(const std::string& path) {
  {
    const std::lock_guard lock(mutex_);
    asked_for_ = path;
    fetched_bytes_ = 0;
    fetched_.reset();
  }
  return send(link::Fetch{path});
}

std::optional<link::Fetched> LinkClient::wait_fetched(Duration longest) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, longest, [this] { return fetched_.has_value(); });
  return std::exchange(fetched_, std::nullopt);
}

std::int64_t LinkClient::fetched_bytes() const {
  const std::lock_guard lock(mutex_);
  return fetched_bytes_;
}

void LinkClient::on_abort(std::function<void()> handler) {
  const std::lock_guard lock(mutex_);
  abort_handler_ = std::move(handler);
  if (abort_handler_ && aborted_ >= taken_) abort_handler_();
}

void LinkClient::finish(Duration deadline) {
  {
    std::unique_lock lock(mutex_);
    const Duration longest = deadline > Duration::zero() ? std::max(deadline, agent_wait_) : deadline;
    changed_.wait_for(lock, longest, [this] { return is_all_taken(); });
    finishing_ = true;
    wake();
  }
  if (thread_.joinable()) thread_.join();
}

void LinkClient::run() {
  for (;;) {
    bool want_write = false;
    {
      const std::lock_guard lock(mutex_);
      if (finishing_) return;
      want_write = !outbox_.empty();
    }
    pollfd watched[2] = {{socket_.get(), static_cast<short>(POLLIN | (want_write ? POLLOUT : 0)), 0},
                         {wake_.get(), POLLIN, 0}};
    (void)::poll(watched, 2, wait_ms());  // Without a socket, whose number is negative, only wake_ is watched.
    if (watched[1].revents != 0) {
      std::uint64_t count = 0;
      (void)!::read(wake_.get(), &count, sizeof count);
    }
    if ((watched[0].revents & POLLOUT) != 0) {
      const std::lock_guard lock(mutex_);
      write_outbox();
      if (outbox_.empty()) changed_.notify_all();
    }
    if ((watched[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0 && !read_lines()) {
      const std::lock_guard lock(mutex_);
      if (finishing_) return;
      if (!returns()) leave("the link to the agent has closed");
      lose();
    }
    if (returns()) connect_again();
    acknowledge();
    if (now() - last_beat_ >= Duration(heartbeat_interval_ns_.load())) send_heartbeat();
  }
}

int LinkClient::wait_ms() const {
  const Duration interval(heartbeat_interval_ns_.load());
  Duration left = std::max(last_beat_ + interval - now(), Duration::zero());
  if (socket_.get() < 0) left = std::min(left, kConnectPause);
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
}

bool LinkClient::read_lines() {
  Received received = receive(socket_.get(), input_);
  if (received.state == Received::State::kEnd) return false;
  for (UniqueFd& fd : received.descriptors) received_descriptors_.push_back(std::move(fd));
  std::size_t begin = 0;
  for (std::size_t end = input_.find('\n'); end != std::string::npos; end = input_.find('\n', begin)) {
    Result<link::ToWorker> message = link::decode_to_worker(std::string_view(input_).substr(begin, end - begin));
    if (!message) leave(("the agent sent a bad line: " + message.error().message).c_str());
    handle(std::move(message).value());
    begin = end + 1;
  }
  input_.erase(0, begin);
  if (input_.size() > link::kLineBytesMax) leave("the agent sent a line longer than 64 KiB");
  return true;
}

void LinkClient::handle(link::ToWorker&& message) {
  const std::lock_guard lock(mutex_);
  if (link::is_counted(message)) ++received_;
  if (auto* assignment = std::get_if<link::Assignment>(&message)) {
    ReceivedAssignment received;
    received.assignment = std::move(*assignment);
    received.shared_region = take(received_descriptors_, 0);
    received.memory_checkpoint = take(received_descriptors_, 1);
    received_descriptors_.clear();
    exchanges_.clear();
    // Now, not when it is taken: a request that comes in between is for this one.
    stop_ = false;
    stop_at_epoch_ = false;
    stop_at_checkpoint_ = false;
    assignment_ = std::move(received);
  } else if (auto* value = std::get_if<link::ExchangeValue>(&message)) {
    if (exchanges_.size() >= kExchangeKeysMax && exchanges_.count(value->key) == 0)
      leave("the agent sent values for more than 64 exchanges");
    ExchangeState& state = exchanges_[value->key];
    state.count = value->count;
    state.values[value->rank] = std::move(value->value);
  } else if (const auto* fetching = std::get_if<link::Fetching>(&message)) {
    if (fetching->path == asked_for_) fetched_bytes_ = std::max(fetched_bytes_, fetching->bytes);
  } else if (auto* fetched = std::get_if<link::Fetched>(&message)) {
    if (fetched->path == asked_for_) fetched_ = std::move(*fetched);
  } else if (const auto* abort = std::get_if<link::Abort>(&message)) {
    aborted_ = std::max(aborted_, abort->generation);
    if (abort_handler_ && aborted_ >= taken_) abort_handler_();
  } else if (const auto* stop = std::get_if<link::Stop>(&message)) {
    stop_checkpoint_ = stop->checkpoint;
    stop_ = true;
  } else if (const auto* leave = std::get_if<link::StopAtEpoch>(&message)) {
    (leave->at_checkpoint ? stop_at_checkpoint_ : stop_at_epoch_) = true;
  } else if (const auto* received = std::get_if<link::Received>(&message)) {
    note(*received);
  } else if (const auto* dropped = std::get_if<link::Dropped>(&message)) {
    if (!finishing_) worker::leave(("the agent has closed the link: " + dropped->reason).c_str());
  } else {
    ++unknown_lines_;
  }
  changed_.notify_all();
}

void LinkClient::write_outbox() {
  while (!outbox_.empty()) {
    const ssize_t count = ::send(socket_.get(), outbox_.data(), outbox_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count <= 0) return;  // Full, or broken: the link thread reads the end and leaves.
    outbox_.erase(0, static_cast<std::size_t>(count));
  }
}

void LinkClient::send_heartbeat() {
  const TimePoint time = now();
  const std::int64_t samples = progress_.samples.load(std::memory_order_relaxed);
  link::Heartbeat beat;
  beat.step = progress_.step.load(std::memory_order_relaxed);
  beat.epoch = progress_.epoch.load(std::memory_order_relaxed);
  beat.phase = name_of(progress_.phase.load(std::memory_order_relaxed));
  beat.loss = progress_.loss.load(std::memory_order_relaxed);
  beat.samples = samples;
  beat.waiting = progress_.waiting.load(std::memory_order_relaxed);
  beat.fetched = progress_.fetched.load(std::memory_order_relaxed);
  if (progress_.has_gpu)
    beat.gpu = {progress_.gpu_percent.load(), progress_.gpu_mib.load(), progress_.gpu_celsius.load()};
  beat.samples_per_s = static_cast<double>(samples - samples_at_beat_) / to_seconds(time - last_beat_);
  samples_at_beat_ = samples;
  last_beat_ = time;
  const std::string line = link::encode(link::FromWorker(beat));
  const std::lock_guard lock(mutex_);
  if (!outbox_.empty() || link_ != Link::kOpen)
    return;  // The agent is not reading: the next heartbeat says more than this one.
  outbox_ = line;
  write_outbox();
  // A part of a line is on its way: the rest must follow. A whole one is not worth keeping.
  if (outbox_.size() == line.size()) outbox_.clear();
}

void LinkClient::wake() {
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

std::string LinkClient::missing_ranks(const ExchangeState& state) const {
  if (state.count == 0) return "the other ranks";
  std::string text;
  for (int rank = 0; rank < state.count; ++rank) {
    if (state.values.count(rank) == 0) text += (text.empty() ? "rank " : ", ") + std::to_string(rank);
  }
  return text;
}

}  // namespace sgd::worker
