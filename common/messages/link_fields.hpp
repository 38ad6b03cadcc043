#pragma once
// Keys and type names of the worker link; shared with the cluster messages, which carry some of
// its structs as parts.

#include "common/messages/codec.hpp"
#include "common/messages/link.hpp"

namespace sgd::codec {

template <>
inline constexpr auto kMessage<link::ReportKey> = message("", required("epoch", &link::ReportKey::epoch),
                                                          required("phase", &link::ReportKey::phase),
                                                          optional("batch", &link::ReportKey::batch),
                                                          optional("sequence", &link::ReportKey::sequence));

template <>
inline constexpr auto kMessage<link::Hello> = message("hello", required("token", &link::Hello::token),
                                                      optional("pid", &link::Hello::pid),
                                                      optional("protocol", &link::Hello::protocol),
                                                      optional("version", &link::Hello::version),
                                                      optional("returns", &link::Hello::returns),
                                                      optional("received", &link::Hello::received));
template <>
inline constexpr auto kMessage<link::Received> = message("received", required("count", &link::Received::count));
template <>
inline constexpr auto kMessage<link::Dropped> = message("dropped", optional("reason", &link::Dropped::reason));
template <>
inline constexpr auto kMessage<link::Ready> = message("ready", optional("step", &link::Ready::step),
                                                      optional("epoch", &link::Ready::epoch),
                                                      optional("source", &link::Ready::source),
                                                      optional("path", &link::Ready::path),
                                                      optional("restore_s", &link::Ready::restore_s),
                                                      optional("redone", &link::Ready::redone));
template <>
inline constexpr auto kMessage<link::FirstStep> = message("first_step", optional("step", &link::FirstStep::step));
template <>
inline constexpr auto kMessage<link::Heartbeat> =
    message("heartbeat", optional("step", &link::Heartbeat::step), optional("epoch", &link::Heartbeat::epoch),
            optional("phase", &link::Heartbeat::phase), optional("loss", &link::Heartbeat::loss),
            optional("samples_per_s", &link::Heartbeat::samples_per_s), optional("samples", &link::Heartbeat::samples),
            optional("waiting", &link::Heartbeat::waiting), optional("fetched", &link::Heartbeat::fetched),
            optional("watched", &link::Heartbeat::watched), optional("gpu", &link::Heartbeat::gpu));
template <>
inline constexpr auto kMessage<link::Stoppable> = message("stoppable");
template <>
inline constexpr auto kMessage<link::Report> = message("report", required("key", &link::Report::key),
                                                       optional("step", &link::Report::step),
                                                       metrics("metrics", &link::Report::metrics));
template <>
inline constexpr auto kMessage<link::CheckpointSaved> =
    message("checkpoint", required("path", &link::CheckpointSaved::path),
            optional("step", &link::CheckpointSaved::step), optional("epoch", &link::CheckpointSaved::epoch),
            optional("bytes", &link::CheckpointSaved::bytes), optional("stall_s", &link::CheckpointSaved::stall_s),
            optional("write_s", &link::CheckpointSaved::write_s), optional("skipped", &link::CheckpointSaved::skipped));
template <>
inline constexpr auto kMessage<link::CheckpointFailed> = message("checkpoint_failed",
                                                                 required("step", &link::CheckpointFailed::step),
                                                                 required("reason", &link::CheckpointFailed::reason));
template <>
inline constexpr auto kMessage<link::CheckpointRejected> = message("checkpoint_rejected",
                                                                   required("path", &link::CheckpointRejected::path),
                                                                   optional("reason",
                                                                            &link::CheckpointRejected::reason));
template <>
inline constexpr auto kMessage<link::Fetch> = message("fetch", required("path", &link::Fetch::path));
template <>
inline constexpr auto kMessage<link::Fetching> = message("fetching", required("path", &link::Fetching::path),
                                                         optional("bytes", &link::Fetching::bytes));
template <>
inline constexpr auto kMessage<link::Fetched> = message("fetched", required("path", &link::Fetched::path),
                                                        optional("error", &link::Fetched::error),
                                                        optional("missing", &link::Fetched::missing));
template <>
inline constexpr auto kMessage<link::ExchangePut> = message("exchange", required("key", &link::ExchangePut::key),
                                                            optional("value", &link::ExchangePut::value));
template <>
inline constexpr auto kMessage<link::Failed> = message("failed", optional("message", &link::Failed::message),
                                                       optional("backtrace", &link::Failed::backtrace));
template <>
inline constexpr auto kMessage<link::ResultMade> = message("result", optional("value", &link::ResultMade::value));
/// Never read by name: what decodes to it has a type that nobody knows.
template <>
inline constexpr auto kMessage<link::Unknown> = message("", optional("type", &link::Unknown::type));

template <>
inline constexpr auto kMessage<link::Assignment> = message(
    "assignment", required("run", &link::Assignment::run), required("generation", &link::Assignment::generation),
    required("rank", &link::Assignment::rank), optional("local_rank", &link::Assignment::local_rank),
    required("world_size", &link::Assignment::world_size),
    optional("local_world_size", &link::Assignment::local_world_size),
    optional("node_rank", &link::Assignment::node_rank), optional("node_count", &link::Assignment::node_count),
    optional("bind_address", &link::Assignment::bind_address), optional("run_dir", &link::Assignment::run_dir),
    optional("resume_from", &link::Assignment::resume_from), optional("cpus", &link::Assignment::cpus),
    optional("config", &link::Assignment::config));
template <>
inline constexpr auto kMessage<link::ExchangeValue> = message("exchange", required("key", &link::ExchangeValue::key),
                                                              required("rank", &link::ExchangeValue::rank),
                                                              optional("count", &link::ExchangeValue::count),
                                                              optional("value", &link::ExchangeValue::value));
template <>
inline constexpr auto kMessage<link::Abort> = message("abort", required("generation", &link::Abort::generation));
template <>
inline constexpr auto kMessage<link::Stop> = message("stop", optional("deadline_s", &link::Stop::deadline_s),
                                                     optional("checkpoint", &link::Stop::checkpoint));
template <>
inline constexpr auto kMessage<link::StopAtEpoch> =
    message("stop_at_epoch", optional("at_checkpoint", &link::StopAtEpoch::at_checkpoint));

}  // namespace sgd::codec
