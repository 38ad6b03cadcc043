#include "launcher/storage/event_codec.hpp"

#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <boost/pfr/tuple_size.hpp>

#include "common/messages/codec.hpp"
#include "launcher/storage/run_coding.hpp"

namespace sgd::storage {
namespace {

using Json = nlohmann::json;
using core::coordinator_event::AgentClosed;
using core::coordinator_event::CheckpointStored;
using core::coordinator_event::ExperimentResumed;
using core::coordinator_event::FromAgent;
using core::coordinator_event::NodeOrdered;
using core::coordinator_event::NodeSilent;
using core::coordinator_event::NodesKnown;
using core::coordinator_event::Restarted;
using core::coordinator_event::RunForgotten;
using core::coordinator_event::SearchFailed;
using core::coordinator_event::SearchSaid;
using core::coordinator_event::StopRequested;
using core::coordinator_event::Submitted;
using core::coordinator_event::Tick;

/// One specialization per event: its name, and its fields both ways.
template <class Event>
struct Coding;

template <>
struct Coding<Submitted> {
  static constexpr const char* kType = "submitted";
  static void write(const Submitted& event, Json& out) { out["run"] = to_json(event.run); }
  static Status read(const Json& json, Submitted& event) {
    const auto run = json.find("run");
    if (run == json.end()) return Error{"\"run\" is missing"};
    auto definition = run_definition_of(*run);
    if (!definition) return definition.error();
    event.run = std::move(definition).value();
    return {};
  }
};

template <>
struct Coding<FromAgent> {
  static constexpr const char* kType = "from_agent";
  static void write(const FromAgent& event, Json& out) {
    out["node"] = event.node;
    out["message"] = cluster::to_json(event.message);
  }
  static Status read(const Json& json, FromAgent& event) {
    const auto message = json.find("message");
    if (message == json.end()) return Error{"\"message\" is missing"};
    auto decoded = cluster::from_agent_of(*message);
    if (!decoded) return decoded.error();
    event.message = std::move(decoded).value();
    return read_key(json, "node", event.node);
  }
};

template <>
struct Coding<AgentClosed> {
  static constexpr const char* kType = "agent_closed";
  static void write(const AgentClosed& event, Json& out) { out["node"] = event.node; }
  static Status read(const Json& json, AgentClosed& event) { return read_key(json, "node", event.node); }
};

template <>
struct Coding<StopRequested> {
  static constexpr const char* kType = "stop_requested";
  static void write(const StopRequested& event, Json& out) {
    out["run"] = event.run;
    out["request"] = to_json(event.request);
  }
  static Status read(const Json& json, StopRequested& event) {
    const auto request = json.find("request");
    if (request == json.end()) return Error{"\"request\" is missing"};
    return first_error({read_key(json, "run", event.run), read_stop_request(*request, event.request)});
  }
};

template <>
struct Coding<NodeOrdered> {
  static constexpr const char* kType = "node_ordered";
  static void write(const NodeOrdered& event, Json& out) {
    out["node"] = event.node;
    out["order"] = to_json(event.order);
  }
  static Status read(const Json& json, NodeOrdered& event) {
    const auto order = json.find("order");
    if (order == json.end()) return Error{"\"order\" is missing"};
    return first_error({read_key(json, "node", event.node), read_node_order(*order, event.order)});
  }
};

template <>
struct Coding<RunForgotten> {
  static constexpr const char* kType = "run_forgotten";
  static void write(const RunForgotten& event, Json& out) { out["run"] = event.run; }
  static Status read(const Json& json, RunForgotten& event) { return read_key(json, "run", event.run); }
};

template <>
struct Coding<NodeSilent> {
  static constexpr const char* kType = "node_silent";
  static void write(const NodeSilent& event, Json& out) {
    out.update({{"node", event.node}, {"silent_s", event.silent_s}});
  }
  static Status read(const Json& json, NodeSilent& event) {
    return first_error({read_key(json, "node", event.node), read_key(json, "silent_s", event.silent_s)});
  }
};

template <>
struct Coding<NodesKnown> {
  static constexpr const char* kType = "nodes_known";
  static void write(const NodesKnown& event, Json& out) {
    Json& nodes = out["nodes"] = Json::array();
    for (const core::KnownNode& node : event.nodes) nodes.push_back(to_json(node));
    Json& conditions = out["standings"] = Json::array();
    for (const core::KnownCondition& condition : event.conditions) conditions.push_back(to_json(condition));
  }
  static Status read(const Json& json, NodesKnown& event) {
    const auto nodes = json.find("nodes");
    if (nodes == json.end() || !nodes->is_array()) return Error{"\"nodes\" must be an array"};
    for (const Json& node : *nodes)
      if (Status status = read_known_node(node, event.nodes.emplace_back()); !status) return status;
    const auto conditions = json.find("standings");
    if (conditions == json.end() || !conditions->is_array()) return Error{"\"standings\" must be an array"};
    for (const Json& condition : *conditions)
      if (Status status = read_known_condition(condition, event.conditions.emplace_back()); !status) return status;
    return {};
  }
};

template <>
struct Coding<ExperimentResumed> {
  static constexpr const char* kType = "experiment_resumed";
  static void write(const ExperimentResumed& event, Json& out) {
    out.update({{"run", event.run}, {"samples", event.samples}});
  }
  static Status read(const Json& json, ExperimentResumed& event) {
    return first_error({read_key(json, "run", event.run), read_key(json, "samples", event.samples)});
  }
};

template <>
struct Coding<SearchSaid> {
  static constexpr const char* kType = "search_said";
  static void write(const SearchSaid& event, Json& out) { out.update({{"run", event.run}, {"line", event.line}}); }
  static Status read(const Json& json, SearchSaid& event) {
    return first_error({read_key(json, "run", event.run), read_key(json, "line", event.line)});
  }
};

template <>
struct Coding<SearchFailed> {
  static constexpr const char* kType = "search_failed";
  static void write(const SearchFailed& event, Json& out) { out.update({{"run", event.run}, {"why", event.why}}); }
  static Status read(const Json& json, SearchFailed& event) {
    return first_error({read_key(json, "run", event.run), read_key(json, "why", event.why)});
  }
};

template <>
struct Coding<CheckpointStored> {
  static constexpr const char* kType = "checkpoint_stored";
  static void write(const CheckpointStored& event, Json& out) {
    out.update({{"run", event.run}, {"path", event.path}});
  }
  static Status read(const Json& json, CheckpointStored& event) {
    return first_error({read_key(json, "run", event.run), read_key(json, "path", event.path)});
  }
};

template <>
struct Coding<Restarted> {
  static constexpr const char* kType = "restarted";
  static void write(const Restarted&, Json&) {}
  static Status read(const Json&, Restarted&) { return {}; }
};

template <>
struct Coding<Tick> {
  static constexpr const char* kType = "tick";
  static void write(const Tick&, Json&) {}
  static Status read(const Json&, Tick&) { return {}; }
};

// A new field belongs into the coding above first, and then into the number here.
template <class Event>
constexpr std::size_t kFields = boost::pfr::tuple_size_v<Event>;
static_assert(kFields<Submitted> == 1 && kFields<FromAgent> == 2 && kFields<AgentClosed> == 1);
static_assert(kFields<StopRequested> == 2 && kFields<NodeSilent> == 2);
static_assert(kFields<NodeOrdered> == 2 && kFields<RunForgotten> == 1);
static_assert(kFields<ExperimentResumed> == 2 && kFields<SearchSaid> == 2 && kFields<SearchFailed> == 2);
static_assert(kFields<CheckpointStored> == 2);
static_assert(kFields<NodesKnown> == 2 && std::is_empty_v<Restarted> && std::is_empty_v<Tick>);

template <class... Events>
Result<core::CoordinatorEvent> decode_as(const std::string& type, const Json& json,
                                         std::type_identity<std::variant<Events...>>) {
  core::CoordinatorEvent event;
  Status status;
  const auto try_one = [&]<class Event>(std::type_identity<Event>) {
    if (type != Coding<Event>::kType) return false;
    status = Coding<Event>::read(json, event.emplace<Event>());
    return true;
  };
  if (!(try_one(std::type_identity<Events>{}) || ...)) return Error{fmt::format("unknown type \"{}\"", type)};
  if (!status) return Error{fmt::format("{}: {}", type, status.error().message)};
  return event;
}

}  // namespace

std::string encode_event(const core::CoordinatorEvent& event) {
  Json json = {{"v", kEventVersion}};
  std::visit(
      [&json]<class Event>(const Event& one) {
        json["type"] = Coding<Event>::kType;
        Coding<Event>::write(one, json);
      },
      event);
  return codec::print(json);
}

Result<core::CoordinatorEvent> decode_event(std::string_view text) {
  const Result<Json> json = codec::parse_object(text, codec::kDepthMax);
  if (!json) return json.error();
  int version = 0;
  if (const Status status = read_key(json.value(), "v", version); !status) return status.error();
  if (version != kEventVersion)
    return Error{fmt::format("version {} of events; this sgd-launch knows {}", version, kEventVersion)};
  std::string type;
  if (const Status status = read_key(json.value(), "type", type); !status) return status.error();
  return decode_as(type, json.value(), std::type_identity<core::CoordinatorEvent>{});
}

}  // namespace sgd::storage
