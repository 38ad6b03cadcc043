#include "launcher/agent/journal_codec.hpp"

#include <algorithm>

#include "common/json/lenient.hpp"
#include "common/messages/frame.hpp"
#include "launcher/storage/agent_state_codec.hpp"

namespace sgd::agent {
namespace {

using Json = nlohmann::json;
namespace event = core::agent_event;

/// Bytes that are no UTF-8 become U+FFFD, as on every other way that they could have come.
std::string print(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// The event's own fields, and the message that it brings, in the words of its protocol.
struct Writer {
  Json& head;
  std::string& message;
  void operator()(const event::Connected& connected) {
    head.update({{"event", "connected"}, {"address", connected.address}});
  }
  void operator()(const event::Disconnected&) { head["event"] = "disconnected"; }
  void operator()(const event::FromCoordinator& from) {
    head["event"] = "from_coordinator";
    message = cluster::encode(from.message);
  }
  void operator()(const event::KeeperStarted& started) {
    head.update({{"event", "keeper_started"}, {"run", started.run}, {"link_path", started.link_path}});
  }
  void operator()(const event::FromKeeper& from) {
    head.update({{"event", "from_keeper"}, {"run", from.run}});
    message = keeper::encode(from.message).substr(kFrameHeaderBytes);
  }
  void operator()(const event::KeeperClosed& closed) {
    head.update({{"event", "keeper_closed"},
                 {"run", closed.run},
                 {"signal", closed.signal},
                 {"reason", closed.message},
                 {"with_agent", closed.with_agent},
                 {"never_started", closed.never_started}});
  }
  void operator()(const event::StraysCleared& cleared) {
    head.update({{"event", "strays_cleared"}, {"run", cleared.run}});
  }
  void operator()(const event::PortReserved& reserved) {
    head.update({{"event", "port_reserved"},
                 {"run", reserved.run},
                 {"generation", reserved.generation},
                 {"port", reserved.port},
                 {"error", reserved.error},
                 {"worker_ports", reserved.worker_ports}});
  }
  void operator()(const event::FromWorker& from) {
    head.update({{"event", "from_worker"}, {"connection", from.connection}, {"pid", from.peer_pid}, {"run", from.run}});
    message = link::encode(from.message);
    message.pop_back();
  }
  void operator()(const event::LinkClosed& closed) {
    head.update({{"event", "link_closed"}, {"connection", closed.connection}});
  }
  void operator()(const event::FetchAdvanced& fetch) {
    head.update({{"event", "fetch_advanced"}, {"run", fetch.run}, {"path", fetch.path}, {"bytes", fetch.bytes}});
  }
  void operator()(const event::CheckpointFetched& fetched) {
    head.update({{"event", "checkpoint_fetched"},
                 {"run", fetched.run},
                 {"path", fetched.path},
                 {"error", fetched.error},
                 {"missing", fetched.missing}});
  }
  void operator()(const event::SlotsChanged& changed) {
    head.update({{"event", "slots_changed"}, {"slots", changed.slots}});
  }
  void operator()(const event::LeavingSoon&) { head["event"] = "leaving_soon"; }
  void operator()(const event::Tick&) { head["event"] = "tick"; }
  void operator()(const event::Resumed& resumed) {
    head.update({{"event", "resumed"},
                 {"slots", resumed.slots},
                 {"address", resumed.address},
                 {"memory_bytes", resumed.memory_bytes},
                 {"labels", resumed.labels}});
  }
};

/// Throws what nlohmann throws for fields that are missing or of another type.
Result<core::AgentEvent> read_event(const Json& head, std::string_view message) {
  const std::string name = head.at("event");
  const auto run = [&head] { return head.at("run").get<std::string>(); };
  if (name == "from_worker") {
    auto said = link::decode_from_worker(message);
    if (!said) return said.error();
    return core::AgentEvent{event::FromWorker{head.at("connection"), head.at("pid"), std::move(said).value(), run()}};
  }
  if (name == "from_keeper") {
    auto said = keeper::decode_from_keeper(message);
    if (!said) return said.error();
    return core::AgentEvent{event::FromKeeper{run(), std::move(said).value()}};
  }
  if (name == "from_coordinator") {
    auto said = cluster::decode_to_agent(message);
    if (!said) return said.error();
    return core::AgentEvent{event::FromCoordinator{std::move(said).value()}};
  }
  if (name == "connected") return core::AgentEvent{event::Connected{head.value("address", "")}};
  if (name == "disconnected") return core::AgentEvent{event::Disconnected{}};
  if (name == "keeper_started") return core::AgentEvent{event::KeeperStarted{run(), head.at("link_path")}};
  if (name == "keeper_closed")
    return core::AgentEvent{event::KeeperClosed{run(), head.at("signal"), head.at("reason"), head.at("with_agent"),
                                                head.value("never_started", false)}};
  if (name == "strays_cleared") return core::AgentEvent{event::StraysCleared{run()}};
  if (name == "port_reserved")
    return core::AgentEvent{
        event::PortReserved{run(), head.at("generation"), head.at("port"), head.at("error"), head.at("worker_ports")}};
  if (name == "link_closed") return core::AgentEvent{event::LinkClosed{head.at("connection")}};
  if (name == "fetch_advanced") return core::AgentEvent{event::FetchAdvanced{run(), head.at("path"), head.at("bytes")}};
  if (name == "checkpoint_fetched")
    return core::AgentEvent{event::CheckpointFetched{run(), head.at("path"), head.at("error"), head.at("missing")}};
  if (name == "slots_changed") return core::AgentEvent{event::SlotsChanged{head.at("slots")}};
  if (name == "leaving_soon") return core::AgentEvent{event::LeavingSoon{}};
  if (name == "tick") return core::AgentEvent{event::Tick{}};
  if (name == "resumed")
    return core::AgentEvent{
        event::Resumed{head.at("slots"), head.at("address"), head.at("memory_bytes"), head.at("labels")}};
  return Error{"an event of the unknown kind " + name};
}

}  // namespace

std::string encode(const JournalHeader& header) {
  return print({{"boot_id", header.boot_id},
                {"program", header.program},
                {"runtime_dir", header.runtime_dir},
                {"node", header.node},
                {"rows", header.rows}});
}

Result<JournalHeader> decode_header(std::string_view text) {
  try {
    const Json from = Json::parse(text);
    return JournalHeader{from.at("boot_id"), from.at("program"), from.at("runtime_dir"), from.at("node"),
                         from.at("rows")};
  } catch (const Json::exception&) {
    return Error{std::string("the header: ") + kWrongShape};
  }
}

std::string encode(const storage::StateRow& row) {
  return print({{"state", row.kind}, {"id", row.id}}) + "\n" + row.text;
}

Result<storage::StateRow> decode_row(std::string_view text) {
  const std::size_t end = text.find('\n');
  if (end == std::string_view::npos) return Error{"a state without an end of its first line"};
  try {
    const Json head = Json::parse(text.substr(0, end));
    return storage::StateRow{head.at("state"), head.at("id"), std::string(text.substr(end + 1))};
  } catch (const Json::exception&) {
    return Error{std::string("a state: ") + kWrongShape};
  }
}

Result<JournalStart> decode_start(std::vector<storage::StateRow> rows) {
  JournalStart start;
  const auto own = std::find_if(rows.begin(), rows.end(), [](const auto& row) { return row.kind == "books"; });
  if (own == rows.end()) return Error{"a state without books"};
  auto shell_state = decode_shell_state(*own);
  if (!shell_state) return shell_state.error();
  start.shell_state = std::move(shell_state).value();
  rows.erase(own);
  auto machine = storage::decode_agent(rows);
  if (!machine) return machine.error();
  start.machine = std::move(machine).value();
  return start;
}

std::string encode(const core::TimedEvent& timed, std::int64_t told) {
  Json head{{"at", timed.at.time_since_epoch().count()}, {"told", told}};
  std::string message;
  std::visit(Writer{head, message}, timed.event);
  return print(head) + "\n" + message;
}

Result<JournalRecord> decode_record(std::string_view text) {
  const std::size_t end = text.find('\n');
  if (end == std::string_view::npos) return Error{"an event without an end of its first line"};
  try {
    const Json head = Json::parse(text.substr(0, end));
    auto event = read_event(head, text.substr(end + 1));
    if (!event) return event.error();
    JournalRecord record{{TimePoint(Duration(head.at("at").get<std::int64_t>())), std::move(event).value()},
                         head.at("told")};
    return record;
  } catch (const Json::exception&) {
    return Error{std::string("an event: ") + kWrongShape};
  }
}

}  // namespace sgd::agent
