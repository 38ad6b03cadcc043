#pragma once
// Gives memory that was freed back to the kernel. The C library keeps what is freed between blocks that live on: a
// daemon that once had much to do would look, and count, as if it still had.

#include <cstddef>
#include <memory>
#include <optional>

#include "common/base/time.hpp"

namespace boost::asio {
class io_context;
}

namespace sgd::process {

/// Bytes of this process that lie in memory; 0: the kernel does not say.
[[nodiscard]] std::size_t resident_bytes();

struct HeapBytes {
  std::size_t used = 0;  ///< Of what lives.
  std::size_t idle = 0;  ///< In memory, and nothing lives there: a trim gives it back, or leaves it between what does.
};
[[nodiscard]] HeapBytes heap_bytes();

/// When it is worth it: a trim walks through all free blocks, and holds up whoever allocates meanwhile. What lives does
/// not count: a trim in the middle of much work would else be what all later ones are measured by.
class TrimRule {
 public:
  static constexpr std::size_t kGrowth = 8 << 20;

  /// What is idle has grown by kGrowth, and by a quarter of what lives, since the last trim, or since the smallest that
  /// was seen.
  [[nodiscard]] bool is_due(const HeapBytes& heap);
  void trimmed(const HeapBytes& heap) { least_ = heap.idle; }

 private:
  std::optional<std::size_t> least_;
};

/// Looks each interval, on the event loop. `io` must outlive this.
class HeapTrim {
 public:
  static constexpr Duration kInterval = std::chrono::seconds(10);

  explicit HeapTrim(boost::asio::io_context& io, Duration interval = kInterval);
  ~HeapTrim();
  HeapTrim(const HeapTrim&) = delete;
  HeapTrim& operator=(const HeapTrim&) = delete;

 private:
  struct Ticking;
  std::shared_ptr<Ticking> ticking_;
};

}  // namespace sgd::process
