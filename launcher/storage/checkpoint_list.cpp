#include "launcher/storage/checkpoint_list.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>

namespace sgd::storage {
namespace {
namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

std::uint64_t bytes_in(const std::string& directory) {
  std::uint64_t bytes = 0;
  std::error_code error;
  for (const auto& file : fs::directory_iterator(directory, error)) {
    const std::uintmax_t size = file.file_size(error);
    if (!error) bytes += size;
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

}  // namespace

Result<OrderedJson> describe_checkpoints(const std::string& run_dir, checkpoint::Proof proof) {
  const auto found = checkpoint::list_checkpoints(run_dir + "/" + checkpoint::kDirectory, proof);
  if (!found) return found.error();
  OrderedJson checkpoints = OrderedJson::array();
  std::error_code error;
  for (const checkpoint::Found& one : found.value())
    // A living run removes old ones: what went away while it was read is not damaged.
    if (one.damage.empty() || fs::exists(one.path, error)) checkpoints.push_back(describe_one(one, run_dir));
  return OrderedJson{{"schema_version", 1},
                     {"run_dir", run_dir},
                     {"checked", proof == checkpoint::Proof::kSizes ? "sizes" : "checksums"},
                     {"checkpoints", std::move(checkpoints)}};
}

}  // namespace sgd::storage
