// `sgd-launch checkpoints [RUN]`: what a run, living or ended, has saved, and whether it is whole.

#include <algorithm>
#include <chrono>
#include <filesystem>

#include <fmt/format.h>

#include "common/checkpoint/scan.hpp"
#include "common/exit_codes.hpp"
#include "launcher/cli/narrator.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/verbs.hpp"

namespace sgd::cli {
namespace {
namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

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
Json age_of(const std::string& directory) {
  std::error_code error;
  auto written = fs::last_write_time(directory + "/" + checkpoint::kManifestFile, error);
  if (error) written = fs::last_write_time(directory, error);
  if (error) return nullptr;
  const double age = std::chrono::duration<double>(fs::file_time_type::clock::now() - written).count();
  return std::max(0.0, age);
}

Json describe_one(const checkpoint::Found& found, const std::string& run_dir) {
  // What the manifest says is worth a look when only another file is damaged; sizes are judged again, weights
  // not read.
  const auto manifest = checkpoint::verify(found.path, checkpoint::Proof::kSizes);
  std::string damage = found.damage;
  if (damage.starts_with(found.path + "/")) damage.erase(0, found.path.size() + 1);
  Json one = {{"path", found.path.substr(run_dir.size() + 1)}, {"step", found.name.step}};
  one["epoch"] = manifest ? Json(manifest.value().epoch) : Json();
  one["generation"] = found.name.generation;
  one["world_size"] = manifest ? Json(manifest.value().world_size) : Json();
  one["bytes"] = bytes_in(found.path);
  one["age_s"] = age_of(found.path);
  one["whole"] = damage.empty();
  one["damage"] = damage.empty() ? Json() : Json(damage);
  return one;
}

std::string age_text(const Json& age) {
  if (!age.is_number()) return "-";
  const double seconds = age.get<double>();
  if (seconds < 100) return fmt::format("{:.0f}s", seconds);
  if (seconds < 100 * 60) return fmt::format("{:.0f}m", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{:.0f}h", seconds / 3600);
  return fmt::format("{:.0f}d", seconds / 86400);
}

std::string bytes_text(double bytes) {
  return bytes < 1000 ? fmt::format("{:.0f}", bytes) : short_number(bytes);
}

std::string count_text(const Json& count) {
  return count.is_null() ? "-" : count.dump();
}

void print_table(const std::string& run_dir, const Json& checkpoints) {
  fmt::print("folder     {}\n", run_dir);
  if (checkpoints.empty()) return fmt::print("no checkpoints\n");
  fmt::print("{:<40} {:>10} {:>6} {:>10} {:>10} {:>8} {:>5}  {}\n", "checkpoint", "step", "epoch",
             "generation", "world size", "bytes", "age", "state");
  for (const Json& one : checkpoints)
    fmt::print("{:<40} {:>10} {:>6} {:>10} {:>10} {:>8} {:>5}  {}\n", one.at("path").get<std::string>(),
               count_text(one.at("step")), count_text(one.at("epoch")), count_text(one.at("generation")),
               count_text(one.at("world_size")), bytes_text(one.at("bytes").get<double>()),
               age_text(one.at("age_s")),
               one.at("whole").get<bool>() ? "whole" : one.at("damage").get<std::string>());
}

}  // namespace

int checkpoints_verb(const std::vector<std::string>& arguments) {
  bool as_json = false;
  bool quick = false;
  const NamedRun run = name_run({"checkpoints",
                                 "[--quick] [--json] [RUN]",
                                 "sgd-launch checkpoints",
                                 {flag({"--quick"}, "compare sizes only, not checksums", quick),
                                  flag({"--json"}, "one JSON object", as_json)},
                                 {}, true},
                                arguments);
  if (!run.is_named) return run.exit_code;
  const auto found =
      checkpoint::list_checkpoints(run.directory + "/" + checkpoint::kDirectory,
                                   quick ? checkpoint::Proof::kSizes : checkpoint::Proof::kChecksums);
  if (!found) return refuse(exit_code::kFailed, found.error().message);
  Json checkpoints = Json::array();
  std::error_code error;
  for (const checkpoint::Found& one : found.value())
    // A living run removes old ones: what went away while it was read is not damaged.
    if (one.damage.empty() || fs::exists(one.path, error))
      checkpoints.push_back(describe_one(one, run.directory));
  if (as_json) {
    const Json all = {{"schema_version", 1},
                      {"run_dir", run.directory},
                      {"checked", quick ? "sizes" : "checksums"},
                      {"checkpoints", checkpoints}};
    fmt::print("{}\n", all.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    print_table(run.directory, checkpoints);
  }
  return exit_code::kSucceeded;
}

}  // namespace sgd::cli
