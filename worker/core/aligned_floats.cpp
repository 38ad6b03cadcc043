#include "worker/core/aligned_floats.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <limits>
#include <new>
#include <utility>

namespace sgd::worker {

void populate_pages(std::span<std::byte> bytes) {
  const std::size_t length = (bytes.size() + kPageBytes - 1) / kPageBytes * kPageBytes;
  while (length != 0 && ::madvise(bytes.data(), length, MADV_POPULATE_WRITE) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    // Linux before 5.14: one write a page that changes nothing.
    for (std::size_t at = 0; at < bytes.size(); at += kPageBytes) {
      auto* word = reinterpret_cast<std::uint32_t*>(bytes.data() + at);
      (void)__atomic_fetch_or(word, 0u, __ATOMIC_RELAXED);
    }
    return;
  }
}

AlignedFloats::AlignedFloats(std::size_t count) : count_(count) {
  if (count == 0) return;
  if (count > std::numeric_limits<std::size_t>::max() / 8) throw std::bad_alloc();
  const std::size_t bytes = count * sizeof(float);
  const std::size_t unit = bytes >= kHugePageBytes ? kHugePageBytes : kPageBytes;
  mapped_bytes_ = (bytes + unit - 1) / unit * unit;
  void* address = ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) throw std::bad_alloc();
  if (unit == kHugePageBytes) (void)::madvise(address, mapped_bytes_, MADV_HUGEPAGE);  // Only a wish.
  data_ = static_cast<float*>(address);
}

AlignedFloats::AlignedFloats(AlignedFloats&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      count_(std::exchange(other.count_, 0)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)) {}

AlignedFloats& AlignedFloats::operator=(AlignedFloats&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(count_, other.count_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  return *this;
}

AlignedFloats::~AlignedFloats() {
  if (data_ != nullptr) ::munmap(data_, mapped_bytes_);
}

}  // namespace sgd::worker
