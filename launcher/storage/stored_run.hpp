#pragma once
// A run as a row of the event store: what stays known of it when its events are cut off, and where its lines begin.

#include <cstdint>
#include <string>

#include "common/base/ids.hpp"

namespace sgd::storage {

/// Lines of the two files of a run directory.
struct LineCounts {
  std::int64_t events = 0;   ///< events.jsonl
  std::int64_t metrics = 0;  ///< metrics.jsonl
};

struct StoredRun {
  RunId id;
  std::string name;  ///< Of the job.
  std::string owner;
  std::string request_id;  ///< Of the request that submitted it; may be empty.
  std::string run_dir;     ///< Absolute.
  int num_workers = 0;
  std::string state;  ///< Final state; empty while it is live.
  int exit_code = 0;
  double submitted_s = 0;   ///< Unix time.
  double finished_s = 0;    ///< Unix time; 0: live, or not all of its lines and its summary are written yet.
  double wall_s = 0;        ///< Of an ended one.
  LineCounts lines_before;  ///< In the folder when it was submitted.
  std::string summary;      ///< JSON, as in summary.json; empty while it is live.

  [[nodiscard]] bool is_finished() const { return finished_s > 0; }
};

}  // namespace sgd::storage
