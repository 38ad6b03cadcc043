#include "worker/collective/gloo_module/small_exchange.hpp"

#include <cstring>
#include <exception>
#include <utility>

namespace sgd::worker {

SmallExchange::SmallExchange(std::shared_ptr<gloo::Context> context, std::uint64_t slot, std::size_t bytes_each)
    : context_(std::move(context)),
      slot_(slot),
      bytes_each_(bytes_each),
      out_(bytes_each),
      in_(bytes_each * static_cast<std::size_t>(context_->size)),
      out_buffer_(context_->createUnboundBuffer(out_.data(), out_.size())),
      in_buffer_(context_->createUnboundBuffer(in_.data(), in_.size())) {
  post_receives();
}

void SmallExchange::post_receives() {
  for (int peer = 0; peer < context_->size; ++peer) {
    if (peer != context_->rank)
      in_buffer_->recv(peer, slot_, static_cast<std::size_t>(part_of(peer) - in_.data()), bytes_each_);
  }
}

void SmallExchange::send(const void* own, std::size_t bytes) {
  std::memcpy(out_.data(), own, bytes);
  std::memcpy(part_of(context_->rank), own, bytes);
  for (int peer = 0; peer < context_->size; ++peer) {
    if (peer != context_->rank) out_buffer_->send(peer, slot_, 0, bytes);
  }
}

void SmallExchange::wait(void* all) {
  // Receives first: a failure of a connection is seen by those who wait for it.
  for (int peer = 1; peer < context_->size; ++peer) in_buffer_->waitRecv();
  for (int peer = 1; peer < context_->size; ++peer) out_buffer_->waitSend();
  std::memcpy(all, in_.data(), in_.size());
  try {
    post_receives();
  } catch (const std::exception&) {
    // Ignoring: after the last exchange of all a rank may be gone already. Who needs it still cannot send to it.
  }
}

}  // namespace sgd::worker
