#pragma once
// Turns what happens to a run into lines for people: epochs as results, transitions as
// narration, the end of a failed run as one block that begins with the root cause.

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/ids.hpp"
#include "common/json/nlohmann.hpp"
#include "launcher/core/coordinator_io.hpp"
#include "launcher/core/snapshot.hpp"

namespace sgd::cli {

/// What a line of metrics.jsonl says, in 80 columns: "epoch 1/5  train_loss 0.6123  lr 0.05  12.4k samples/s", and
/// after validation "epoch 1/5  val_loss 0.4711  val_accuracy 0.8312"; nothing of a report amid an epoch's training.
/// `epochs`: of the job.
[[nodiscard]] std::string epoch_line(const nlohmann::ordered_json& metrics, int epochs);

/// A transition worth a line, or nothing.
[[nodiscard]] std::string narrate_event(const nlohmann::ordered_json& event);
/// The same of what logs lack, where it is about this rank and this generation (nothing: any); else empty.
[[nodiscard]] std::string narrate_lost(const nlohmann::ordered_json& event, std::optional<Rank> rank,
                                       std::optional<int> generation);
/// It says that something has failed, or is waited for: for those, too, who want no progress.
[[nodiscard]] bool is_trouble(const nlohmann::ordered_json& event);

/// "step 1200/6250  epoch 2/5  loss 0.412  failures 1  eta 03:12  12.4k samples/s  2/2 workers"; without what nobody
/// has measured yet. `steps_before` were made before this life of the run and took none of its time.
[[nodiscard]] std::string status_line(const core::RunSnapshot& snapshot, std::int64_t steps_total,
                                      std::int64_t steps_before = 0);

/// The end of a run that did not fail: how long it took, how far it came, and below that where its model is. `job` is
/// the resolved one, `run_dir` as people would type it, `run` how they would name it to a verb.
[[nodiscard]] std::string end_block(const core::RunOutcome& outcome, const std::string& run_dir, const std::string& run,
                                    const nlohmann::json& job);

/// Root cause, who, when, its traceback or last lines, what was retried, log, what to type next. `run` is how people
/// would name it to a verb; `failed_at_s`: of the wall clock, where the cause itself does not tell; 0: not known.
[[nodiscard]] std::string failure_block(const core::RunOutcome& outcome, const std::string& run_dir,
                                        const std::string& run, bool color, double failed_at_s = 0);

/// "2 epochs, 12,500 steps", as far as a run has made any.
[[nodiscard]] std::string progress_text(int epochs, std::int64_t steps);

/// "9.8", "12.4k", "1.3M".
[[nodiscard]] std::string short_number(double value);

}  // namespace sgd::cli
