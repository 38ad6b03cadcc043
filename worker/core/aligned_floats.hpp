#pragma once
// A private buffer of floats in whole pages, zeroed, with huge pages where it is large: the home
// of flat parameters, gradients and optimizer state. Does not grow.

#include <cstddef>
#include <span>

namespace sgd::worker {

class AlignedFloats {
 public:
  AlignedFloats() = default;
  /// Throws std::bad_alloc.
  explicit AlignedFloats(std::size_t count);
  AlignedFloats(AlignedFloats&& other) noexcept;
  AlignedFloats& operator=(AlignedFloats&& other) noexcept;
  ~AlignedFloats();

  /// Has the system give all pages now, so that the first write to each costs nothing more. Keeps what is there.
  void populate();

  [[nodiscard]] float* data() { return data_; }
  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] std::span<float> span() { return {data_, count_}; }

 private:
  float* data_ = nullptr;
  std::size_t count_ = 0;
  std::size_t mapped_bytes_ = 0;
};

}  // namespace sgd::worker
