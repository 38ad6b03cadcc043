#pragma once
// Turns what happens to a run into lines for people: epochs as results, transitions as
// narration, the end of a failed run as one block that begins with the root cause.

#include <string>

#include "common/json/nlohmann.hpp"
#include "launcher/core/coordinator_io.hpp"
#include "launcher/core/snapshot.hpp"

namespace sgd::cli {

/// "epoch 1/5  train_loss 0.6123  val_loss 0.4711  val_accuracy 0.8312  12.4k samples/s", or nothing yet:
/// the train line is kept until the validation line of its epoch comes.
class EpochLines {
 public:
  /// `open_train`: the train line of an epoch whose validation an earlier life of the run did not reach, or null.
  explicit EpochLines(int epochs, nlohmann::ordered_json open_train = {})
      : epochs_(epochs), train_(std::move(open_train)) {}
  [[nodiscard]] std::string add(const nlohmann::ordered_json& metrics);

 private:
  int epochs_;
  nlohmann::ordered_json train_;
};

/// A transition worth a line, or nothing. `run_dir` as people would type it.
[[nodiscard]] std::string narrate_event(const nlohmann::ordered_json& event, const std::string& run_dir);

/// "step 1200/6250  loss 0.412  12.4k samples/s  2/2 workers  eta 03:12".
/// `steps_before` were made before this life of the run and took none of its time.
[[nodiscard]] std::string status_line(const core::RunSnapshot& snapshot, std::int64_t steps_total,
                                      std::int64_t steps_before = 0);

/// Last line of a run that did not fail. `job` is the resolved one.
[[nodiscard]] std::string success_line(const core::RunOutcome& outcome, const std::string& run_dir,
                                       const nlohmann::json& job);

/// Root cause, who, when, its traceback or last lines, what was retried, log, what to type next. `run` is how people
/// would name it to a verb; `failed_at_s`: of the wall clock, where the cause itself does not tell; 0: not known.
[[nodiscard]] std::string failure_block(const core::RunOutcome& outcome, const std::string& run_dir,
                                        const std::string& run, bool color, double failed_at_s = 0);

/// "9.8", "12.4k", "1.3M".
[[nodiscard]] std::string short_number(double value);

}  // namespace sgd::cli
