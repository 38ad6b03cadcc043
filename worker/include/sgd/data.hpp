#pragma once
// Data of one's own, registered under a name for a job's "dataset":
//
//   class Words : public sgd::Dataset {
//    public:
//     explicit Words(const nlohmann::json& settings);
//     std::int64_t count(sgd::Split split) const override;
//     sgd::Batch gather(sgd::Split split, int epoch, std::span<const std::int64_t> indices) const override;
//   };
//   SGD_REGISTER_DATASET("words", Words, R"({"file": {"type": "string", "x-path": true}})");
//
// Which samples a rank takes, in which order, and from where after a failure is the worker's: a data set only makes the
// samples it is asked for. One object is made on each node, before its ranks are forked, so they share its memory:
// while it is made it starts no thread that stays.

//
// Data without a known size or order (a socket, a generator, files that are larger than memory) is an IterableDataset,
// registered in the same way: each rank reads a stream of its own, whose position is in every checkpoint.

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include <nlohmann/json.hpp>

#include "sgd/model.hpp"

namespace sgd {

enum class Split { kTrain, kValidation };

class Dataset {
 public:
  virtual ~Dataset() = default;

  /// What a model that a job names must know; the default says nothing.
  [[nodiscard]] virtual SampleShape shape() const { return {{}, 0}; }
  /// Samples of a split, 1 to 2^32 - 1; the same on every node. With 0 to validate on no epoch is validated. Of one of
  /// "training.datasets" only the part that is used must have some.
  [[nodiscard]] virtual std::int64_t count(Split split) const = 0;
  /// The samples with these numbers, from 0, in this order: the first size of each tensor is their number. What a
  /// sample is may depend on its number and the epoch (from 1), and on nothing else, so that a rank that goes on after
  /// a failure gets the same. Called by several threads at once when the job's "loader" has some. Throws on bad data.
  [[nodiscard]] virtual Batch gather(Split split, int epoch, std::span<const std::int64_t> indices) const = 0;
  /// Whether a batch takes so long that it is made ahead, in threads, where the job does not say.
  [[nodiscard]] virtual bool is_slow() const { return false; }
};

/// One pass over a split, as one rank reads it.
struct Pass {
  Split split = Split::kTrain;
  int number = 1;  ///< From 1. Of validation: the epoch.
  int rank = 0;    ///< Whose part is read: every rank has another part of the pass.
  int world_size = 1;
};

/// Batches that come one after another. Every rank has an object of its own for each split that it reads, made in its
/// own process: it may open files and sockets, and start threads. One more may be made before there are ranks, only to
/// be asked for its shape(): the constructor opens nothing, begin() does.
///
///   begin(pass) ─► next(n) ─► next(n) ─► ... ─► nothing ─► begin(the pass behind it)
///        └► load_state(s) after a failure, in the middle of that pass
///
/// What next() gives may depend on the pass, on the calls before it, and on LibTorch's generators, which are seeded
/// before each call: then a rank that goes on after a failure gets what it would have got, and no bit changes. With the
/// job's "loader": {"threads": 1} it is called ahead of training by a thread, always the same one at a time, and
/// generators are not seeded: what it draws comes from one of its own.
class IterableDataset {
 public:
  virtual ~IterableDataset() = default;

  /// What a model that a job names must know; the default says nothing.
  [[nodiscard]] virtual SampleShape shape() const { return {{}, 0}; }
  /// From the pass's beginning; whatever was read of another is over.
  virtual void begin(const Pass& pass) = 0;
  /// The next 1 to `batch_size` samples of this rank: the first size of each tensor is their number. Nothing: its part
  /// of the pass ends. It may wait for data, but not longer than the job's heartbeat.stall_timeout. Throws on bad data.
  virtual std::optional<Batch> next(std::int64_t batch_size) = 0;
  /// Where the stream is, after begin() or any next(). Called after each of them, so it is short: at most 1 MiB as
  /// JSON.
  [[nodiscard]] virtual nlohmann::json state() const = 0;
  /// After begin(): what comes next is what came behind that state. Throws where it cannot be.
  virtual void load_state(const nlohmann::json& state) = 0;
  /// In its place where the number of ranks has changed inside the pass: the states of all the ranks that there were,
  /// by rank. Each sample that none of them has got must go to one of the ranks that there are now. The default
  /// refuses.
  virtual void load_states(const std::vector<nlohmann::json>& states) {
    (void)states;
    throw std::runtime_error(
        "it does not override load_states(), which divides what is left of a pass among the ranks");
  }
};

}  // namespace sgd
