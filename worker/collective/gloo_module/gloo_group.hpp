#pragma once
// A Gloo context whose pairs are made and connected in two steps, with the exchange of the
// addresses in between left to the caller: no store, no server.

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gloo/context.h>
#include <gloo/transport/device.h>

#include "worker/collective/gloo_module/abi.hpp"
#include "worker/collective/gloo_module/small_exchange.hpp"

namespace sgd::worker {

class GlooGroup {
 public:
  GlooGroup(int rank, int size, const std::string& bind_address, std::chrono::milliseconds timeout);
  ~GlooGroup();

  /// The addresses of this rank's ends of all pairs, as pack_addresses() makes them.
  [[nodiscard]] const std::string& address() const { return address_; }
  void connect(const std::vector<std::string>& addresses);

  /// What every rank says, in rank order. Whether all came for the same.
  bool exchange_headers(const SgdGlooHeader& own, SgdGlooHeader* all);
  /// meet(), and the sums if all came for the same. Whether these are finite on every rank.
  bool all_reduce_sum(const SgdGlooHeader& own, SgdGlooHeader* all, float* values, std::size_t count);
  /// These two after a meet() in which all came for it.
  void broadcast(void* bytes, std::size_t size, int root);
  void all_gather(const void* bytes, const std::vector<std::size_t>& sizes, void* out);
  void abort() noexcept;

 private:
  class Context;

  void send_header(const SgdGlooHeader& own);
  bool take_headers(SgdGlooHeader* all);
  void answer(bool yes);
  bool all_said_yes();

  int rank_;
  int size_;
  std::chrono::milliseconds timeout_;
  std::string address_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<Context> context_;
  std::atomic<bool> connected_{false};  // Before this, an abort has no connection to close.
  std::atomic<bool> aborted_{false};
  std::uint32_t tag_ = 0;  // Differs between neighbouring operations.
  std::unique_ptr<SmallExchange> headers_;
  std::unique_ptr<SmallExchange> answers_;
  std::vector<float> staging_;  // For sums.
};

}  // namespace sgd::worker
