#pragma once
// A few bytes of every rank to every rank, in one hop: receives are posted ahead, so that a message never waits for its
// receiver. Serves one exchange after the other; a rank can be ahead of another by one at most.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

namespace sgd::worker {

class SmallExchange {
 public:
  /// The context is connected. `slot`: of this exchange alone. At most `bytes_each` of each rank.
  SmallExchange(std::shared_ptr<gloo::Context> context, std::uint64_t slot, std::size_t bytes_each);

  /// Begins: `bytes` of this rank are on their way to all others.
  void send(const void* own, std::size_t bytes);
  /// Every rank's bytes, `bytes_each` after each other. Of one that sent less, the rest is as it was.
  void wait(void* all);

 private:
  void post_receives();
  [[nodiscard]] std::byte* part_of(int rank) { return in_.data() + static_cast<std::size_t>(rank) * bytes_each_; }

  std::shared_ptr<gloo::Context> context_;
  std::uint64_t slot_;
  std::size_t bytes_each_;
  std::vector<std::byte> out_;
  std::vector<std::byte> in_;  // By rank.
  std::unique_ptr<gloo::transport::UnboundBuffer> out_buffer_;
  std::unique_ptr<gloo::transport::UnboundBuffer> in_buffer_;
};

}  // namespace sgd::worker
