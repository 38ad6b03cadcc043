#pragma once
// The fields of an experiment's machine, each once, for writing and reading; as run_state_fields.hpp.

#include "launcher/core/experiment_state.hpp"
#include "launcher/storage/run_state_fields.hpp"

namespace sgd::codec {

template <>
struct Coding<core::TrialPhase> : NamedCoding<core::TrialPhase, core::TrialPhase::kEnded> {};
template <>
inline constexpr auto kEnumNames<tune::Outcome> =
    std::array<std::pair<tune::Outcome, const char*>, 4>{{{tune::Outcome::kCompleted, "completed"},
                                                          {tune::Outcome::kStopped, "stopped"},
                                                          {tune::Outcome::kFailed, "failed"},
                                                          {tune::Outcome::kCancelled, "cancelled"}}};
template <>
inline constexpr auto kMessage<core::BestState> = message("", required("values", &core::BestState::values),
                                                          required("origin", &core::BestState::origin),
                                                          required("checkpoint", &core::BestState::checkpoint));
template <>
inline constexpr auto kMessage<core::HeldCopy> = message(
    "", required("donor", &core::HeldCopy::donor), required("donor_iteration", &core::HeldCopy::donor_iteration),
    required("donor_step", &core::HeldCopy::donor_step), required("donor_clones", &core::HeldCopy::donor_clones),
    required("iteration", &core::HeldCopy::iteration), required("step", &core::HeldCopy::step),
    required("since", &core::HeldCopy::since), required("limit", &core::HeldCopy::limit));
template <>
inline constexpr auto kMessage<core::TrialRecord> =
    message("", required("phase", &core::TrialRecord::phase), required("values", &core::TrialRecord::values),
            required("reports", &core::TrialRecord::reports), required("iteration", &core::TrialRecord::iteration),
            required("value", &core::TrialRecord::value), required("best", &core::TrialRecord::best),
            required("best_iteration", &core::TrialRecord::best_iteration),
            optional("best_state", &core::TrialRecord::best_state), required("outcome", &core::TrialRecord::outcome),
            required("reason", &core::TrialRecord::reason), required("checkpoint", &core::TrialRecord::checkpoint),
            required("wall_s", &core::TrialRecord::wall_s), required("failures", &core::TrialRecord::failures),
            required("silent_lines", &core::TrialRecord::silent_lines), optional("steps", &core::TrialRecord::steps),
            required("origin", &core::TrialRecord::origin), required("clones", &core::TrialRecord::clones),
            required("taken", &core::TrialRecord::taken), required("next", &core::TrialRecord::next),
            required("waits", &core::TrialRecord::waits), optional("held", &core::TrialRecord::held),
            required("interrupted", &core::TrialRecord::interrupted));
template <>
inline constexpr auto kMessage<core::ExperimentState> = message(
    "", required("definition", &core::ExperimentState::definition_),
    required("submitted_at", &core::ExperimentState::submitted_at_),
    optional("resumed_at", &core::ExperimentState::resumed_at_),
    optional("worked_s", &core::ExperimentState::worked_s_), optional("trials", &core::ExperimentState::trials_),
    optional("copies", &core::ExperimentState::copies_), required("next", &core::ExperimentState::next_),
    required("best", &core::ExperimentState::best_), required("at_work", &core::ExperimentState::at_work_),
    required("paused", &core::ExperimentState::paused_), required("ended", &core::ExperimentState::ended_),
    required("failed", &core::ExperimentState::failed_), required("unplaced", &core::ExperimentState::unplaced_),
    required("first_error", &core::ExperimentState::first_error_),
    required("is_metric_known", &core::ExperimentState::is_metric_known_),
    required("is_metric_missed", &core::ExperimentState::is_metric_missed_),
    required("has_told_last", &core::ExperimentState::has_told_last_), required("owed", &core::ExperimentState::owed_),
    optional("unmade", &core::ExperimentState::unmade_), required("owed_since", &core::ExperimentState::owed_since_),
    required("no_more", &core::ExperimentState::no_more_),
    required("search_error", &core::ExperimentState::search_error_),
    optional("search_ended", &core::ExperimentState::search_ended_),
    required("is_over", &core::ExperimentState::is_over_), required("stop", &core::ExperimentState::stop_),
    required("outcome", &core::ExperimentState::outcome_), required("scheduler", &core::ExperimentState::scheduler_));

}  // namespace sgd::codec
