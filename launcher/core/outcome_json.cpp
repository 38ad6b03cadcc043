#include "launcher/core/outcome_json.hpp"

#include <array>

#include "common/json/lenient.hpp"

namespace sgd::core {
namespace {

using Json = nlohmann::ordered_json;

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

Json to_json(const Failure& cause) {
  Json json = {{"kind", name(cause.kind)},
               {"rank", cause.rank < 0 ? Json(nullptr) : Json(cause.rank)},
               {"subject", cause.subject},
               {"node", cause.node},
               {"pid", cause.pid}};
  json[cause.signal != 0 ? "signal" : "exit_code"] = cause.signal != 0 ? cause.signal : cause.exit_code;
  json["message"] = text_or_null(cause.message);
  json["is_final"] = cause.is_final;
  json["tail"] = cause.tail;
  if (!cause.error.empty())
    json["error"] = {{"type", text_or_null(cause.error.type)},
                     {"message", cause.error.message},
                     {"frames", cause.error.frames},
                     {"at_s", cause.error.at_s}};
  return json;
}

Failure cause_from(const Json& json) {
  Failure cause;
  constexpr std::array kKinds = {FailureKind::kExitCode, FailureKind::kSignal,     FailureKind::kHeartbeatLost,
                                 FailureKind::kNodeLost, FailureKind::kStalled,    FailureKind::kPeerLost,
                                 FailureKind::kRaised,   FailureKind::kNodeRefused};
  std::string kind;
  read_if_fits(json, "kind", kind);
  for (const FailureKind one : kKinds)
    if (kind == name(one)) cause.kind = one;
  read_if_fits(json, "rank", cause.rank);
  read_if_fits(json, "subject", cause.subject);
  read_if_fits(json, "node", cause.node);
  read_if_fits(json, "pid", cause.pid);
  read_if_fits(json, "signal", cause.signal);
  read_if_fits(json, "exit_code", cause.exit_code);
  read_if_fits(json, "message", cause.message);
  read_if_fits(json, "is_final", cause.is_final);
  if (const auto tail = json.find("tail"); tail != json.end() && tail->is_array())
    for (const Json& line : *tail)
      if (line.is_string()) cause.tail.push_back(line.get<std::string>());
  if (const auto error = json.find("error"); error != json.end() && error->is_object()) {
    read_if_fits(*error, "type", cause.error.type);
    read_if_fits(*error, "message", cause.error.message);
    read_if_fits(*error, "at_s", cause.error.at_s);
    if (const auto frames = error->find("frames"); frames != error->end() && frames->is_array())
      for (const Json& line : *frames)
        if (line.is_string()) cause.error.frames.push_back(line.get<std::string>());
  }
  return cause;
}

}  // namespace

Json to_json(const RunOutcome& outcome) {
  Json json = {
      {"state", outcome.state},
      {"exit_code", outcome.exit_code},
      {"error", text_or_null(outcome.error)},
      {"cause", outcome.cause ? to_json(*outcome.cause) : Json(nullptr)},
      {"generation", outcome.generation},
      {"epochs", outcome.epochs},
      {"epochs_done", outcome.epochs},
      {"job_epochs", outcome.job_epochs},
      {"steps", outcome.steps},
      {"failures", outcome.failures},
      {"world_size", outcome.world_size},
      {"wall_s", outcome.wall_s},
      {"metrics", outcome.metrics.is_null() ? Json::object() : outcome.metrics},
      {"checkpoint", text_or_null(outcome.checkpoint)},
      {"best_checkpoints", outcome.best_checkpoints.is_array() ? Json(outcome.best_checkpoints) : Json::array()},
      {"results", outcome.results}};
  if (!outcome.tune.is_null()) json["tune"] = outcome.tune;
  return json;
}

RunOutcome outcome_from_json(const Json& json) {
  RunOutcome outcome;
  if (!json.is_object()) return outcome;
  read_if_fits(json, "state", outcome.state);
  read_if_fits(json, "exit_code", outcome.exit_code);
  read_if_fits(json, "error", outcome.error);
  if (const auto cause = json.find("cause"); cause != json.end() && cause->is_object())
    outcome.cause = cause_from(*cause);
  read_if_fits(json, "generation", outcome.generation);
  read_if_fits(json, "epochs", outcome.epochs);
  read_if_fits(json, "job_epochs", outcome.job_epochs);
  read_if_fits(json, "steps", outcome.steps);
  read_if_fits(json, "failures", outcome.failures);
  read_if_fits(json, "world_size", outcome.world_size);
  read_if_fits(json, "wall_s", outcome.wall_s);
  outcome.metrics = json.value("metrics", Json::object());
  read_if_fits(json, "checkpoint", outcome.checkpoint);
  outcome.best_checkpoints = json.value("best_checkpoints", Json());
  outcome.results = json.value("results", Json());
  outcome.tune = json.value("tune", Json());
  return outcome;
}

}  // namespace sgd::core
