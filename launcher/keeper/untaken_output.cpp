#include "launcher/keeper/untaken_output.hpp"

#include <algorithm>
#include <utility>

namespace sgd::keeper {

void UntakenOutput::push(Chunk chunk) {
  memory_ += chunk.frame.size() + kMemoryOfChunk;
  chunks_.push_back(std::move(chunk));
  while (memory_ > kMemoryMax) {
    not_kept_ += chunks_.front().bytes - taken_of_first_;
    pop();
  }
}

void UntakenOutput::taken(std::int64_t bytes) {
  const std::int64_t of_not_kept = std::clamp<std::int64_t>(bytes, 0, not_kept_);
  not_kept_ -= of_not_kept;
  taken_of_first_ += std::max<std::int64_t>(bytes, 0) - of_not_kept;
  while (!chunks_.empty() && taken_of_first_ >= chunks_.front().bytes) {
    const std::int64_t left = taken_of_first_ - chunks_.front().bytes;
    pop();
    taken_of_first_ = left;
  }
  if (chunks_.empty()) taken_of_first_ = 0;  // More than was sent says somebody who is wrong.
}

const std::deque<UntakenOutput::Chunk>& UntakenOutput::resend() {
  taken_of_first_ = not_kept_ = 0;
  std::erase_if(chunks_, [](const Chunk& chunk) { return chunk.is_open; });
  memory_ = 0;
  for (const Chunk& chunk : chunks_) memory_ += chunk.frame.size() + kMemoryOfChunk;
  return chunks_;
}

void UntakenOutput::pop() {
  memory_ -= chunks_.front().frame.size() + kMemoryOfChunk;
  chunks_.pop_front();
  taken_of_first_ = 0;
}

}  // namespace sgd::keeper
