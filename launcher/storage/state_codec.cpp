#include "launcher/storage/state_codec.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "launcher/storage/coordinator_state_fields.hpp"
#include "launcher/storage/read_row.hpp"

namespace sgd::storage {
namespace {

using Json = nlohmann::json;
using core::CoordinatorState;

/// What is neither of a node nor of a run.
struct SavedRest {
  Duration time_to_be_back{};
  std::deque<RunId> finished;
  std::deque<RunId> finished_trials;
  std::int64_t submissions = 0;
  std::optional<TimePoint> offered_at;
  std::optional<TimePoint> offer_at;
};
/// A run's machine, and what the queue remembers of it.
struct RunEntry {
  core::RunState machine;
  CoordinatorState::Ticket ticket;
};
/// Its trials have rows of their own: few of many change between two cuts of the log.
struct ExperimentEntry {
  core::ExperimentState machine;
  CoordinatorState::Ticket ticket;
};

// A new field belongs into encode_state() and decode_state() first, and then into the number here.
static_assert(boost::pfr::tuple_size_v<CoordinatorState> == 12);

/// A saved job is as deep as one in a message.
constexpr int kRowDepth = codec::kDepthMax;

/// Of a trial's row: in the order of the trials.
std::string row_of_trial(const RunId& experiment, tune::TrialId trial) {
  return fmt::format("{}.{:09}", experiment, trial);
}

}  // namespace
}  // namespace sgd::storage

namespace sgd::codec {
template <>
inline constexpr auto kMessage<storage::SavedRest> = message(
    "", required("time_to_be_back", &storage::SavedRest::time_to_be_back),
    required("finished", &storage::SavedRest::finished),
    optional("finished_trials", &storage::SavedRest::finished_trials),
    required("submissions", &storage::SavedRest::submissions), optional("offered_at", &storage::SavedRest::offered_at),
    optional("offer_at", &storage::SavedRest::offer_at));
template <>
inline constexpr auto kMessage<storage::RunEntry> = message("", required("machine", &storage::RunEntry::machine),
                                                            required("ticket", &storage::RunEntry::ticket));
template <>
inline constexpr auto kMessage<storage::ExperimentEntry> = message(
    "", required("machine", &storage::ExperimentEntry::machine), required("ticket", &storage::ExperimentEntry::ticket));
}  // namespace sgd::codec

namespace sgd::storage {

std::vector<StateRow> encode_state(const CoordinatorState& state) {
  std::vector<StateRow> rows;
  const auto add = [&rows](const char* kind, const std::string& id, const auto& value) {
    rows.push_back({kind, id, codec::print(codec::write(value))});
  };
  std::vector<StateRow> trials;
  for (const auto& [id, experiment] : state.experiments_) {
    ExperimentEntry entry{experiment.state(), state.tickets_.at(id)};
    for (const auto& [trial, record] : std::exchange(entry.machine.trials_, {}))
      trials.push_back({"trial", row_of_trial(id, trial), codec::print(codec::write(record))});
    add("experiment", id, entry);
  }
  for (const auto& [id, node] : state.lost_) add("lost", id, node);
  for (const auto& [id, node] : state.nodes_) add("node", id, node);
  add("rest", "",
      SavedRest{state.time_to_be_back_, state.finished_, state.finished_trials_, state.submissions_, state.offered_at_,
                state.offer_at_});
  for (const auto& [id, run] : state.runs_) {
    const Json entry = {{"machine", codec::write(run.state())}, {"ticket", codec::write(state.tickets_.at(id))}};
    rows.push_back({"run", id, codec::print(entry)});
  }
  for (const auto& [id, condition] : state.conditions_) add("standing", id, condition);
  std::move(trials.begin(), trials.end(), std::back_inserter(rows));
  return rows;
}

namespace {

Status read_trial(const StateRow& row, std::map<RunId, core::ExperimentState>& experiments) {
  const std::size_t dot = row.id.rfind('.');
  tune::TrialId trial = 0;
  const char* end = row.id.data() + row.id.size();
  if (dot == std::string::npos || std::from_chars(row.id.data() + dot + 1, end, trial).ptr != end)
    return Error{fmt::format("\"{}\" is no trial", row.id)};
  return read_row(row, kRowDepth, experiments[row.id.substr(0, dot)].trials_[trial]);
}

}  // namespace

Result<CoordinatorState> decode_state(const std::vector<StateRow>& rows) {
  CoordinatorState state;
  std::map<RunId, core::ExperimentState> experiments;
  for (const StateRow& row : rows) {
    Status status;
    if (row.kind == "node" || row.kind == "lost") {
      status = read_row(row, kRowDepth, (row.kind == "node" ? state.nodes_ : state.lost_)[row.id]);
    } else if (row.kind == "standing") {
      status = read_row(row, kRowDepth, state.conditions_[row.id]);
    } else if (row.kind == "run") {
      RunEntry entry;
      status = read_row(row, kRowDepth, entry);
      if (status) state.runs_.emplace(row.id, core::RunMachine(std::move(entry.machine)));
      state.tickets_[row.id] = std::move(entry.ticket);
    } else if (row.kind == "experiment") {
      ExperimentEntry entry;
      status = read_row(row, kRowDepth, entry);
      entry.machine.trials_.merge(experiments[row.id].trials_);
      experiments[row.id] = std::move(entry.machine);
      state.tickets_[row.id] = std::move(entry.ticket);
    } else if (row.kind == "trial") {
      status = read_trial(row, experiments);
    } else if (row.kind == "rest") {
      SavedRest rest;
      status = read_row(row, kRowDepth, rest);
      std::tie(state.time_to_be_back_, state.finished_, state.finished_trials_, state.submissions_, state.offered_at_,
               state.offer_at_) = std::tie(rest.time_to_be_back, rest.finished, rest.finished_trials, rest.submissions,
                                           rest.offered_at, rest.offer_at);
    } else {
      status = Error{fmt::format("unknown kind of state \"{}\"", row.kind)};
    }
    if (!status) return status.error();
  }
  for (auto& [id, experiment] : experiments) {
    if (!state.tickets_.contains(id))
      return Error{fmt::format("experiment {} is missing, and its trials are there", id)};
    state.experiments_.emplace(id, core::Experiment(std::move(experiment)));
  }
  return state;
}

}  // namespace sgd::storage
