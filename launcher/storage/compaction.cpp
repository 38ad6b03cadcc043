#include "launcher/storage/compaction.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "launcher/core/coordinator.hpp"
#include "launcher/storage/event_codec.hpp"
#include "launcher/storage/store_reader.hpp"

namespace sgd::storage {
namespace {

/// What the store holds, as text: read at one go, since a reader keeps the write-ahead log from being cut.
struct Text {
  CutMark cut;
  std::vector<StateRow> states;
  std::vector<StoredEvent> events;
};

Result<Text> read_text(const std::string& path, std::uint64_t event) {
  auto database = Database::open(path);
  if (!database) return database.error();
  // One transaction: a cut must not come in between.
  if (const Status begun = database.value()->execute("BEGIN"); !begun) return begun.error();
  Text text;
  auto cut = read_cut(*database.value());
  if (!cut) return cut.error();
  text.cut = cut.value();
  auto states = read_states(*database.value());
  if (!states) return states.error();
  text.states = std::move(states).value();
  const Status read = read_events(*database.value(), text.cut, event, [&text](StoredEvent one) -> Status {
    text.events.push_back(std::move(one));
    return {};
  });
  if (!read) return read.error();
  return text;
}

void count_lines(const core::CoordinatorCommands& commands, std::map<RunId, LineCounts>& lines) {
  for (const core::CoordinatorCommand& command : commands) {
    if (const auto* event = std::get_if<core::coordinator_command::RecordEvent>(&command)) {
      ++lines[event->run].events;
    } else if (const auto* metrics = std::get_if<core::coordinator_command::RecordMetrics>(&command)) {
      ++lines[metrics->run].metrics;
    }
  }
}

/// Lines are written without waiting for the disk, as long as the events that they are made of are stored.
void sync_file_systems(const std::set<std::string>& folders) {
  std::set<dev_t> synced;
  for (const std::string& folder : folders) {
    const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) continue;
    struct stat status {};
    if (::fstat(fd, &status) == 0 && synced.insert(status.st_dev).second)
      (void)::syncfs(fd);  // Ignoring: the folder is the user's; what counts of it is in the state.
    ::close(fd);
  }
}

bool is_before(const StateRow& left, const StateRow& right) {
  return std::tie(left.kind, left.id) < std::tie(right.kind, right.id);
}

/// Both by kind and id.
void compare(const std::vector<StateRow>& before, std::vector<StateRow> after, StateCut& cut) {
  auto old = before.begin();
  for (StateRow& row : after) {
    for (; old != before.end() && is_before(*old, row); ++old) cut.gone.push_back({old->kind, old->id, ""});
    const bool is_known = old != before.end() && !is_before(row, *old);
    if (!is_known || old->text != row.text) cut.changed.push_back(std::move(row));
    if (is_known) ++old;
  }
  for (; old != before.end(); ++old) cut.gone.push_back({old->kind, old->id, ""});
}

}  // namespace

Result<StateCut> compact(const std::string& database, std::uint64_t event, const core::CoordinatorSettings& settings,
                         const std::atomic<bool>& is_ending) {
  auto text = read_text(database, event);
  if (!text) return text.error();
  if (text.value().events.empty()) return Error{"there is nothing to cut"};
  auto state = decode_state(text.value().states);
  if (!state) return state.error();
  core::Coordinator machine(settings, std::move(state).value());
  StateCut cut;
  std::set<std::string> folders;
  for (StoredEvent& stored : text.value().events) {
    if (is_ending) return Error{"the coordinator ends"};
    auto decoded = decode_event(std::exchange(stored.text, {}));
    if (!decoded) return decoded.error();
    core::CoordinatorCommands commands;
    machine.replay(stored.at, decoded.value(), commands);
    count_lines(commands, cut.lines);
  }
  cut.event = text.value().events.back().id;
  cut.at = text.value().events.back().at;
  for (const auto& [id, run] : machine.state().runs_)
    if (cut.lines.contains(id)) folders.insert(run.definition().run_dir);
  sync_file_systems(folders);
  auto rows = encode_state(machine.state());
  std::sort(rows.begin(), rows.end(), is_before);
  std::sort(text.value().states.begin(), text.value().states.end(), is_before);
  compare(text.value().states, std::move(rows), cut);
  return cut;
}

}  // namespace sgd::storage
