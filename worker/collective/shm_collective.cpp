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

Call ShmCollective::reduction_of(std::size_t offset, std::size_t count) const {
  SGD_ASSERT(offset <= gradient_count_ && count <= gradient_count_ - offset);
  return {Operation::kAllReduce, offset, count};
}

// Whole cache lines, so that no two ranks write to one.
ShmCollective::Slice ShmCollective::own_slice(std::size_t offset, std::size_t count) const {
  const auto size = static_cast<std::size_t>(size_);
  const std::size_t end = offset + count;
  const std::size_t first_line = offset / kFloatsPerLine;
  const std::size_t lines = (end + kFloatsPerLine - 1) / kFloatsPerLine - first_line;
  const std::size_t per_rank = (lines + size - 1) / size;
  const std::size_t begin = (first_line + own() * per_rank) * kFloatsPerLine;
  return {std::clamp(begin, offset, end), std::clamp(begin + per_rank * kFloatsPerLine, offset, end)};
}

std::uint32_t ShmCollective::all_reduce(std::uint32_t control_word, std::size_t offset, std::size_t count) {
  const Call call = reduction_of(offset, count);
  const std::uint32_t result = barrier_.wait(control_word, call);
  const Slice slice = own_slice(offset, count);
  const bool finite = sum_to_all(buffers_, slice.begin, slice.end);
  return result | barrier_.wait(finite ? 0 : control::kInfinite, call);
}

std::uint32_t ShmCollective::reduce_to_leader(std::uint32_t control_word, std::size_t offset, std::size_t count) {
  const Call call = reduction_of(offset, count);
  const std::uint32_t result = barrier_.wait(control_word, call);
  const Slice slice = own_slice(offset, count);
  (void)sum_to_first(buffers_, slice.begin, slice.end);  // Ignoring: the sum over the hosts tells it.
  (void)barrier_.wait(0, call);                          // Ignoring: the first barrier has the control words.
  return result;
}

std::uint32_t ShmCollective::share_from_leader(std::uint32_t control_word, std::size_t offset, std::size_t count) {
  const Call call = reduction_of(offset, count);
  const std::uint32_t result = barrier_.wait(control_word, call);
  if (rank_ != 0) std::copy_n(buffers_[0] + offset, count, buffers_[own()] + offset);
  (void)barrier_.wait(0, call);  // Ignoring: it only keeps the leader from going on too soon.
  return result;
}

std::uint32_t ShmCollective::agree(std::uint32_t control_word, const Call& call) {
  return barrier_.wait(control_word, call);
}

void ShmCollective::barrier() {
  (void)barrier_.wait(0, {Operation::kBarrier});  // Ignoring: no control word takes part.
}

void ShmCollective::tell_mismatch(std::string_view text) {
  const std::span<std::byte> staging = region_.staging(rank_);
  const std::size_t bytes = std::min(text.size(), staging.size());
  std::memcpy(staging.data(), text.data(), bytes);
  region_.line(rank_).message_bytes = bytes;
  (void)barrier_.wait(0, {Operation::kTell});  // Ignoring: it throws.
}

void ShmCollective::broadcast(std::span<std::byte> bytes, int root) {
  SGD_ASSERT(root >= 0 && root < size_);
  const Call call{Operation::kBroadcast, static_cast<std::uint64_t>(root), bytes.size()};
  // The root fills one half while the others read the other: whoever enters the barrier of piece i+1 has
  // read piece i, so its half is free for piece i+2.
  std::byte* const halves = region_.staging(root).data();
  std::size_t half = 0;
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), kHalfStagingBytes));
    std::byte* const staged = halves + half * kHalfStagingBytes;
    if (rank_ == root) std::memcpy(staged, piece.data(), piece.size());
    (void)barrier_.wait(0, call);  // Ignoring: no control word takes part.
    if (rank_ != root) std::memcpy(piece.data(), staged, piece.size());
    bytes = bytes.subspan(piece.size());
    half ^= 1;
  }
  (void)barrier_.wait(0, call);  // Ignoring: the staging area is free for the next call.
}

std::vector<std::string> ShmCollective::all_gather(const std::string& bytes) {
  check_gather_bytes(bytes.size());
  const Call call{Operation::kAllGather};
  std::vector<std::string> gathered(static_cast<std::size_t>(size_));
  region_.line(rank_).message_bytes = bytes.size();
  std::size_t longest = 0;
  std::size_t offset = 0;
  do {  // Sizes are known after the first barrier.
    const std::size_t own_piece = offset < bytes.size() ? std::min(kStagingBytes, bytes.size() - offset) : 0;
    std::memcpy(region_.staging(rank_).data(), bytes.data() + std::min(offset, bytes.size()), own_piece);
    (void)barrier_.wait(0, call);  // Ignoring: no control word takes part.
    for (int r = 0; r < size_; ++r) {
      const std::size_t size = region_.line(r).message_bytes;
      check_gather_bytes(size);
      longest = std::max(longest, size);
      if (offset >= size) continue;
      gathered[static_cast<std::size_t>(r)].append(reinterpret_cast<const char*>(region_.staging(r).data()),
                                                   std::min(kStagingBytes, size - offset));
    }
    (void)barrier_.wait(0, call);  // Ignoring: the staging areas are free again.
    offset += kStagingBytes;
  } while (offset < longest);
  return gathered;
}

}  // namespace sgd::worker
