// Keys and type names of the messages between coordinator and agents. A fact's body is an object
// of its own with a "type", so that the envelope can be acknowledged without knowing the body.

#include "common/messages/cluster.hpp"

#include <array>

#include "common/messages/link_fields.hpp"
#include "common/messages/rank_error_fields.hpp"

namespace sgd::codec {

template <>
inline constexpr std::array<std::pair<cluster::Want, const char*>, 6> kEnumNames<cluster::Want>{{
    {cluster::Want::kPrepare, "prepare"},
    {cluster::Want::kRun, "run"},
    {cluster::Want::kLeave, "leave"},
    {cluster::Want::kStop, "stop"},
    {cluster::Want::kClear, "clear"},
    {cluster::Want::kGone, "gone"},
}};

template <>
inline constexpr auto kMessage<cluster::RankPlace> = message("", required("rank", &cluster::RankPlace::rank),
                                                             optional("local_rank", &cluster::RankPlace::local_rank));
template <>
inline constexpr auto kMessage<cluster::DesiredRun> = message(
    "desired_run", required("run", &cluster::DesiredRun::run), required("generation", &cluster::DesiredRun::generation),
    optional("uid", &cluster::DesiredRun::uid), required("want", &cluster::DesiredRun::want),
    optional("ranks", &cluster::DesiredRun::ranks), optional("world_size", &cluster::DesiredRun::world_size),
    optional("node_rank", &cluster::DesiredRun::node_rank), optional("node_count", &cluster::DesiredRun::node_count),
    optional("master_address", &cluster::DesiredRun::master_address),
    optional("master_port", &cluster::DesiredRun::master_port),
    optional("restart_count", &cluster::DesiredRun::restart_count),
    optional("resume_from", &cluster::DesiredRun::resume_from),
    optional("stop_grace_s", &cluster::DesiredRun::stop_grace_s),
    optional("stop_signal", &cluster::DesiredRun::stop_signal),
    optional("clear_grace_s", &cluster::DesiredRun::clear_grace_s),
    optional("keeper_from", &cluster::DesiredRun::keeper_from), optional("run_dir", &cluster::DesiredRun::run_dir),
    optional("job", &cluster::DesiredRun::job), optional("owner", &cluster::DesiredRun::owner),
    optional("may_be_root", &cluster::DesiredRun::may_be_root), optional("endpoints", &cluster::DesiredRun::endpoints),
    optional("ranks_by_node", &cluster::DesiredRun::ranks_by_node),
    optional("left_out_gpus", &cluster::DesiredRun::left_out_gpus));
template <>
inline constexpr auto kMessage<cluster::ExchangeDone> =
    message("exchange_done", required("run", &cluster::ExchangeDone::run),
            required("generation", &cluster::ExchangeDone::generation), required("key", &cluster::ExchangeDone::key),
            optional("first", &cluster::ExchangeDone::first), required("count", &cluster::ExchangeDone::count),
            optional("values", &cluster::ExchangeDone::values));
template <>
inline constexpr auto kMessage<cluster::FactAck> = message("fact_ack",
                                                           required("incarnation", &cluster::FactAck::incarnation),
                                                           required("sequence", &cluster::FactAck::sequence));

template <>
inline constexpr auto kMessage<cluster::PortReserved> = message("port_reserved",
                                                                required("port", &cluster::PortReserved::port),
                                                                optional("worker_ports",
                                                                         &cluster::PortReserved::worker_ports));
template <>
inline constexpr auto kMessage<cluster::PortRefused> = message("port_refused",
                                                               optional("message", &cluster::PortRefused::message));
template <>
inline constexpr auto kMessage<cluster::AccountAsk> =
    message("account_ask", required("number", &cluster::AccountAsk::number),
            optional("owner", &cluster::AccountAsk::owner), optional("may_be_root", &cluster::AccountAsk::may_be_root));
template <>
inline constexpr auto kMessage<cluster::AccountAnswer> = message("account_answer",
                                                                 required("number", &cluster::AccountAnswer::number),
                                                                 optional("why_not", &cluster::AccountAnswer::why_not));

template <>
inline constexpr auto kMessage<cluster::PassSignal> = message("pass_signal", required("run", &cluster::PassSignal::run),
                                                              required("generation", &cluster::PassSignal::generation),
                                                              optional("uid", &cluster::PassSignal::uid),
                                                              required("signal", &cluster::PassSignal::signal));
template <>
inline constexpr auto kMessage<cluster::ErrorsAsk> = message("errors_ask", required("run", &cluster::ErrorsAsk::run),
                                                             required("generation", &cluster::ErrorsAsk::generation),
                                                             optional("uid", &cluster::ErrorsAsk::uid));
template <>
inline constexpr auto kMessage<cluster::AgentRefused> = message("agent_refused",
                                                                required("reason", &cluster::AgentRefused::reason));
template <>
inline constexpr auto kMessage<cluster::RanksRaised> = message("ranks_raised",
                                                               required("others", &cluster::RanksRaised::others));

template <>
inline constexpr auto kMessage<cluster::WorkerStarted> = message("worker_started",
                                                                 required("rank", &cluster::WorkerStarted::rank),
                                                                 optional("pid", &cluster::WorkerStarted::pid),
                                                                 optional("gpus", &cluster::WorkerStarted::gpus));
template <>
inline constexpr auto kMessage<cluster::WorkerReady> = message("worker_ready",
                                                               required("rank", &cluster::WorkerReady::rank),
                                                               required("ready", &cluster::WorkerReady::ready));
template <>
inline constexpr auto kMessage<cluster::WorkerFirstStep> = message("worker_first_step",
                                                                   required("rank", &cluster::WorkerFirstStep::rank),
                                                                   optional("step", &cluster::WorkerFirstStep::step));
template <>
inline constexpr auto kMessage<cluster::WorkerExited> = message(
    "worker_exited", required("rank", &cluster::WorkerExited::rank), optional("pid", &cluster::WorkerExited::pid),
    optional("exit_code", &cluster::WorkerExited::exit_code), optional("signal", &cluster::WorkerExited::signal),
    optional("core_dumped", &cluster::WorkerExited::core_dumped),
    optional("caused_by_agent", &cluster::WorkerExited::caused_by_agent),
    optional("message", &cluster::WorkerExited::message), optional("tail", &cluster::WorkerExited::tail),
    optional("last_object", &cluster::WorkerExited::last_object), optional("step", &cluster::WorkerExited::step),
    optional("notice_s", &cluster::WorkerExited::notice_s), optional("error", &cluster::WorkerExited::error),
    optional("others", &cluster::WorkerExited::others), optional("gpu", &cluster::WorkerExited::gpu));
template <>
inline constexpr auto kMessage<cluster::WorkerSilent> = message(
    "worker_silent", required("rank", &cluster::WorkerSilent::rank), optional("pid", &cluster::WorkerSilent::pid),
    optional("waiting", &cluster::WorkerSilent::waiting), optional("stalled", &cluster::WorkerSilent::stalled),
    optional("silent_s", &cluster::WorkerSilent::silent_s), optional("message", &cluster::WorkerSilent::message));
template <>
inline constexpr auto kMessage<cluster::SpawnFailed> = message("spawn_failed",
                                                               required("rank", &cluster::SpawnFailed::rank),
                                                               optional("error", &cluster::SpawnFailed::error),
                                                               optional("message", &cluster::SpawnFailed::message));
template <>
inline constexpr auto kMessage<cluster::ForkServerFailed> = message(
    "fork_server_failed", optional("exit_code", &cluster::ForkServerFailed::exit_code),
    optional("signal", &cluster::ForkServerFailed::signal), optional("message", &cluster::ForkServerFailed::message));
template <>
inline constexpr auto kMessage<cluster::KeeperLost> = message(
    "keeper_lost", optional("signal", &cluster::KeeperLost::signal), optional("message", &cluster::KeeperLost::message),
    optional("with_agent", &cluster::KeeperLost::with_agent),
    optional("never_started", &cluster::KeeperLost::never_started));
template <>
inline constexpr auto kMessage<cluster::Report> = message("report", required("rank", &cluster::Report::rank),
                                                          required("report", &cluster::Report::report));
template <>
inline constexpr auto kMessage<cluster::CheckpointSaved> =
    message("checkpoint_saved", required("checkpoint", &cluster::CheckpointSaved::checkpoint));
template <>
inline constexpr auto kMessage<cluster::CheckpointFailed> =
    message("checkpoint_failed", required("checkpoint", &cluster::CheckpointFailed::checkpoint));
template <>
inline constexpr auto kMessage<cluster::CheckpointRejected> =
    message("checkpoint_rejected", required("checkpoint", &cluster::CheckpointRejected::checkpoint));
template <>
inline constexpr auto kMessage<cluster::ResultMade> = message("result_made",
                                                              required("rank", &cluster::ResultMade::rank),
                                                              optional("value", &cluster::ResultMade::value));
template <>
inline constexpr auto kMessage<cluster::ExchangePut> = message("exchange_put",
                                                               required("rank", &cluster::ExchangePut::rank),
                                                               required("key", &cluster::ExchangePut::key),
                                                               optional("value", &cluster::ExchangePut::value));
template <>
inline constexpr auto kMessage<cluster::OutputDropped> = message("output_dropped",
                                                                 required("rank", &cluster::OutputDropped::rank),
                                                                 optional("lines", &cluster::OutputDropped::lines),
                                                                 optional("bytes", &cluster::OutputDropped::bytes),
                                                                 optional("reason", &cluster::OutputDropped::reason));
template <>
inline constexpr auto kMessage<cluster::Cleared> = message("cleared", optional("killed", &cluster::Cleared::killed));

template <>
inline constexpr auto kMessage<cluster::Fact> = message("fact", required("incarnation", &cluster::Fact::incarnation),
                                                        required("sequence", &cluster::Fact::sequence),
                                                        required("run", &cluster::Fact::run),
                                                        required("generation", &cluster::Fact::generation),
                                                        optional("uid", &cluster::Fact::uid),
                                                        required("body", &cluster::Fact::body));
template <>
inline constexpr auto kMessage<cluster::ExchangeAsk> =
    message("exchange_ask", required("run", &cluster::ExchangeAsk::run),
            required("generation", &cluster::ExchangeAsk::generation), required("key", &cluster::ExchangeAsk::key),
            optional("uid", &cluster::ExchangeAsk::uid));
template <>
inline constexpr auto kMessage<cluster::Progress> = message("progress", required("run", &cluster::Progress::run),
                                                            required("generation", &cluster::Progress::generation),
                                                            required("rank", &cluster::Progress::rank),
                                                            required("heartbeat", &cluster::Progress::heartbeat));
template <>
inline constexpr auto kMessage<cluster::HeldRun> = message("", required("run", &cluster::HeldRun::run),
                                                           required("generation", &cluster::HeldRun::generation),
                                                           optional("workers", &cluster::HeldRun::workers),
                                                           optional("world_size", &cluster::HeldRun::world_size),
                                                           optional("uid", &cluster::HeldRun::uid));
template <>
inline constexpr auto kMessage<cluster::Beat> = message("beat");
template <>
inline constexpr auto kMessage<cluster::NodeState> = message(
    "node_state", required("node", &cluster::NodeState::node),
    required("incarnation", &cluster::NodeState::incarnation), optional("address", &cluster::NodeState::address),
    optional("slots", &cluster::NodeState::slots), optional("cpus", &cluster::NodeState::cpus),
    optional("is_new_link", &cluster::NodeState::is_new_link), optional("runs", &cluster::NodeState::runs),
    optional("counts_cpus", &cluster::NodeState::counts_cpus), optional("gpus", &cluster::NodeState::gpus),
    optional("memory_bytes", &cluster::NodeState::memory_bytes), optional("labels", &cluster::NodeState::labels),
    optional("version", &cluster::NodeState::version), optional("is_leaving", &cluster::NodeState::is_leaving),
    optional("acknowledged", &cluster::NodeState::acknowledged));

}  // namespace sgd::codec

namespace sgd::cluster {

std::string encode(const ToAgent& message) {
  return codec::print(codec::write_variant(message));
}

std::string encode(const FromAgent& message) {
  return codec::print(codec::write_variant(message));
}

Result<ToAgent> decode_to_agent(std::string_view json) {
  return codec::decode<ToAgent>(json);
}

Result<FromAgent> decode_from_agent(std::string_view json) {
  return codec::decode<FromAgent>(json);
}

nlohmann::json to_json(const ToAgent& message) {
  return codec::write_variant(message);
}

nlohmann::json to_json(const FromAgent& message) {
  return codec::write_variant(message);
}

Result<ToAgent> to_agent_of(const nlohmann::json& json) {
  ToAgent message;
  const Status status = codec::read(json, "message", message);
  if (!status.ok()) return status.error();
  return message;
}

Result<FromAgent> from_agent_of(const nlohmann::json& json) {
  FromAgent message;
  const Status status = codec::read(json, "message", message);
  if (!status.ok()) return status.error();
  return message;
}

}  // namespace sgd::cluster
