#pragma once
// The fields of a run's machine, each once, for writing and reading: a struct with a field that is missing here does
// not compile (codec::covers).

#include "common/messages/link_fields.hpp"
#include "common/messages/rank_error_fields.hpp"
#include "common/messages/state_codec.hpp"
#include "launcher/core/run_state.hpp"
#include "launcher/storage/run_coding.hpp"

namespace sgd::codec {

template <>
struct Coding<core::RunPhase> : NamedCoding<core::RunPhase, core::RunPhase::kFinished> {};
template <>
struct Coding<core::RankPhase> : NamedCoding<core::RankPhase, core::RankPhase::kExited> {};
template <>
struct Coding<core::FailureKind> : NamedCoding<core::FailureKind, core::FailureKind::kNodeRefused> {};
template <>
inline constexpr auto kEnumNames<core::RunState::Leave> =
    std::array<std::pair<core::RunState::Leave, const char*>, 3>{{{core::RunState::Leave::kNo, "no"},
                                                                  {core::RunState::Leave::kAtBoundary, "at_boundary"},
                                                                  {core::RunState::Leave::kNow, "now"}}};

template <>
struct Coding<core::RunDefinition> {
  static Json write(const core::RunDefinition& value) { return storage::to_json(value); }
  static Status read(const Json& json, const std::string&, core::RunDefinition& out) {
    auto definition = storage::run_definition_of(json);
    if (!definition) return definition.error();
    out = std::move(definition).value();
    return {};
  }
};
template <>
struct Coding<core::StopRequest> {
  static Json write(const core::StopRequest& value) { return storage::to_json(value); }
  static Status read(const Json& json, const std::string&, core::StopRequest& out) {
    return storage::read_stop_request(json, out);
  }
};

template <>
inline constexpr auto kMessage<job::Backoff> = message("", required("first", &job::Backoff::first),
                                                       required("factor", &job::Backoff::factor),
                                                       required("attempts", &job::Backoff::attempts));
template <>
inline constexpr auto kMessage<core::Failure> =
    message("", required("kind", &core::Failure::kind), required("rank", &core::Failure::rank),
            required("subject", &core::Failure::subject), required("node", &core::Failure::node),
            required("pid", &core::Failure::pid), required("exit_code", &core::Failure::exit_code),
            required("signal", &core::Failure::signal), required("core_dumped", &core::Failure::core_dumped),
            required("is_final", &core::Failure::is_final), required("message", &core::Failure::message),
            required("tail", &core::Failure::tail), required("may_follow", &core::Failure::may_follow),
            required("was_waiting", &core::Failure::was_waiting), required("notice_s", &core::Failure::notice_s),
            required("error", &core::Failure::error), required("follows_peer", &core::Failure::follows_peer),
            optional("gpu", &core::Failure::gpu), required("at", &core::Failure::at));
template <>
inline constexpr auto kMessage<core::NodePlace> = message("", required("node", &core::NodePlace::node),
                                                          required("ranks", &core::NodePlace::ranks));
template <>
inline constexpr auto kMessage<core::Placement> = message("", required("world_size", &core::Placement::world_size),
                                                          required("nodes", &core::Placement::nodes),
                                                          required("available", &core::Placement::available),
                                                          required("reason", &core::Placement::reason));
template <>
inline constexpr auto kMessage<core::NodeView> = message("", required("address", &core::NodeView::address),
                                                         required("is_closed", &core::NodeView::is_closed),
                                                         required("is_drained", &core::NodeView::is_drained),
                                                         required("is_leaving", &core::NodeView::is_leaving));
template <>
inline constexpr auto kMessage<core::Offer> = message("", required("nodes", &core::Offer::nodes),
                                                      required("placement", &core::Offer::placement),
                                                      required("reason", &core::Offer::reason),
                                                      required("fits_idle", &core::Offer::fits_idle),
                                                      required("growth", &core::Offer::growth));
template <>
inline constexpr auto kMessage<core::RunOutcome> =
    message("", required("state", &core::RunOutcome::state), required("exit_code", &core::RunOutcome::exit_code),
            required("error", &core::RunOutcome::error), required("cause", &core::RunOutcome::cause),
            required("generation", &core::RunOutcome::generation), required("epochs", &core::RunOutcome::epochs),
            optional("job_epochs", &core::RunOutcome::job_epochs), required("steps", &core::RunOutcome::steps),
            required("failures", &core::RunOutcome::failures), required("world_size", &core::RunOutcome::world_size),
            required("wall_s", &core::RunOutcome::wall_s), required("metrics", &core::RunOutcome::metrics),
            required("checkpoint", &core::RunOutcome::checkpoint),
            optional("best_checkpoints", &core::RunOutcome::best_checkpoints),
            required("results", &core::RunOutcome::results), optional("tune", &core::RunOutcome::tune));
template <>
inline constexpr auto kMessage<core::ExchangeState> = message("",
                                                              required("world_size", &core::ExchangeState::world_size_),
                                                              required("values", &core::ExchangeState::values_),
                                                              required("bytes", &core::ExchangeState::bytes_));
template <>
inline constexpr auto kMessage<core::ReducerState::Pending> = message(
    "", required("key", &core::ReducerState::Pending::key), metrics("metrics", &core::ReducerState::Pending::metrics),
    optional("bytes", &core::ReducerState::Pending::bytes));
template <>
inline constexpr auto kMessage<core::ReducerState> = message("", required("pending", &core::ReducerState::pending_),
                                                             optional("pending_bytes",
                                                                      &core::ReducerState::pending_bytes_),
                                                             required("written", &core::ReducerState::written_),
                                                             required("dropped", &core::ReducerState::dropped_));
template <>
inline constexpr auto kMessage<core::CauseState> = message("", required("cause", &core::CauseState::cause_));
template <>
inline constexpr auto kMessage<core::RetryState> = message(
    "", required("backoff", &core::RetryState::backoff_), required("max_failures", &core::RetryState::max_failures_),
    required("failures", &core::RetryState::failures_), required("is_training", &core::RetryState::is_training_),
    required("attempts", &core::RetryState::attempts_), required("waits", &core::RetryState::waits_),
    required("failed_starts", &core::RetryState::failed_starts_), optional("refusals", &core::RetryState::refusals_),
    optional("repeats", &core::RetryState::repeats_), optional("asks_again", &core::RetryState::asks_again_),
    required("crashed_rank", &core::RetryState::crashed_rank_), required("crashes", &core::RetryState::crashes_),
    required("crashed_step", &core::RetryState::crashed_step_), required("error", &core::RetryState::error_),
    required("errors", &core::RetryState::errors_), required("error_step", &core::RetryState::error_step_),
    required("error_lived", &core::RetryState::error_lived_),
    required("quick_crashes", &core::RetryState::quick_crashes_));
template <>
inline constexpr auto kMessage<core::RecoveryState> =
    message("", required("cause", &core::RecoveryState::cause_), required("clear", &core::RecoveryState::clear_),
            required("wait", &core::RecoveryState::wait_), required("start", &core::RecoveryState::start_),
            required("mark", &core::RecoveryState::mark_), required("ready_at", &core::RecoveryState::ready_at_),
            required("restore_s", &core::RecoveryState::restore_s_), required("ready", &core::RecoveryState::ready_));
template <>
inline constexpr auto kMessage<core::RunState::NodeRecord> = message(
    "", required("node_rank", &core::RunState::NodeRecord::node_rank),
    required("ranks", &core::RunState::NodeRecord::ranks), required("cleared", &core::RunState::NodeRecord::cleared),
    required("lost", &core::RunState::NodeRecord::lost));
template <>
inline constexpr auto kMessage<core::RunState::RankRecord> =
    message("", required("node", &core::RunState::RankRecord::node), required("pid", &core::RunState::RankRecord::pid),
            required("phase", &core::RunState::RankRecord::phase),
            required("first_step", &core::RunState::RankRecord::first_step),
            required("heartbeat", &core::RunState::RankRecord::heartbeat),
            required("heartbeat_at", &core::RunState::RankRecord::heartbeat_at),
            required("exited", &core::RunState::RankRecord::exited),
            required("done", &core::RunState::RankRecord::done), required("left", &core::RunState::RankRecord::left),
            required("missed_peer", &core::RunState::RankRecord::missed_peer),
            optional("gpus", &core::RunState::RankRecord::gpus));
template <>
inline constexpr auto kMessage<core::RunState::HeldCheckpoint> =
    message("", required("after", &core::RunState::HeldCheckpoint::after),
            required("checkpoint", &core::RunState::HeldCheckpoint::checkpoint));
template <>
inline constexpr auto kMessage<core::Arrival> = message("", required("path", &core::Arrival::path),
                                                        required("accepted", &core::Arrival::is_accepted),
                                                        required("stored", &core::Arrival::is_stored));
template <>
inline constexpr auto kMessage<core::RunState> = message(
    "", required("definition", &core::RunState::definition_), required("submitted_at", &core::RunState::submitted_at_),
    required("phase", &core::RunState::phase_), required("generation", &core::RunState::generation_),
    required("generation_uid", &core::RunState::generation_uid_),
    required("desired_generation", &core::RunState::desired_generation_),
    required("desired_uid", &core::RunState::desired_uid_), required("newest_held", &core::RunState::newest_held_),
    required("start_by", &core::RunState::start_by_), required("first_generation", &core::RunState::first_generation_),
    required("placement", &core::RunState::placement_), required("before", &core::RunState::before_),
    required("trained", &core::RunState::trained_), required("master_port", &core::RunState::master_port_),
    optional("worker_ports", &core::RunState::worker_ports_), required("offered", &core::RunState::offered_),
    required("views", &core::RunState::views_), required("touched", &core::RunState::touched_),
    required("addresses", &core::RunState::addresses_), required("nodes", &core::RunState::nodes_),
    required("ranks", &core::RunState::ranks_), required("ranks_started", &core::RunState::ranks_started_),
    required("ranks_exited", &core::RunState::ranks_exited_), optional("ranks_ready", &core::RunState::ranks_ready_),
    optional("ranks_stepped", &core::RunState::ranks_stepped_),
    required("nodes_cleared", &core::RunState::nodes_cleared_), required("exchange", &core::RunState::exchange_),
    required("reducer", &core::RunState::reducer_), required("causes", &core::RunState::causes_),
    required("budget", &core::RunState::budget_), required("recovery", &core::RunState::recovery_),
    optional("gpu_faults", &core::RunState::gpu_faults_), optional("refusing", &core::RunState::refusing_),
    optional("ask_again_at", &core::RunState::ask_again_at_),
    optional("has_lost_words", &core::RunState::has_lost_words_),
    optional("has_cleared", &core::RunState::has_cleared_), required("was_started", &core::RunState::was_started_),
    optional("has_state", &core::RunState::has_state_), optional("started_at", &core::RunState::started_at_),
    required("leave", &core::RunState::leave_), required("resize_reason", &core::RunState::resize_reason_),
    required("start_at_capacity", &core::RunState::start_at_capacity_),
    required("wait_until", &core::RunState::wait_until_), required("is_queued", &core::RunState::is_queued_),
    optional("is_paused", &core::RunState::is_paused_), optional("takes_state", &core::RunState::takes_state_),
    required("placeless_since", &core::RunState::placeless_since_), required("grow_at", &core::RunState::grow_at_),
    required("looks_for_room", &core::RunState::looks_for_room_),
    required("first_exit_at", &core::RunState::first_exit_at_), required("straggler", &core::RunState::straggler_),
    optional("mismatches_told", &core::RunState::mismatches_told_),
    optional("drops_told", &core::RunState::drops_told_),
    required("held_checkpoints", &core::RunState::held_checkpoints_), required("unsaved", &core::RunState::unsaved_),
    required("keepers_from", &core::RunState::keepers_from_), required("checkpoints", &core::RunState::checkpoints_),
    optional("files_travel", &core::RunState::files_travel_), optional("arrivals", &core::RunState::arrivals_),
    optional("compared_step", &core::RunState::compared_step_), optional("come", &core::RunState::come_),
    optional("scores", &core::RunState::scores_), required("stop", &core::RunState::stop_),
    required("outcome", &core::RunState::outcome_), required("steps_told", &core::RunState::steps_told_),
    required("last_report_at", &core::RunState::last_report_at_),
    required("reports_written", &core::RunState::reports_written_));

}  // namespace sgd::codec
