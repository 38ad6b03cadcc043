#include "worker/torch/stream_reader.hpp"

#include <limits>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/assert.hpp"
#include "worker/core/sampler.hpp"
#include "worker/link/stack_signal.hpp"
#include "worker/torch/own_dataset.hpp"

namespace sgd::worker {
namespace {

/// Apart from what training and validation draw.
constexpr std::uint64_t kTrainDraws = 0x73747265616d0001;
constexpr std::uint64_t kValidationDraws = 0x73747265616d0002;
constexpr std::int64_t kBegin = -1;

}  // namespace

StreamReader::StreamReader(OpenedStream opened, const StreamPlace& place) : opened_(std::move(opened)), place_(place) {
  SGD_ASSERT(opened_.made != nullptr);
}

void StreamReader::forget() {
  ahead_.reset();  // Its thread uses the stream.
  pieces_.clear();
  is_over_ = false;
}

void StreamReader::seed(std::int64_t number) const {
  if (is_threaded() && number != kBegin) return;  // Training draws at the same time.
  const std::uint64_t draws = place_.split == Split::kTrain ? kTrainDraws : kValidationDraws;
  at::manual_seed(step_seed(place_.seed ^ draws, pass_, number, place_.rank));
}

void StreamReader::begin(int pass) {
  forget();
  pass_ = pass;
  next_ = 0;
  seed(kBegin);
  opened_.made->begin(Pass{public_split(place_.split), pass, place_.rank, place_.world_size});
  state_ = opened_.made->state();
}

void StreamReader::load(const std::vector<nlohmann::json>& states, std::int64_t turns) {
  forget();
  next_ = turns;
  const bool is_resized = states.size() != static_cast<std::size_t>(place_.world_size);
  try {
    if (is_resized) {
      opened_.made->load_states(states);
    } else {
      opened_.made->load_state(states[static_cast<std::size_t>(place_.rank)]);
    }
    state_ = opened_.made->state();
  } catch (const std::exception& error) {
    if (!is_resized)
      throw std::runtime_error(
          fmt::format("the data set \"{}\" cannot go on in the middle of pass {}: {}", name(), pass_, error.what()));
    throw std::runtime_error(fmt::format(
        "the data set \"{}\" cannot go on in the middle of pass {}, which {} ranks have started, with {}: {}. "
        "With \"min_workers\": {} a run waits for as many workers as it had",
        name(), pass_, states.size(), place_.world_size, error.what(), states.size()));
  }
}

StreamReader::Piece StreamReader::make(std::int64_t number) {
  Piece piece;
  if (is_over_) return piece;
  try {
    seed(number);
    piece.batch = opened_.made->next(place_.batch_size);
    if (piece.batch) check(*piece.batch);
    piece.state = opened_.made->state();
  } catch (...) {
    piece.error = std::current_exception();
  }
  is_over_ = piece.error || !piece.batch;
  return piece;
}

bool StreamReader::read() {
  if (!is_threaded()) {
    pieces_.push_back(make(next_++));
  } else {
    if (!ahead_) {
      const StackSignalBlock stays_with_training;
      ahead_ = std::make_unique<Prefetch<Piece>>(
          1, place_.loader.prefetch, std::numeric_limits<std::int64_t>::max(),
          [this, first = next_](std::int64_t number, const std::atomic<bool>& /*is_ending*/) {
            return make(first + number);
          });
    }
    ++next_;
    std::optional<Piece> piece = ahead_->take();
    SGD_ASSERT(piece.has_value());
    pieces_.push_back(std::move(*piece));
  }
  return pieces_.back().batch || pieces_.back().error;
}

std::int64_t StreamReader::samples_read() const {
  if (pieces_.empty() || !pieces_.back().batch || pieces_.back().error) return 0;
  return pieces_.back().batch->features.size(0);
}

Batch StreamReader::take() {
  SGD_ASSERT(!pieces_.empty());
  if (pieces_.front().error) std::rethrow_exception(pieces_.front().error);
  SGD_ASSERT(pieces_.front().batch.has_value());
  return *pieces_.front().batch;
}

void StreamReader::done() {
  SGD_ASSERT(!pieces_.empty());
  if (pieces_.front().batch) state_ = std::move(pieces_.front().state);
  pieces_.pop_front();
}

void StreamReader::check(const Batch& batch) const {
  const auto refuse = [this](const std::string& what) {
    throw std::logic_error(fmt::format("the data set \"{}\": next() {}", name(), what));
  };
  const std::int64_t rows = batch.features.defined() && batch.features.dim() > 0 ? batch.features.size(0) : 0;
  const auto check_one = [&](const char* called, const at::Tensor& tensor) {
    if (!tensor.defined()) refuse(fmt::format("leaves {} undefined", called));
    if (tensor.dim() == 0 || tensor.size(0) != rows)
      refuse(
          fmt::format("gives {} with the shape [{}], and features with [{}]: the first size of both must be the "
                      "number of samples",
                      called, fmt::join(tensor.sizes(), ", "), fmt::join(batch.features.sizes(), ", ")));
  };
  if (!batch.features.defined()) refuse("leaves features undefined");
  if (rows < 1 || rows > place_.batch_size)
    refuse(fmt::format("was asked for 1 to {} samples, and gives features with the shape [{}]", place_.batch_size,
                       fmt::join(batch.features.sizes(), ", ")));
  for (const at::Tensor& one : batch.further) check_one("a tensor of further", one);
  check_one("target", batch.target);
}

}  // namespace sgd::worker
