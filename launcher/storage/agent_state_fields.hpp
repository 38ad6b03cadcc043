#pragma once
// The fields of an agent's machine, each once, for writing and reading: a struct with a field that is missing here does
// not compile (codec::covers).

#include <array>
#include <utility>

#include "common/messages/frame.hpp"
#include "common/messages/link_fields.hpp"
#include "common/messages/state_codec.hpp"
#include "launcher/core/agent.hpp"

namespace sgd::codec {

// ---- messages that are kept ----

template <class Message>
struct KeptFromAgent {
  static Json write(const Message& value) { return cluster::to_json(cluster::FromAgent(value)); }
  static Status read(const Json& json, const std::string& key, Message& out) {
    return take_kind(cluster::from_agent_of(json), key, out);
  }
};
template <>
struct Coding<cluster::Fact> : KeptFromAgent<cluster::Fact> {};
template <>
struct Coding<cluster::ExchangeAsk> : KeptFromAgent<cluster::ExchangeAsk> {};

template <>
struct Coding<cluster::DesiredRun> {
  static Json write(const cluster::DesiredRun& value) { return cluster::to_json(cluster::ToAgent(value)); }
  static Status read(const Json& json, const std::string& key, cluster::DesiredRun& out) {
    return take_kind(cluster::to_agent_of(json), key, out);
  }
};

/// As its text, since that is what the protocol gives out.
template <class Message>
struct KeptFromKeeper {
  static Json write(const Message& value) {
    return keeper::encode(keeper::FromKeeper(value)).substr(kFrameHeaderBytes);
  }
  static Status read(const Json& json, const std::string& key, Message& out) {
    std::string text;
    if (Status status = codec::read(json, key, text); !status) return status;
    return take_kind(keeper::decode_from_keeper(text), key, out);
  }
};
template <>
struct Coding<keeper::Exited> : KeptFromKeeper<keeper::Exited> {};
template <>
struct Coding<keeper::Cleared> : KeptFromKeeper<keeper::Cleared> {};

// ---- one run ----

template <>
inline constexpr auto kEnumNames<core::NodeRunState::Keeper> =
    std::array<std::pair<core::NodeRunState::Keeper, const char*>, 6>{
        {{core::NodeRunState::Keeper::kNone, "none"},
         {core::NodeRunState::Keeper::kStarting, "starting"},
         {core::NodeRunState::Keeper::kUp, "up"},
         {core::NodeRunState::Keeper::kClosing, "closing"},
         {core::NodeRunState::Keeper::kEnded, "ended"},
         {core::NodeRunState::Keeper::kLost, "lost"}}};
template <>
inline constexpr auto kEnumNames<core::NodeRunState::ForkServer> =
    std::array<std::pair<core::NodeRunState::ForkServer, const char*>, 4>{
        {{core::NodeRunState::ForkServer::kNone, "none"},
         {core::NodeRunState::ForkServer::kStarting, "starting"},
         {core::NodeRunState::ForkServer::kReady, "ready"},
         {core::NodeRunState::ForkServer::kUnusable, "unusable"}}};
template <>
inline constexpr auto kEnumNames<core::NodeRunState::Group> =
    std::array<std::pair<core::NodeRunState::Group, const char*>, 3>{
        {{core::NodeRunState::Group::kEmpty, "empty"},
         {core::NodeRunState::Group::kAlive, "alive"},
         {core::NodeRunState::Group::kClearing, "clearing"}}};

template <>
inline constexpr auto kMessage<core::RankShare> = message("", required("cores", &core::RankShare::cores),
                                                          required("visible", &core::RankShare::visible),
                                                          required("gpus", &core::RankShare::gpus));
template <>
inline constexpr auto kMessage<core::Silence> = message("", required("rank", &core::Silence::rank),
                                                        required("is_stalled", &core::Silence::is_stalled),
                                                        required("is_waiting", &core::Silence::is_waiting),
                                                        required("silent_s", &core::Silence::silent_s),
                                                        required("words", &core::Silence::words));
template <>
inline constexpr auto kMessage<core::WatchdogState::Watched> =
    message("", required("has_said_hello", &core::WatchdogState::Watched::has_said_hello),
            required("heard_at", &core::WatchdogState::Watched::heard_at),
            required("advanced_at", &core::WatchdogState::Watched::advanced_at),
            required("beat", &core::WatchdogState::Watched::beat),
            required("suspect_until", &core::WatchdogState::Watched::suspect_until),
            required("is_told", &core::WatchdogState::Watched::is_told),
            required("is_paused", &core::WatchdogState::Watched::is_paused));
template <>
inline constexpr auto kMessage<core::WatchdogState> = message("", required("timeout", &core::WatchdogState::timeout_),
                                                              required("stall_timeout",
                                                                       &core::WatchdogState::stall_timeout_),
                                                              required("ranks", &core::WatchdogState::ranks_));
template <>
inline constexpr auto kMessage<core::NodeRunState::RankRecord> = message(
    "", required("local_rank", &core::NodeRunState::RankRecord::local_rank),
    required("share", &core::NodeRunState::RankRecord::share),
    required("token", &core::NodeRunState::RankRecord::token), required("pid", &core::NodeRunState::RankRecord::pid),
    required("connection", &core::NodeRunState::RankRecord::connection),
    required("link_pid", &core::NodeRunState::RankRecord::link_pid),
    required("assigned", &core::NodeRunState::RankRecord::assigned),
    required("step", &core::NodeRunState::RankRecord::step),
    required("is_ready", &core::NodeRunState::RankRecord::is_ready),
    optional("is_stoppable", &core::NodeRunState::RankRecord::is_stoppable),
    required("asked_to_stop", &core::NodeRunState::RankRecord::asked_to_stop),
    required("asked_to_leave", &core::NodeRunState::RankRecord::asked_to_leave),
    required("exit_told", &core::NodeRunState::RankRecord::exit_told),
    required("start_told", &core::NodeRunState::RankRecord::start_told),
    required("is_paused", &core::NodeRunState::RankRecord::is_paused),
    required("had_time", &core::NodeRunState::RankRecord::had_time),
    required("failure_message", &core::NodeRunState::RankRecord::failure_message),
    required("exit", &core::NodeRunState::RankRecord::exit),
    required("exit_deadline", &core::NodeRunState::RankRecord::exit_deadline),
    optional("last_words_until", &core::NodeRunState::RankRecord::last_words_until),
    required("fetching", &core::NodeRunState::RankRecord::fetching),
    optional("fetches", &core::NodeRunState::RankRecord::fetches),
    required("given", &core::NodeRunState::RankRecord::given),
    required("unanswered", &core::NodeRunState::RankRecord::unanswered),
    optional("lost_lines", &core::NodeRunState::RankRecord::lost_lines),
    optional("lost_bytes", &core::NodeRunState::RankRecord::lost_bytes),
    optional("lost_told", &core::NodeRunState::RankRecord::lost_told),
    optional("lost_why", &core::NodeRunState::RankRecord::lost_why));
template <>
inline constexpr auto kMessage<core::NodeRunState> = message(
    "", required("id", &core::NodeRunState::id_), required("desired", &core::NodeRunState::desired_),
    required("link_path", &core::NodeRunState::link_path_), required("keeper", &core::NodeRunState::keeper_),
    required("is_orphan", &core::NodeRunState::is_orphan_), required("fork_server", &core::NodeRunState::fork_server_),
    required("group", &core::NodeRunState::group_), required("spawned", &core::NodeRunState::spawned_),
    required("spawned_uid", &core::NodeRunState::spawned_uid_),
    required("keeper_generation", &core::NodeRunState::keeper_generation_),
    required("cleared_told", &core::NodeRunState::cleared_told_),
    required("port_generation", &core::NodeRunState::port_generation_), required("port", &core::NodeRunState::port_),
    optional("worker_ports", &core::NodeRunState::worker_ports_),
    optional("errors_asked", &core::NodeRunState::errors_asked_),
    required("was_cleared_by_order", &core::NodeRunState::was_cleared_by_order_),
    required("gone", &core::NodeRunState::gone_), required("has_closed", &core::NodeRunState::has_closed_),
    required("stop_deadline", &core::NodeRunState::stop_deadline_),
    required("ending_deadline", &core::NodeRunState::ending_deadline_),
    required("cleared", &core::NodeRunState::cleared_),
    required("links_deadline", &core::NodeRunState::links_deadline_),
    optional("links_until", &core::NodeRunState::links_until_),
    required("fork_servers_lost", &core::NodeRunState::fork_servers_lost_),
    required("watchdog", &core::NodeRunState::watchdog_), required("silent", &core::NodeRunState::silent_),
    required("silence_deadline", &core::NodeRunState::silence_deadline_),
    required("ranks", &core::NodeRunState::ranks_), required("connections", &core::NodeRunState::connections_),
    required("arriving", &core::NodeRunState::arriving_), required("asks_out", &core::NodeRunState::asks_out_),
    required("facts_out", &core::NodeRunState::facts_out_));

// ---- the rest ----

template <>
inline constexpr auto kMessage<core::AgentFacts> = message(
    "", required("node", &core::AgentFacts::node), required("address", &core::AgentFacts::address),
    required("incarnation", &core::AgentFacts::incarnation), required("slots", &core::AgentFacts::slots),
    required("allowed_cores", &core::AgentFacts::allowed_cores),
    required("worker_program", &core::AgentFacts::worker_program),
    required("python_folder", &core::AgentFacts::python_folder), required("numa_nodes", &core::AgentFacts::numa_nodes),
    required("beat_interval", &core::AgentFacts::beat_interval),
    required("orphan_timeout", &core::AgentFacts::orphan_timeout), required("is_shared", &core::AgentFacts::is_shared),
    required("counts_cpus", &core::AgentFacts::counts_cpus), required("gpus", &core::AgentFacts::gpus),
    optional("are_gpus_by_bus", &core::AgentFacts::are_gpus_by_bus),
    required("memory_bytes", &core::AgentFacts::memory_bytes), required("labels", &core::AgentFacts::labels),
    required("version", &core::AgentFacts::version), required("returns_within", &core::AgentFacts::returns_within));
template <>
struct Coding<core::Secrets> {
  static Json write(const core::Secrets& value) {
    return {{"key", codec::write(value.key())}, {"drawn", value.drawn()}};
  }
  static Status read(const Json& json, const std::string& key, core::Secrets& out) {
    core::SecretKey secret{};
    std::uint64_t drawn = 0;
    if (!json.is_object() || !json.contains("key") || !json.contains("drawn"))
      return Error{"\"" + key + "\" lacks its key, or how much of it was drawn"};
    if (Status status = codec::read(json["key"], key, secret); !status) return status;
    Status status = codec::read(json["drawn"], key, drawn);
    out = core::Secrets(secret, drawn);
    return status;
  }
};
template <>
inline constexpr auto kMessage<core::AllocationState> =
    message("", required("is_shared", &core::AllocationState::is_shared_),
            required("cores", &core::AllocationState::cores_), required("gpus", &core::AllocationState::gpus_),
            required("held", &core::AllocationState::held_), optional("left_out", &core::AllocationState::left_out_));
template <>
inline constexpr auto kMessage<core::OutboxState::Kept> = message("", required("fact", &core::OutboxState::Kept::fact),
                                                                  required("bytes", &core::OutboxState::Kept::bytes));
template <>
inline constexpr auto kMessage<core::OutboxState::Lane> =
    message("", required("waiting", &core::OutboxState::Lane::waiting),
            required("facts", &core::OutboxState::Lane::facts), required("bytes", &core::OutboxState::Lane::bytes),
            required("window_bytes", &core::OutboxState::Lane::window_bytes));
template <>
inline constexpr auto kMessage<core::OutboxState> = message(
    "", required("incarnation", &core::OutboxState::incarnation_), required("sequence", &core::OutboxState::sequence_),
    required("lanes", &core::OutboxState::lanes_), required("waiting", &core::OutboxState::waiting_),
    required("last_turn", &core::OutboxState::last_turn_), required("numbered", &core::OutboxState::numbered_),
    required("sent", &core::OutboxState::sent_), required("sent_bytes", &core::OutboxState::sent_bytes_),
    required("window", &core::OutboxState::window_), required("is_linked", &core::OutboxState::is_linked_),
    required("resend_after", &core::OutboxState::resend_after_), required("resend_at", &core::OutboxState::resend_at_));
template <>
inline constexpr auto kMessage<core::AgentState> = message(
    "", required("facts", &core::AgentState::facts_), required("tokens", &core::AgentState::tokens_),
    required("allocation", &core::AgentState::allocation_), required("is_leaving", &core::AgentState::is_leaving_),
    required("owners", &core::AgentState::owners_), required("paused", &core::AgentState::paused_),
    required("warned", &core::AgentState::warned_), required("outbox", &core::AgentState::outbox_),
    required("is_linked", &core::AgentState::is_linked_), required("asks", &core::AgentState::asks_),
    required("beat_at", &core::AgentState::beat_at_), required("orphaned_at", &core::AgentState::orphaned_at_));

}  // namespace sgd::codec
