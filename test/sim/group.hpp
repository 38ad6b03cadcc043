#pragma once
// What the ranks of one generation of a training run do together: restore, steps, validation, reports,
// checkpoints, agreement on stop and leave, the last barrier. A rank that ends before the barrier breaks
// the group: survivors exit with 75 some time later, or hang until they are killed. A rank that stands
// still holds all others up.
//
//   joined by all --> restore --> train steps --> report --> validation --> report --> end of epoch --> ... --> barrier
//
// Follows worker/torch/trainer.cpp and restorer.cpp; which state wins is worker/core's own choice.

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/ids.hpp"
#include "test/sim/point.hpp"
#include "test/sim/world.hpp"
#include "worker/core/restore_choice.hpp"

namespace sgd::sim {

class Worker;
struct RunState;

class Group {
 public:
  Group(World& world, RunState& run, Generation generation, int world_size);

  void join(Worker& worker);
  /// Its process has ended.
  void on_end(Worker& worker);
  /// Somebody stands still: the others wait inside a collective.
  void look_for_waiting();
  [[nodiscard]] std::int64_t steps() const { return point_.step; }
  /// Nobody is in it any more.
  [[nodiscard]] bool is_over() const;

 private:
  struct Restored {
    worker::RestoreSource source = worker::RestoreSource::kFresh;
    std::string path;
  };

  void restore();
  [[nodiscard]] std::vector<worker::MemoryOffer> offers();
  [[nodiscard]] Restored choose_disk(const std::optional<worker::MemoryOffer>& memory);
  void announce(const Restored& restored);
  void plan_step();
  void step();
  void end_phase();
  void end_epoch();
  void report();
  /// False: the group ends here.
  [[nodiscard]] bool act(bool checkpoint, bool leave);
  void save_to_memory();
  void save_to_disk();
  void write_done(const Point& point);
  [[nodiscard]] std::string put_on_disk(const Point& point);
  void leave_if_on_disk();
  void finish(int exit_code);
  void publish(const char* phase);
  [[nodiscard]] bool saves_by_itself() const;
  [[nodiscard]] bool stands_still() const;
  [[nodiscard]] std::int64_t samples() const;
  [[nodiscard]] Worker* leader() { return members_.front(); }
  /// The group does `next` after `delay`, when it is still whole.
  template <class Next>
  void later(Duration delay, Next next);

  World& world_;
  RunState& run_;
  Generation generation_;
  std::vector<Worker*> members_;  ///< By rank; null: not yet joined.
  int joined_ = 0;
  bool broken_ = false;
  bool past_barrier_ = false;
  Point point_;
  bool memory_ready_ = false;
  bool has_stepped_ = false;
  TimePoint memory_due_{};
  TimePoint writer_free_at_{};
  TimePoint last_save_{};
  std::optional<worker::MemoryPoint> saved_;  ///< Newest place that was given to the writer.
  bool last_on_disk_ = false;
  bool writing_ = false;
  Point in_writing_;
};

}  // namespace sgd::sim
