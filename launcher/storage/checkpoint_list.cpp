#include "launcher/storage/checkpoint_list.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "common/json/json_file.hpp"
#include "common/json/lenient.hpp"
#include "launcher/storage/retention.hpp"
#include "launcher/storage/run_history.hpp"

namespace sgd::storage {
namespace {
namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

std::uint64_t bytes_in(const std::string& directory) {
  std::uint64_t bytes = 0;
  std::error_code error;
  fs::directory_iterator file(directory, error);
  for (std::error_code gone; !error && file != fs::directory_iterator(); file.increment(error)) {
    const std::uintmax_t size = file->file_size(gone);
    if (!gone) bytes += size;
  }
  return bytes;
}

/// Seconds since it was finished; null when that cannot be told.
OrderedJson age_of(const std::string& directory) {
  std::error_code error;
  auto written = fs::last_write_time(directory + "/" + checkpoint::kManifestFile, error);
  if (error) written = fs::last_write_time(directory, error);
  if (error) return nullptr;
  const double age = std::chrono::duration<double>(fs::file_time_type::clock::now() - written).count();
  return std::max(0.0, age);
}

OrderedJson describe_one(const checkpoint::Found& found, const std::string& run_dir) {
  // What the manifest says is worth a look when only another file is damaged; sizes are judged again, weights
  // not read.
  const auto manifest = checkpoint::verify(found.path, checkpoint::Proof::kSizes);
  std::string damage = found.damage;
  if (damage.starts_with(found.path + "/")) damage.erase(0, found.path.size() + 1);
  OrderedJson one = {{"path", found.path.substr(run_dir.size() + 1)}, {"step", found.name.step}};
  one["epoch"] = manifest ? OrderedJson(manifest.value().epoch) : OrderedJson();
  one["generation"] = found.name.generation;
  one["world_size"] = manifest ? OrderedJson(manifest.value().world_size) : OrderedJson();
  one["bytes"] = bytes_in(found.path);
  one["age_s"] = age_of(found.path);
  one["whole"] = damage.empty();
  one["damage"] = damage.empty() ? OrderedJson() : OrderedJson(damage);
  return one;
}

/// Those that a resume would not go on from. While a launcher writes, a line may be on its way; a run whose records
/// cannot be read has its checkpoints all the same.
void add_ahead(const std::string& run_dir, OrderedJson& checkpoints) {
  if (is_run_live(run_dir)) return;
  const auto history = read_history(run_dir, checkpoint::Proof::kSizes);
  if (!history) return;
  const std::vector<std::string>& ahead = history.value().ahead;
  for (OrderedJson& one : checkpoints)
    one["is_ahead"] = one["whole"] == true && std::find(ahead.begin(), ahead.end(), one["path"]) != ahead.end();
}

/// What the run's job keeps. A job.json that cannot be read keeps nothing as the best.
job::CheckpointPolicy policy_of(const std::string& run_dir) {
  const nlohmann::json job = json::read_file(run_dir + "/job.json");
  const nlohmann::json& best = member(member(member(job, "checkpoint"), "keep"), "best");
  job::CheckpointPolicy policy;
  if (best.is_object())
    policy.best = {read_or(best, "metric", ""), read_or(best, "mode", "") == "max", read_or(best, "n", 1)};
  return policy;
}

/// The same rule as the coordinator's (core/kept_checkpoints.hpp), on what is whole here.
Status add_best(const std::string& run_dir, OrderedJson& checkpoints, OrderedJson& list) {
  const job::CheckpointPolicy policy = policy_of(run_dir);
  if (!policy.best) return {};
  std::vector<std::string> whole;
  for (const OrderedJson& one : checkpoints)
    if (one["whole"] == true) whole.push_back(one["path"]);
  std::reverse(whole.begin(), whole.end());  // Oldest first.
  const auto scores = read_scores(run_dir, *policy.best, whole);
  if (!scores) return scores.error();
  const core::KeptCheckpoints kept = core::kept_checkpoints(core::scored(whole, scores.value()), policy);
  for (OrderedJson& one : checkpoints) {
    const auto value = scores.value().find(one["step"].get<std::int64_t>());
    one["value"] = value == scores.value().end() ? OrderedJson() : OrderedJson(value->second);
    one["is_best"] = std::any_of(kept.best.begin(), kept.best.end(),
                                 [&](const core::ScoredCheckpoint& best) { return one["path"] == best.path; });
  }
  list["metric"] = policy.best->metric;
  return {};
}

}  // namespace

Result<OrderedJson> describe_checkpoints(const std::string& run_dir, checkpoint::Proof proof) {
  const auto found = checkpoint::list_checkpoints(run_dir + "/" + checkpoint::kDirectory, proof);
  if (!found) return found.error();
  OrderedJson checkpoints = OrderedJson::array();
  std::error_code error;
  for (const checkpoint::Found& one : found.value())
    // A living run removes old ones: what went away while it was read is not damaged.
    if (one.damage.empty() || fs::exists(one.path, error)) checkpoints.push_back(describe_one(one, run_dir));
  OrderedJson list = {{"schema_version", 1},
                      {"run_dir", run_dir},
                      {"checked", proof == checkpoint::Proof::kSizes ? "sizes" : "checksums"}};
  add_ahead(run_dir, checkpoints);
  if (const Status added = add_best(run_dir, checkpoints, list); !added) return added.error();
  list["checkpoints"] = std::move(checkpoints);
  return list;
}

}  // namespace sgd::storage
