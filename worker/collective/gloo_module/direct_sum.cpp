#include "worker/collective/gloo_module/direct_sum.hpp"

#include <algorithm>

#include "worker/collective/sum.hpp"

namespace sgd::worker {
namespace {

constexpr std::size_t kPieceFloats = std::size_t{1} << 20;
constexpr std::size_t kFloatsPerLine = 16;

/// The longest slice of one rank.
std::size_t slice_floats(std::size_t count, int size) {
  const auto ranks = static_cast<std::size_t>(size);
  const std::size_t lines = (std::min(count, kPieceFloats) + kFloatsPerLine - 1) / kFloatsPerLine;
  return (lines + ranks - 1) / ranks * kFloatsPerLine;
}

constexpr std::size_t bytes(std::size_t floats) {
  return floats * sizeof(float);
}

}  // namespace

DirectSum::DirectSum(const std::shared_ptr<gloo::Context>& context, std::uint64_t slot, float* values,
                     std::size_t count, std::vector<float>& staging)
    : rank_(context->rank),
      size_(context->size),
      slot_(slot),
      values_(values),
      count_(count),
      pieces_((count + kPieceFloats - 1) / kPieceFloats),
      staging_(staging) {
  const std::size_t half = slice_floats(count, size_) * static_cast<std::size_t>(size_);
  if (staging_.size() < 2 * half) staging_.resize(2 * half);
  out_ = context->createUnboundBuffer(values, bytes(count));
  for (std::size_t i = 0; i < 2; ++i)
    halves_[i] = context->createUnboundBuffer(staging_.data() + i * half, bytes(half));
}

DirectSum::Slice DirectSum::slice(std::size_t piece, int owner) const {
  const std::size_t begin = piece * kPieceFloats;
  const std::size_t end = std::min(count_, begin + kPieceFloats);
  const std::size_t longest = slice_floats(end - begin, size_);
  const std::size_t first = std::min(end, begin + static_cast<std::size_t>(owner) * longest);
  return {first, std::min(end, first + longest) - first};
}

float* DirectSum::block_of(std::size_t piece, int peer) const {
  return static_cast<float*>(halves_[piece % 2]->ptr) + static_cast<std::size_t>(peer) * slice_floats(count_, size_);
}

void DirectSum::post(std::size_t piece) {
  gloo::transport::UnboundBuffer& half = *halves_[piece % 2];
  const Slice own = slice(piece, rank_);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const auto block = static_cast<std::size_t>(block_of(piece, peer) - static_cast<float*>(half.ptr));
    if (own.count != 0) half.recv(peer, slot_, bytes(block), bytes(own.count));
    const Slice theirs = slice(piece, peer);
    if (theirs.count == 0) continue;
    // Its sum comes back to the same place, but not before this has arrived there.
    out_->recv(peer, slot_ + 1, bytes(theirs.begin), bytes(theirs.count));
    ++sums_of_others_;
    out_->send(peer, slot_, bytes(theirs.begin), bytes(theirs.count));
    ++sends_;
  }
}

bool DirectSum::sum_piece(std::size_t piece) {
  const Slice own = slice(piece, rank_);
  if (own.count == 0) return true;
  for (int peer = 1; peer < size_; ++peer) halves_[piece % 2]->waitRecv();
  std::vector<float*> blocks;
  for (int r = 0; r < size_; ++r) blocks.push_back(r == rank_ ? values_ + own.begin : block_of(piece, r));
  const bool finite = sum_to_first(blocks, 0, own.count);
  if (rank_ != 0) std::copy_n(blocks[0], own.count, values_ + own.begin);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    out_->send(peer, slot_ + 1, bytes(own.begin), bytes(own.count));
    ++sends_;
  }
  return finite;
}

void DirectSum::begin() {
  if (pieces_ != 0) post(0);
}

bool DirectSum::sum() {
  bool finite = true;
  for (std::size_t piece = 0; piece < pieces_; ++piece) {
    if (piece + 1 < pieces_) post(piece + 1);
    finite &= sum_piece(piece);
  }
  return finite;
}

void DirectSum::finish() {
  for (; sums_of_others_ != 0; --sums_of_others_) out_->waitRecv();
  for (; sends_ != 0; --sends_) out_->waitSend();
}

}  // namespace sgd::worker
