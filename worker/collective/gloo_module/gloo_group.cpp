#include "worker/collective/gloo_module/gloo_group.hpp"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <stdexcept>

#include <gloo/allgatherv.h>
#include <gloo/broadcast.h>
#include <gloo/transport/address.h>
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/loop.h>
#include <gloo/transport/unbound_buffer.h>

#include "worker/collective/call.hpp"
#include "worker/collective/gloo_module/direct_sum.hpp"
#include "worker/collective/gloo_module/pair_addresses.hpp"

namespace sgd::worker {
namespace {

// Slots that no collective of Gloo's uses: theirs begin at tag << 32 with a small operation number above it.
constexpr std::uint64_t kAbortSlot = 0x7fff'ffff'ffff'fff0ull;
constexpr std::uint64_t kHeaderSlot = 0x7fff'ffff'ffff'ffe0ull;
constexpr std::uint64_t kAnswerSlot = 0x7fff'ffff'ffff'ffd0ull;
constexpr std::uint64_t kSumSlots = 0x6000'0000'0000'0000ull;

Call call_of(const SgdGlooHeader& header) {
  return {static_cast<Operation>(header.operation), header.first, header.second};
}

// Different calls have different slots: what is on its way for one never lands in another.
std::uint64_t sum_slot(const SgdGlooHeader& header) {
  return kSumSlots | fingerprint(call_of(header)) << 1;
}

// Where among `rank`'s ends the one to `peer` is.
std::size_t end_of(int rank, int peer) {
  return static_cast<std::size_t>(peer < rank ? peer : peer - 1);
}

// Keeps the device's event loop turning. Closing a pair waits for its next turn, which an idle loop makes
// every 10 ms only: too slow for an abort that closes one pair after the other. A timer, not a descriptor
// that is always ready: a spinning loop would take the core from the threads that are to be released.
class LoopTurner final : public gloo::transport::tcp::Handler {
 public:
  explicit LoopTurner(gloo::transport::tcp::Device& device) : device_(device) {
    constexpr long interval_ns = 100'000;
    const struct itimerspec every {
      {0, interval_ns}, { 0, interval_ns }
    };
    fd_ = ::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (fd_ < 0) return;  // Without it the abort is only slower.
    ::timerfd_settime(fd_, 0, &every, nullptr);
    device_.registerDescriptor(fd_, EPOLLIN, this);
  }
  LoopTurner(const LoopTurner&) = delete;
  LoopTurner& operator=(const LoopTurner&) = delete;
  ~LoopTurner() override {
    if (fd_ < 0) return;
    device_.unregisterDescriptor(fd_, this);
    ::close(fd_);
  }
  void handleEvents(int) override {
    std::uint64_t expirations = 0;
    [[maybe_unused]] const ssize_t got = ::read(fd_, &expirations, sizeof(expirations));  // Arms it again.
  }

 private:
  gloo::transport::tcp::Device& device_;
  int fd_ = -1;
};

}  // namespace

// Gives the pairs to Gloo's collectives, which want a gloo::Context.
class GlooGroup::Context final : public gloo::Context {
 public:
  Context(int own_rank, int group_size, std::shared_ptr<gloo::transport::Device>& device,
          std::chrono::milliseconds timeout)
      : gloo::Context(own_rank, group_size) {
    setTimeout(timeout);
    device_ = device;
    transportContext_ = device->createContext(own_rank, group_size);
    transportContext_->setTimeout(timeout);
  }
  gloo::transport::Pair& make_pair(int peer) {
    auto& pair = transportContext_->createPair(peer);
    pair->setLocalRank(0);  // Only used to choose a device per process; there is one.
    return *pair;
  }
};

GlooGroup::GlooGroup(int rank, int size, const std::string& bind_address, std::chrono::milliseconds timeout)
    : rank_(rank), size_(size), timeout_(timeout) {
  gloo::transport::tcp::attr attributes;
  attributes.hostname = bind_address;
  device_ = gloo::transport::tcp::CreateDevice(attributes);
  context_ = std::make_shared<Context>(rank, size, device_, timeout);
  std::vector<gloo::transport::tcp::Address> ends;
  for (int peer = 0; peer < size; ++peer)
    if (peer != rank) ends.emplace_back(context_->make_pair(peer).address().bytes());
  address_ = pack_addresses(ends);
}

GlooGroup::~GlooGroup() = default;

void GlooGroup::connect(const std::vector<std::string>& addresses) {
  // Ends that face each other must be opened in an order without a cycle: every rank goes by peer number.
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    if (aborted_.load()) throw std::runtime_error("aborted");
    context_->getPair(peer)->connect(unpack_address(addresses[static_cast<std::size_t>(peer)], end_of(peer, rank_)));
  }
  headers_ = std::make_unique<SmallExchange>(context_, kHeaderSlot, sizeof(SgdGlooHeader));
  answers_ = std::make_unique<SmallExchange>(context_, kAnswerSlot, 1);
  connected_.store(true);
  if (aborted_.load()) throw std::runtime_error("aborted");
}

void GlooGroup::send_header(const SgdGlooHeader& own) {
  headers_->send(&own, own.note[0] == 0 ? offsetof(SgdGlooHeader, note) : sizeof own);
}

bool GlooGroup::take_headers(SgdGlooHeader* all) {
  headers_->wait(all);
  const auto is_same = [all](const SgdGlooHeader& one) { return call_of(one) == call_of(all[0]); };
  if (std::all_of(all, all + size_, is_same)) return true;
  try {  // Nobody closes its connections before all know it.
    answer(true);
    (void)all_said_yes();  // Ignoring: that it was answered is all.
  } catch (const std::exception&) {
    // Ignoring: this rank knows it, and that is its error.
  }
  return false;
}

void GlooGroup::answer(bool yes) {
  const char said = yes ? 1 : 0;
  answers_->send(&said, 1);
}

bool GlooGroup::all_said_yes() {
  std::vector<char> all(static_cast<std::size_t>(size_));
  answers_->wait(all.data());
  return std::find(all.begin(), all.end(), 0) == all.end();
}

bool GlooGroup::exchange_headers(const SgdGlooHeader& own, SgdGlooHeader* all) {
  send_header(own);
  return take_headers(all);
}

bool GlooGroup::all_reduce_sum(const SgdGlooHeader& own, SgdGlooHeader* all, float* values, std::size_t count) {
  send_header(own);
  // The first values travel with the headers: the exchange costs no hop of its own.
  DirectSum sum(context_, sum_slot(own), values, count, staging_);
  sum.begin();
  if (!take_headers(all)) return true;
  answer(sum.sum());  // Behind the sums, so this is no hop of its own either.
  sum.finish();
  return all_said_yes();
}

void GlooGroup::broadcast(void* bytes, std::size_t size, int root) {
  gloo::BroadcastOptions options(context_);
  options.setOutput(static_cast<char*>(bytes), size);
  options.setRoot(root);
  options.setTag(tag_++ & 0xffff);
  gloo::broadcast(options);
}

void GlooGroup::all_gather(const void* bytes, const std::vector<std::size_t>& sizes, void* out) {
  gloo::AllgathervOptions options(context_);
  options.setInput(static_cast<char*>(const_cast<void*>(bytes)), sizes[static_cast<std::size_t>(rank_)]);
  options.setOutput(static_cast<char*>(out), sizes);
  options.setTag(tag_++ & 0xffff);
  gloo::allgatherv(options);
}

void GlooGroup::abort() noexcept {
  if (aborted_.exchange(true) || !connected_.load()) return;
  // A receive that times out makes Gloo close all pairs of the context, whatever they are doing. A pair
  // that was closed before (its peer aborted first) refuses the receive and closes nothing, so every
  // peer is tried; once all are closed, the rest are refused at once.
  char unused = 0;
  LoopTurner turner(static_cast<gloo::transport::tcp::Device&>(*device_));
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    try {
      const auto buffer = context_->createUnboundBuffer(&unused, sizeof(unused));
      buffer->recv(peer, kAbortSlot);
      buffer->waitRecv(std::chrono::milliseconds(1));
    } catch (const std::exception&) {
      // Ignoring: the time-out is what closes the pairs, or this one was closed before.
    }
  }
}

}  // namespace sgd::worker
