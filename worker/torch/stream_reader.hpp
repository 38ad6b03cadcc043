#pragma once
// One rank's stream over one split, read ahead of training. With each batch goes the state that the stream had behind
// it: however far ahead it has been read, state() is that of the batches that are done.

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "common/job/spec.hpp"
#include "common/json/nlohmann.hpp"
#include "worker/data/prefetch.hpp"
#include "worker/torch/datasets.hpp"

namespace sgd::worker {

/// Who reads, and what.
struct StreamPlace {
  Split split = Split::kTrain;
  int rank = 0;
  int world_size = 1;
  std::int64_t batch_size = 1;  ///< Of one rank.
  std::uint64_t seed = 0;       ///< The job's.
  job::Loader loader{0, 1};     ///< With threads one reads ahead, since a stream has an order.
};

class StreamReader {
 public:
  StreamReader(OpenedStream opened, const StreamPlace& place);

  [[nodiscard]] const std::string& name() const { return opened_.name; }
  [[nodiscard]] const StreamPlace& place() const { return place_; }

  void begin(int pass);
  /// After begin(): goes on behind `turns` batches, with the states of all ranks that had read them. Throws what the
  /// stream throws, with its name.
  void load(const std::vector<nlohmann::json>& states, std::int64_t turns);

  /// Reads one more; false: the rank's part of the pass is over. What goes wrong is thrown by take().
  [[nodiscard]] bool read();
  /// Samples of the last one read.
  [[nodiscard]] std::int64_t samples_read() const;
  /// The first of those that were read, and are not done.
  [[nodiscard]] Batch take();
  /// That one is done; where it was the end, nothing changes.
  void done();
  /// Behind what is done.
  [[nodiscard]] const nlohmann::json& state() const { return state_; }

 private:
  struct Piece {
    std::optional<Batch> batch;
    nlohmann::json state;
    std::exception_ptr error;
  };

  [[nodiscard]] bool is_threaded() const { return place_.loader.threads.value_or(0) > 0; }
  void forget();
  void seed(std::int64_t number) const;
  [[nodiscard]] Piece make(std::int64_t number);
  void check(const Batch& batch) const;

  OpenedStream opened_;
  StreamPlace place_;
  int pass_ = 0;
  std::int64_t next_ = 0;  // Number in the pass of the one to be read next.
  bool is_over_ = false;   // Nothing is read behind an end or an error. Of the thread, where there is one.
  std::deque<Piece> pieces_;
  nlohmann::json state_;
  std::unique_ptr<Prefetch<Piece>> ahead_;  // Last: its thread uses what is above.
};

}  // namespace sgd::worker
