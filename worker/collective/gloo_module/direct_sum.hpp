#pragma once
// An all-reduce in two hops: each rank gets its slice of everybody's values, adds them in rank order, and sends the
// sums to all. As many bytes as Gloo's ring moves, in 2 hops instead of 2 (n - 1), and a sum does not depend on
// where in the buffer a value lies: a part of the values has the same bits as the whole.
//
//   begin: slices of piece 0 go out  ->  sum: piece by piece, the next one on its way  ->  finish: the others' sums are
//   in
//
// Large buffers go in pieces, so that what others send has a bounded place and travels while sums are made.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

namespace sgd::worker {

class DirectSum {
 public:
  /// `staging` is kept by the caller between sums, so that its pages stay. `slot` and the one behind it are of this sum
  /// alone. All outlive this object.
  DirectSum(const std::shared_ptr<gloo::Context>& context, std::uint64_t slot, float* values, std::size_t count,
            std::vector<float>& staging);

  void begin();
  /// Whether all sums of this rank's slices are finite.
  [[nodiscard]] bool sum();
  void finish();

 private:
  struct Slice {
    std::size_t begin = 0, count = 0;  // In floats of the values.
  };
  [[nodiscard]] Slice slice(std::size_t piece, int owner) const;
  [[nodiscard]] float* block_of(std::size_t piece, int peer) const;
  void post(std::size_t piece);
  [[nodiscard]] bool sum_piece(std::size_t piece);

  int rank_;
  int size_;
  std::uint64_t slot_;
  float* values_;
  std::size_t count_;
  std::size_t pieces_;
  std::vector<float>& staging_;
  std::size_t sends_ = 0;
  std::size_t sums_of_others_ = 0;
  std::unique_ptr<gloo::transport::UnboundBuffer> out_;        // Of the values: what is sent, and the others' sums.
  std::unique_ptr<gloo::transport::UnboundBuffer> halves_[2];  // Of the staging area, for every other piece.
};

}  // namespace sgd::worker
