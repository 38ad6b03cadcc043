#pragma once
// Batches of a stream, whose end only its reader finds: each rank reads one batch ahead, and tells the others whether
// there was one, so that a turn is the same on every rank.
//
//   training:   the pass ends for all with the first rank that has no more; what others had read is dropped, and said
//   validation: each rank reads its part to the end, and stands idle in the turns of the others

#include <deque>
#include <memory>

#include "worker/collective/collective.hpp"
#include "worker/torch/pass_batches.hpp"
#include "worker/torch/stream_reader.hpp"

namespace sgd::worker {

class StreamBatches final : public PassBatches {
 public:
  /// Before the first pass. `collective` outlives it.
  StreamBatches(std::unique_ptr<StreamReader> reader, Collective& collective);

  [[nodiscard]] Next look(bool wants_last) override;
  [[nodiscard]] bool is_last() const override { return known_.size() > 1 && known_[1] != Next::kBatch; }
  [[nodiscard]] Batch take() override { return reader_->take(); }
  void advance() override;
  [[nodiscard]] int pass() const override { return pass_; }
  /// Turns.
  [[nodiscard]] std::int64_t consumed() const override { return consumed_; }
  [[nodiscard]] bool is_pass_done() const override { return !known_.empty() && known_.front() == Next::kEnd; }
  void begin_pass(int pass) override;

  /// In the middle of a pass; as StreamReader::load().
  void resume(int pass, std::int64_t consumed, const std::vector<nlohmann::json>& states);
  [[nodiscard]] const StreamReader& reader() const { return *reader_; }

 private:
  [[nodiscard]] Next agree_on_next();
  void refuse_empty_pass();
  void tell_dropped();
  [[nodiscard]] std::string ranks_without(const std::vector<std::string>& samples) const;

  std::unique_ptr<StreamReader> reader_;
  Collective& collective_;
  bool ends_together_;
  int pass_ = 0;
  std::int64_t consumed_ = 0;
  std::deque<Next> known_;  // Of the turns that come, as far as they are agreed on; one for each that was read.
};

}  // namespace sgd::worker
