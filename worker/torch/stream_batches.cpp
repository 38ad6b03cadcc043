#include "worker/torch/stream_batches.hpp"

#include <cstdio>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace sgd::worker {
namespace {

// What a rank tells of the turn that comes; what all hear is the OR.
constexpr std::uint32_t kSomeHave = 1;
constexpr std::uint32_t kSomeEnded = 2;

}  // namespace

StreamBatches::StreamBatches(std::unique_ptr<StreamReader> reader, Collective& collective)
    : reader_(std::move(reader)), collective_(collective), ends_together_(reader_->place().split == Split::kTrain) {}

void StreamBatches::begin_pass(int pass) {
  pass_ = pass;
  consumed_ = 0;
  known_.clear();
  reader_->begin(pass);
}

void StreamBatches::resume(int pass, std::int64_t consumed, const std::vector<nlohmann::json>& states) {
  begin_pass(pass);
  consumed_ = consumed;
  reader_->load(states, consumed);
}

PassBatches::Next StreamBatches::look(bool wants_last) {
  if (known_.empty()) known_.push_back(agree_on_next());
  // The end is the same on every rank, so all or none go on here.
  if (wants_last && known_.size() == 1 && known_.front() != Next::kEnd) known_.push_back(agree_on_next());
  return known_.front();
}

void StreamBatches::advance() {
  known_.pop_front();
  reader_->done();
  ++consumed_;
}

PassBatches::Next StreamBatches::agree_on_next() {
  const bool has_batch = reader_->read();
  const std::uint32_t told = collective_.agree(has_batch ? kSomeHave : kSomeEnded);
  const bool is_end = ends_together_ ? (told & kSomeEnded) != 0 : (told & kSomeHave) == 0;
  if (!is_end) return has_batch ? Next::kBatch : Next::kIdle;
  if (consumed_ == 0 && known_.empty()) refuse_empty_pass();
  if ((told & kSomeHave) != 0) tell_dropped();
  return Next::kEnd;
}

std::string StreamBatches::ranks_without(const std::vector<std::string>& samples) const {
  std::vector<std::size_t> ranks;
  for (std::size_t rank = 0; rank < samples.size(); ++rank)
    if (samples[rank] == "0") ranks.push_back(rank);
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

/// On every rank.
void StreamBatches::refuse_empty_pass() {
  const std::vector<std::string> samples = collective_.all_gather(std::to_string(reader_->samples_read()));
  throw std::runtime_error(
      fmt::format("the data set \"{}\" gives {} no batch to {} on in pass {}: next() ends it at once, after begin()",
                  reader_->name(), ranks_without(samples), ends_together_ ? "train" : "validate", pass_));
}

void StreamBatches::tell_dropped() {
  const std::vector<std::string> samples = collective_.all_gather(std::to_string(reader_->samples_read()));
  if (collective_.rank() != 0) return;
  std::int64_t dropped = 0;
  for (const std::string& one : samples) dropped += std::stoll(one);
  std::fprintf(
      stderr,
      "sgd-worker: warning: pass %d over the data set \"%s\" ends with %s, which has no batch %lld: %lld samples "
      "that others have read for it are dropped, and what they have not read. Give every rank as many batches, "
      "or end epochs before with training.steps_per_epoch\n",
      pass_, reader_->name().c_str(), ranks_without(samples).c_str(),
      static_cast<long long>(consumed_ + static_cast<std::int64_t>(known_.size()) + 1),
      static_cast<long long>(dropped));
}

}  // namespace sgd::worker
