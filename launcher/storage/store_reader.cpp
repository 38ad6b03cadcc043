#include "launcher/storage/store_reader.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

namespace sgd::storage {

Result<CutMark> read_cut(const Database& database) {
  auto rows = database.prepare("SELECT event, at FROM cut");
  if (!rows) return rows.error();
  const Result<bool> row = rows.value().step();
  if (!row) return row.error();
  CutMark cut;
  if (!row.value()) return cut;
  cut.event = static_cast<std::uint64_t>(rows.value().integer(0));
  cut.at = TimePoint(Duration(rows.value().integer(1)));
  return cut;
}

Result<std::vector<StateRow>> read_states(const Database& database) {
  auto rows = database.prepare("SELECT kind, id, state FROM states ORDER BY kind, id");
  if (!rows) return rows.error();
  std::vector<StateRow> states;
  for (Statement& row = rows.value();;) {
    const Result<bool> next = row.step();
    if (!next) return next.error();
    if (!next.value()) return states;
    states.push_back({row.text(0), row.text(1), row.text(2)});
  }
}

Status read_events(const Database& database, const CutMark& cut, std::uint64_t last,
                   const std::function<Status(StoredEvent)>& take, std::int64_t most) {
  auto rows = database.prepare("SELECT id, at, event FROM events WHERE id > ? AND id <= ? ORDER BY id LIMIT ?");
  if (!rows) return rows.error();
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  rows.value().bind(1, static_cast<std::int64_t>(cut.event)).bind(2, static_cast<std::int64_t>(std::min(last, kMax)));
  rows.value().bind(3, most);
  std::uint64_t before = cut.event;
  for (;;) {
    const Result<bool> row = rows.value().step();
    if (!row) return row.error();
    if (!row.value()) return {};
    StoredEvent event;
    event.id = static_cast<std::uint64_t>(rows.value().integer(0));
    if (before != 0 && event.id != before + 1)
      return Error{fmt::format("coordinator.db is damaged: after event {} comes event {}", before, event.id)};
    before = event.id;
    event.at = TimePoint(Duration(rows.value().integer(1)));
    event.text = rows.value().text(2);
    if (Status taken = take(std::move(event)); !taken)
      return Error{fmt::format("coordinator.db, event {}: {}", before, taken.error().message)};
  }
}

}  // namespace sgd::storage
