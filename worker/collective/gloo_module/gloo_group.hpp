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

namespace sgd::worker {

class GlooGroup {
 public:
  GlooGroup(int rank, int size, const std::string& bind_address, std::chrono::milliseconds timeout);
  ~GlooGroup();

  /// The addresses of this rank's ends of all pairs, as pack_addresses() makes them.
  [[nodiscard]] const std::string& address() const { return address_; }
  void connect(const std::vector<std::string>& addresses);

  void all_reduce_sum(float* values, std::size_t count);
  void broadcast(void* bytes, std::size_t size, int root);
  void all_gather(const void* bytes, const std::vector<std::size_t>& sizes, void* out);
  void barrier();
  void abort() noexcept;

 private:
  class Context;

  int rank_;
  int size_;
  std::chrono::milliseconds timeout_;
  std::string address_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<Context> context_;
  std::atomic<bool> connected_{false};  // Before this, an abort has no connection to close.
  std::atomic<bool> aborted_{false};
  std::uint32_t tag_ = 0;  // Differs between neighbouring operations.
};

}  // namespace sgd::worker
