#pragma once
// The fields of the coordinator's machine beside its runs, each once, for writing and reading; as run_state_fields.hpp.

#include "launcher/core/coordinator_state.hpp"
#include "launcher/storage/experiment_fields.hpp"
#include "launcher/storage/run_state_fields.hpp"

namespace sgd::codec {

template <>
struct Coding<cluster::NodeState> {
  static Json write(const cluster::NodeState& value) { return cluster::to_json(cluster::FromAgent(value)); }
  static Status read(const Json& json, const std::string& key, cluster::NodeState& out) {
    return take_kind(cluster::from_agent_of(json), key, out);
  }
};

template <>
inline constexpr auto kMessage<job::PerWorker> = message("", required("cpus", &job::PerWorker::cpus),
                                                         required("gpus", &job::PerWorker::gpus),
                                                         required("memory_bytes", &job::PerWorker::memory_bytes));
template <>
inline constexpr auto kMessage<core::CoordinatorState::Leftover> =
    message("", required("per_worker", &core::CoordinatorState::Leftover::per_worker),
            required("workers", &core::CoordinatorState::Leftover::workers),
            optional("generation", &core::CoordinatorState::Leftover::generation),
            optional("uid", &core::CoordinatorState::Leftover::uid),
            optional("is_foreign", &core::CoordinatorState::Leftover::is_foreign));
template <>
inline constexpr auto kMessage<core::CoordinatorState::Node> =
    message("", required("incarnation", &core::CoordinatorState::Node::incarnation),
            required("state", &core::CoordinatorState::Node::state),
            required("last_fact", &core::CoordinatorState::Node::last_fact),
            required("heard_at", &core::CoordinatorState::Node::heard_at),
            required("look_at", &core::CoordinatorState::Node::look_at),
            required("is_closed", &core::CoordinatorState::Node::is_closed),
            required("is_linked", &core::CoordinatorState::Node::is_linked),
            required("suspect_until", &core::CoordinatorState::Node::suspect_until),
            required("lost_at", &core::CoordinatorState::Node::lost_at),
            required("leftovers", &core::CoordinatorState::Node::leftovers),
            required("forgotten", &core::CoordinatorState::Node::forgotten));
template <>
inline constexpr auto kMessage<core::CoordinatorState::NodeCondition> =
    message("", required("is_drained", &core::CoordinatorState::NodeCondition::is_drained),
            required("slots", &core::CoordinatorState::NodeCondition::slots),
            required("flaps", &core::CoordinatorState::NodeCondition::flaps),
            required("unstable_until", &core::CoordinatorState::NodeCondition::unstable_until));
template <>
inline constexpr auto kMessage<core::CoordinatorState::Ticket> =
    message("", required("submission", &core::CoordinatorState::Ticket::submission),
            required("passed_by", &core::CoordinatorState::Ticket::passed_by),
            required("startable_since", &core::CoordinatorState::Ticket::startable_since),
            optional("gave_way", &core::CoordinatorState::Ticket::gave_way));

}  // namespace sgd::codec
