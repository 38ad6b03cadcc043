#pragma once
// The operations of a C group, as steps between meetings.
//
// Data pass through the ranks' slots in pieces. Before barrier k a rank gives piece k and takes piece k-1; slots
// alternate, so one barrier a piece is enough: who gives piece k+2 into the slot of piece k has passed barrier k+1, to
// which the others came after they had taken piece k. The numbers of pieces go on from operation to operation.
//
// An all_reduce of a large message has three parts: a rank gives what others reduce, reduces its own slice of the
// piece before, and takes the others' slices of the piece before that. A small one is reduced by every rank itself.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "worker/collective/c_api/peer_barrier.hpp"
#include "worker/collective/c_api/peer_region.hpp"
#include "worker/collective/c_api/sgd_collective.h"
#include "worker/collective/c_api/store_choice.hpp"

namespace sgd::worker {

class PeerGroup {
 public:
  PeerGroup(int fd, std::uint64_t token, int rank, int size, const std::vector<std::int32_t>& pids, bool own_cores);
  ~PeerGroup();
  PeerGroup(const PeerGroup&) = delete;
  PeerGroup& operator=(const PeerGroup&) = delete;

  void set_timeout(Duration timeout) { barrier_.set_timeout(timeout); }
  /// True if it is done. Throws CollectiveError or CollectiveMismatch; what it points to must live until it is done.
  [[nodiscard]] bool start(const SgdcRequest& request, Duration longest);
  [[nodiscard]] bool advance(Duration longest);
  void abort(const std::string& reason) noexcept { barrier_.abort(reason); }

 private:
  void check(const SgdcRequest& request) const;
  void plan();
  void plan_all_to_all();
  [[nodiscard]] std::uint64_t longest_input() const;
  /// What is done before barrier `step_`, or after the last. True if another barrier follows.
  [[nodiscard]] bool step();
  [[nodiscard]] bool measured_step();
  void give(std::uint64_t piece);
  void give_to_each(std::uint64_t piece, std::byte* slot) const;
  void give_part(std::byte* slot, const std::byte* from, std::uint64_t count) const;
  void take(std::uint64_t piece);
  void give_for_reduction(std::uint64_t piece);
  void reduce_own_slice(std::uint64_t piece);
  void take_slices(std::uint64_t piece);

  /// A run of elements of a message.
  struct Part {
    std::uint64_t begin, count;
  };
  [[nodiscard]] Part part_of(std::uint64_t piece, std::uint64_t total) const;
  [[nodiscard]] Part slice_of(const Part& part, int rank) const;
  [[nodiscard]] std::size_t parity(std::uint64_t piece) const { return (first_piece_ + piece) & 1; }
  [[nodiscard]] const std::byte* input(int rank, std::uint64_t begin) const;
  [[nodiscard]] std::byte* output(int rank, std::uint64_t begin) const;
  /// Of a slot that has a part for each rank: bytes of one part.
  [[nodiscard]] std::size_t sub_slot() const;
  /// Where this rank's part begins.
  [[nodiscard]] std::size_t own_offset() const;
  void copy(std::byte* to, const std::byte* from, std::uint64_t count) const;
  /// For other ranks to read.
  void write(std::byte* to, const std::byte* from, std::size_t bytes) const;
  void reduce(const std::byte* own, std::size_t offset, std::size_t parity, std::byte* to, std::uint64_t count);

  PeerRegion region_;
  int rank_;
  int size_;
  PeerBarrier barrier_;
  SgdcRequest request_{};
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  std::vector<std::uint64_t> input_counts_;
  std::vector<std::uint64_t> output_counts_;
  std::vector<const std::byte*> sources_;
  std::size_t element_ = 1;        // Bytes.
  std::uint64_t piece_count_ = 1;  // Elements of a piece.
  std::uint64_t pieces_ = 1;       // Of this operation.
  std::uint64_t first_piece_ = 0;  // Pieces of all operations before.
  std::uint64_t step_ = 0;
  bool in_slices_ = false;  // A large all_reduce.
  bool is_waiting_ = false;
  StoreChoice choice_;
  bool is_past_caches_ = false;  // What this operation writes for others.
  Duration spent_{};             // By this operation so far, without waits.
};

}  // namespace sgd::worker
