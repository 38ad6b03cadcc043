#pragma once
// Console output that no agent has said is taken, so that what one agent dies with the next one gets. Pure.
//
//   push() ──> kept until its OutputAck, taken() ──> gone
//               └── resend(): a new agent gets all that is left, but for lines that were being written

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

namespace sgd::keeper {

class UntakenOutput {
 public:
  struct Chunk {
    std::string frame;
    std::int64_t bytes = 0;  ///< That the console gets of it.
    bool is_open = false;    ///< Of a line that is being written.
  };
  /// Of memory. Beyond it the oldest are not kept for another agent: a rank that writes two bytes at a time would fill
  /// a hundred times the window.
  static constexpr std::size_t kMemoryMax = 16 << 20;
  static constexpr std::size_t kMemoryOfChunk = sizeof(Chunk) + 64;  ///< Beside its frame.

  void push(Chunk chunk);
  /// So many more console bytes are: a chunk is kept until all of it is.
  void taken(std::int64_t bytes);
  /// What is kept, to be sent again: nothing else is untaken from now on.
  [[nodiscard]] const std::deque<Chunk>& resend();
  [[nodiscard]] std::size_t memory() const { return memory_; }

 private:
  void pop();

  std::deque<Chunk> chunks_;
  std::size_t memory_ = 0;
  std::int64_t taken_of_first_ = 0;
  std::int64_t not_kept_ = 0;  ///< Console bytes before the first chunk that are not taken.
};

}  // namespace sgd::keeper
