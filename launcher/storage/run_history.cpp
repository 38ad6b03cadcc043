#include "launcher/storage/run_history.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "common/checkpoint/scan.hpp"
#include "common/json/json_file.hpp"
#include "common/json/lenient.hpp"
#include "common/json/shallow.hpp"

namespace sgd::storage {
namespace fs = std::filesystem;
namespace {

using OrderedJson = nlohmann::ordered_json;

/// Hands every line that is a JSON object to `take`, in order.
Result<LinesEnd> read_lines(const std::string& directory, const std::string& name,
                            const std::function<void(const OrderedJson&)>& take) {
  LinesEnd end{name, 0, 0};
  const std::string path = directory + "/" + name;
  std::ifstream file(path, std::ios::binary);
  std::error_code missing;
  if (!file && !fs::exists(path, missing)) return end;
  if (!file) return system_error("cannot read " + path);
  for (std::string line; std::getline(file, line);) {
    const bool has_newline = !file.eof();
    end.bytes += line.size() + (has_newline ? 1 : 0);
    const OrderedJson json = parse_shallow<OrderedJson>(line);
    if (!json.is_object() || !has_newline) continue;
    end.whole_bytes = end.bytes;
    take(json);
  }
  if (file.bad()) return system_error("cannot read " + path);
  return end;
}

/// What lines of events.jsonl tell together.
struct EventScan {
  bool has_begun = false;
  double last_s = 0;  ///< Of the newest line: Unix time.
  std::map<Generation, std::map<Rank, NodeId>> started;
};

void add_event(RunHistory& history, EventScan& scan, const OrderedJson& event) {
  const std::string name = read_or(event, "event", "");
  const double time_s = read_or(event, "time", scan.last_s);
  if (name == "run_started" || name == "run_resumed")
    scan.has_begun = true;  // What is between two legs does not count,
  else if (scan.has_begun)
    history.past.wall_s += std::max(0.0, time_s - scan.last_s);  // Nor does a clock that is set back.
  scan.last_s = time_s;
  if (name == "worker_started")
    scan.started[read_or(event, "generation", Generation{0})][read_or(event, "rank", Rank{0})] =
        read_or(event, "node", "");
  if (name == "run_started" && history.id.empty()) history.id = read_or(event, "run", "");
  if (name == "run_resumed") {
    history.succeeded = false;
    history.finished = nullptr;
    history.failure = nullptr;
  }
  // Epochs of the run before it have their lines there.
  if (name == "run_begun_from") history.past.epochs = std::max(history.past.epochs, read_or(event, "epoch", 0));
  if (name == "run_finished") {
    history.succeeded = read_or(event, "state", "") == "succeeded";
    history.finished = event;
  }
  if (name == "failure") history.failure = event;
  if (name == "failure") ++history.past.failures;
  history.past.generation = std::max(history.past.generation, read_or(event, "generation", Generation{0}));
}

void add_metrics(RunHistory& history, const OrderedJson& line) {
  core::RunPast& past = history.past;
  link::ReportKey key;
  key.epoch = read_or(line, "epoch", 0);
  key.phase = read_or(line, "phase", "");
  key.batch = read_or(line, "batch", std::int64_t{0});
  key.sequence = read_or(line, "sequence", std::int64_t{0});
  if (key.batch == 0 && key.phase == "validate") past.epochs = std::max(past.epochs, key.epoch);
  past.metrics[key.phase] = line;
  for (const char* stamp : {"_timestamp", "_date"}) past.metrics[key.phase].erase(stamp);
  past.steps = std::max(past.steps, read_or(line, "step", std::int64_t{0}));
  past.generation = std::max(past.generation, read_or(line, "generation", Generation{0}));
  ++past.reports;
  past.written = std::move(key);
}

/// Ranks by node, in the order of node ranks.
std::vector<std::vector<Rank>> shape_of(const std::map<Rank, NodeId>& ranks) {
  std::vector<std::vector<Rank>> shape;
  std::map<NodeId, std::size_t> places;
  for (const auto& [rank, node] : ranks) {
    const auto [place, is_new] = places.try_emplace(node, shape.size());
    if (is_new) shape.emplace_back();
    shape[place->second].push_back(rank);
  }
  return shape;
}

/// The highest N of the folders logs/gen-N.
Generation newest_log(const std::string& directory) {
  constexpr std::string_view kFront = "gen-";
  Generation newest = 0;
  std::error_code error;
  fs::directory_iterator entry(directory + "/logs", error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(kFront)) continue;
    Generation generation = 0;
    const char* end = name.data() + name.size();
    const auto parsed = std::from_chars(name.data() + kFront.size(), end, generation);
    if (parsed.ec == std::errc() && parsed.ptr == end) newest = std::max(newest, generation);
  }
  return newest;
}

/// A command's epochs are what its program calls so: it may never report one's end, and counts from where it likes.
bool is_of_command(const std::string& directory) {
  return !member(json::read_file(directory + "/job.json"), "command").empty();
}

Status add_checkpoints(RunHistory& history, const std::string& directory, checkpoint::Proof proof) {
  const std::string folder = directory + "/" + checkpoint::kDirectory;
  const auto found = checkpoint::list_checkpoints(folder, proof);
  if (!found) return found.error();
  core::RunPast& past = history.past;
  std::vector<checkpoint::Manifest> manifests;
  for (const checkpoint::Found& one : found.value()) {
    past.generation = std::max(past.generation, one.name.generation);
    // Judged again by sizes only: who reads the manifest need not read the weights twice.
    const auto manifest = checkpoint::verify(one.path, checkpoint::Proof::kSizes);
    if (one.damage.empty() && manifest) {
      past.checkpoints.push_back(one.path);
      manifests.push_back(manifest.value());
      continue;
    }
    std::string reason = one.damage.empty() ? manifest.error().message : one.damage;
    if (reason.starts_with(one.path + "/")) reason.erase(0, one.path.size() + 1);
    history.damaged.push_back({one.path.substr(directory.size() + 1), std::move(reason)});
  }
  // Workers save by themselves, and their reports go through the launcher: if it is killed, a checkpoint may
  // be there whose epoch has no line. From the one before it the epoch is trained again and gets its line.
  const bool may_be_ahead = !manifests.empty() && !is_of_command(directory);
  const auto covered = std::find_if(manifests.begin(), manifests.end(), [&](const checkpoint::Manifest& one) {
    return !may_be_ahead || one.epoch <= past.epochs;
  });
  const auto ahead = covered == manifests.end() ? 0 : covered - manifests.begin();
  for (auto path = past.checkpoints.begin(); path != past.checkpoints.begin() + ahead; ++path)
    history.ahead.push_back(path->substr(directory.size() + 1));
  past.checkpoints.erase(past.checkpoints.begin(), past.checkpoints.begin() + ahead);
  if (!past.checkpoints.empty()) history.newest = manifests[static_cast<std::size_t>(ahead)];
  past.steps = std::max(past.steps, history.newest.step);
  return {};
}

}  // namespace

/// A checkpoint of an older worker does not say its settings: then they were those of the run's job.
void read_place(RunHistory& history, const std::string& directory) {
  using Json = nlohmann::json;
  // As deep as its user has made it.
  const Result<std::string> text = json::text_of_file(history.past.checkpoints.front() + "/state.json");
  const Json state = Json::parse(text ? text.value() : std::string(), nullptr, false);
  history.place = checkpoint::place_of(state);
  history.made_by = member(state, "made_by");
  history.optimizers = member(state, "optimizers");
  if (history.made_by.is_object()) return;
  const Json job = json::read_file(directory + "/job.json");
  history.made_by = {{"training", member(job, "training")}, {"cpus", member(member(job, "per_worker"), "cpus")}};
}

Result<RunHistory> read_history(const std::string& directory, checkpoint::Proof proof) {
  RunHistory history;
  EventScan scan;
  auto events =
      read_lines(directory, "events.jsonl", [&](const OrderedJson& event) { add_event(history, scan, event); });
  if (!events) return events.error();
  history.events_end = std::move(events).value();
  auto metrics = read_lines(directory, "metrics.jsonl", [&](const OrderedJson& line) { add_metrics(history, line); });
  if (!metrics) return metrics.error();
  history.metrics_end = std::move(metrics).value();
  if (history.id.empty()) history.id = fs::path(directory).filename().string();
  history.past.generation = std::max(history.past.generation, newest_log(directory));
  const Status scanned = add_checkpoints(history, directory, proof);
  if (!scanned) return scanned.error();
  if (history.past.checkpoints.empty()) return history;
  read_place(history, directory);
  history.past.shape = shape_of(scan.started[history.newest.generation]);
  return history;
}

Result<core::Scores> read_scores(const std::string& directory, const job::KeepBest& best,
                                 const std::vector<std::string>& checkpoints) {
  const std::set<std::int64_t> steps = core::steps_of(checkpoints);
  core::Scores scores;
  core::Scores others;
  const auto read = read_lines(directory, "metrics.jsonl", [&](const OrderedJson& line) {
    const auto score = core::score_in(line, best);
    const auto step = read_or(line, "step", std::int64_t{-1});
    if (!score || step < 0) return;
    (steps.contains(step) ? scores : others)[step] = *score;
    if (others.size() > core::kScoresMax)
      others.erase(others.begin()->first == step ? std::next(others.begin()) : others.begin());
  });
  scores.merge(others);
  return read ? Result<core::Scores>(std::move(scores)) : read.error();
}

}  // namespace sgd::storage
