#include "worker/collective/shm_collective.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "worker/collective/limits.hpp"
#include "worker/collective/sum.hpp"

namespace sgd::worker {
namespace {

constexpr std::size_t kFloatsPerLine = 16;
constexpr std::size_t kHalfStagingBytes = kStagingBytes / 2;

}  // namespace

ShmCollective::ShmCollective(int fd, Generation generation, int rank, int size, std::size_t gradient_count,
                             Waiting waiting, Duration stall_timeout)
    : region_(fd, generation, size, gradient_count),
      barrier_(region_, rank, size, waiting, stall_timeout),
      rank_(rank),
      size_(size),
      gradient_count_(gradient_count) {
  SGD_ASSERT(rank >= 0 && rank < size);
  for (int r = 0; r < size; ++r) buffers_.push_back(region_.gradients(r));
  region_.populate(rank);
}

// Whole cache lines, so that no two ranks write to one.
ShmCollective::Slice ShmCollective::own_slice() const {
  const auto size = static_cast<std::size_t>(size_);
  const std::size_t lines = (gradient_count_ + kFloatsPerLine - 1) / kFloatsPerLine;
  const std::size_t per_rank = (lines + size - 1) / size * kFloatsPerLine;
  const std::size_t begin = std::min(gradient_count_, own() * per_rank);
  return {begin, std::min(gradient_count_, begin + per_rank)};
}

std::uint32_t ShmCollective::all_reduce(std::uint32_t control_word) {
  const std::uint32_t result = barrier_.wait(control_word, "all_reduce");
  const Slice slice = own_slice();
  sum_to_all(buffers_, slice.begin, slice.end);
  (void)barrier_.wait(0, "all_reduce");  // Ignoring: the first barrier has the control words.
  return result;
}

std::uint32_t ShmCollective::reduce_to_leader(std::uint32_t control_word) {
  const std::uint32_t result = barrier_.wait(control_word, "all_reduce");
  const Slice slice = own_slice();
  sum_to_first(buffers_, slice.begin, slice.end);
  (void)barrier_.wait(0, "all_reduce");  // Ignoring: the first barrier has the control words.
  return result;
}

std::uint32_t ShmCollective::share_from_leader(std::uint32_t control_word) {
  const std::uint32_t result = barrier_.wait(control_word, "all_reduce");
  if (rank_ != 0) std::copy_n(buffers_[0], gradient_count_, buffers_[own()]);
  (void)barrier_.wait(0, "all_reduce");  // Ignoring: it only keeps the leader from going on too soon.
  return result;
}

std::uint32_t ShmCollective::agree(std::uint32_t control_word) {
  return barrier_.wait(control_word, "agree");
}

void ShmCollective::barrier() {
  (void)barrier_.wait(0, "barrier");  // Ignoring: no control word takes part.
}

void ShmCollective::broadcast(std::span<std::byte> bytes, int root) {
  SGD_ASSERT(root >= 0 && root < size_);
  // The root fills one half while the others read the other: whoever enters the barrier of piece i+1 has
  // read piece i, so its half is free for piece i+2.
  std::byte* const halves = region_.staging(root).data();
  std::size_t half = 0;
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), kHalfStagingBytes));
    std::byte* const staged = halves + half * kHalfStagingBytes;
    if (rank_ == root) std::memcpy(staged, piece.data(), piece.size());
    (void)barrier_.wait(0, "broadcast");  // Ignoring: no control word takes part.
    if (rank_ != root) std::memcpy(piece.data(), staged, piece.size());
    bytes = bytes.subspan(piece.size());
    half ^= 1;
  }
  (void)barrier_.wait(0, "broadcast");  // Ignoring: the staging area is free for the next call.
}

std::vector<std::string> ShmCollective::all_gather(const std::string& bytes) {
  check_gather_bytes(bytes.size());
  std::vector<std::string> gathered(static_cast<std::size_t>(size_));
  region_.line(rank_).message_bytes = bytes.size();
  std::size_t longest = 0;
  std::size_t offset = 0;
  do {  // Sizes are known after the first barrier.
    const std::size_t own_piece = offset < bytes.size() ? std::min(kStagingBytes, bytes.size() - offset) : 0;
    std::memcpy(region_.staging(rank_).data(), bytes.data() + std::min(offset, bytes.size()), own_piece);
    (void)barrier_.wait(0, "all_gather");  // Ignoring: no control word takes part.
    for (int r = 0; r < size_; ++r) {
      const std::size_t size = region_.line(r).message_bytes;
      check_gather_bytes(size);
      longest = std::max(longest, size);
      if (offset >= size) continue;
      gathered[static_cast<std::size_t>(r)].append(reinterpret_cast<const char*>(region_.staging(r).data()),
                                                   std::min(kStagingBytes, size - offset));
    }
    (void)barrier_.wait(0, "all_gather");  // Ignoring: the staging areas are free again.
    offset += kStagingBytes;
  } while (offset < longest);
  return gathered;
}

}  // namespace sgd::worker
