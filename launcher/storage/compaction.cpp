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

/// So many are in memory at a time; and a reader keeps the write-ahead log from being cut.
constexpr std::int64_t kEventsAtOnce = 500;

/// What the log begins with, as text.
struct Beginning {
  CutMark cut;
  std::vector<StateRow> states;
};

Result<Beginning> read_beginning(Database& database) {
  // One transaction: a cut must not come in between.
  if (const Status begun = database.execute("BEGIN"); !begun) return begun.error();
  auto cut = read_cut(database);
  if (!cut) return cut.error();
  auto states = read_states(database);
  if (!states) return states.error();
  if (const Status ended = database.execute("COMMIT"); !ended) return ended.error();
  return Beginning{cut.value(), std::move(states).value()};
}

/// Only a cut takes events away, and this is the next one.
Result<std::vector<StoredEvent>> read_some(const Database& database, const CutMark& behind, std::uint64_t last) {
  std::vector<StoredEvent> events;
  const auto take = [&events](StoredEvent one) -> Status {
    events.push_back(std::move(one));
    return {};
  };
  const Status read = read_events(database, behind, last, take, kEventsAtOnce);
  if (!read) return read.error();
  return events;
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
  auto opened = Database::open(database);
  if (!opened) return opened.error();
  auto beginning = read_beginning(*opened.value());
  if (!beginning) return beginning.error();
  std::vector<StateRow>& before = beginning.value().states;
  auto state = decode_state(before);
  if (!state) return state.error();
  core::Coordinator machine(settings, std::move(state).value());
  StateCut cut;
  std::set<std::string> folders;
  CutMark last = beginning.value().cut;
  for (bool is_more = true; is_more;) {
    auto events = read_some(*opened.value(), last, event);
    if (!events) return events.error();
    is_more = !events.value().empty();
    for (StoredEvent& stored : events.value()) {
      if (is_ending) return Error{"the coordinator ends"};
      auto decoded = decode_event(std::exchange(stored.text, {}));
      if (!decoded) return decoded.error();
      core::CoordinatorCommands commands;
      machine.replay(stored.at, decoded.value(), commands);
      count_lines(commands, cut.lines);
      last = {stored.id, stored.at};
    }
  }
  opened.value().reset();
  if (last.event == beginning.value().cut.event) return Error{"there is nothing to cut"};
  cut.event = last.event;
  cut.at = last.at;
  for (const auto& [id, run] : machine.state().runs_)
    if (cut.lines.contains(id)) folders.insert(run.definition().run_dir);
  sync_file_systems(folders);
  auto rows = encode_state(machine.state());
  std::sort(rows.begin(), rows.end(), is_before);
  std::sort(before.begin(), before.end(), is_before);
  compare(before, std::move(rows), cut);
  return cut;
}

}  // namespace sgd::storage
