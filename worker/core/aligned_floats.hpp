#pragma once
// A private buffer of floats in whole pages, zeroed, with huge pages where it is large: the home
// of flat parameters, gradients and optimizer state. Does not grow.

#include <cstddef>
#include <span>

namespace sgd::worker {

inline constexpr std::size_t kPageBytes = 4096;
inline constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

/// Has the system give and map all pages of `bytes` (whole pages) now, so that no later write waits for one. Keeps what
/// is there.
void populate_pages(std::span<std::byte> bytes);

class AlignedFloats {
 public:
  AlignedFloats() = default;
  /// Throws std::bad_alloc.
  explicit AlignedFloats(std::size_t count);
  AlignedFloats(AlignedFloats&& other) noexcept;
  AlignedFloats& operator=(AlignedFloats&& other) noexcept;
  ~AlignedFloats();

  [[nodiscard]] float* data() { return data_; }
  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] std::span<float> span() { return {data_, count_}; }

 private:
  float* data_ = nullptr;
  std::size_t count_ = 0;
  std::size_t mapped_bytes_ = 0;
};

}  // namespace sgd::worker
