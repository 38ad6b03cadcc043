#pragma once
// What a run leaves in its folder, as far as a trainer reads it: lines of metrics as they come, its summary, its
// checkpoints.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

namespace sgd::client {

/// Whole lines of a file that grows, from a place on.
class LineFollower {
 public:
  explicit LineFollower(std::string path, std::uint64_t from = 0) : path_(std::move(path)), place_(from) {}

  /// The next line, where it is whole already.
  [[nodiscard]] std::optional<std::string> next();

 private:
  std::string path_;
  std::uint64_t place_;  // Of what is not read yet.
  std::string read_;     // Behind the lines that were given.
};

/// Of a file; empty where it is not there.
[[nodiscard]] std::string text_of(const std::string& path);
/// The same from a place on.
[[nodiscard]] std::string tail_of(const std::string& path, std::uint64_t from);
[[nodiscard]] std::uint64_t size_of(const std::string& path);
/// Null where it is not there, or no JSON.
[[nodiscard]] nlohmann::json json_of(const std::string& path);

/// The last line of a run's metrics that is of `phase`, and of `epoch`, where one is given; null: there is none.
[[nodiscard]] nlohmann::json last_report(const std::string& run_dir, const std::string& phase, int epoch);
/// Why a run's training has ended before its time, as its last validation says; empty: it says nothing of it.
[[nodiscard]] std::string early_stop_of(const std::string& run_dir);
/// What the function has returned, by rank, as the summary has it; else an empty list.
[[nodiscard]] nlohmann::json results_of(const nlohmann::json& summary);

/// The newest whole checkpoint of a run; empty: there is none.
[[nodiscard]] std::string newest_checkpoint(const std::string& run_dir);
[[nodiscard]] bool is_checkpoint(const std::string& folder);
/// The run of a cluster whose newest checkpoint is copied in `checkpoint`. Throws TrainerError where it is no such
/// copy.
[[nodiscard]] std::string run_on_cluster(const std::string& checkpoint);
/// How many epochs are trained in it, the one in work not counted.
[[nodiscard]] int epochs_done(const std::string& checkpoint);

/// Makes a folder that was not there: `name`, or with a number behind it. Throws TrainerError.
[[nodiscard]] std::string new_folder(const std::string& name);
/// Copies a checkpoint: at `to` there is, at any moment, what was there before or the whole copy. Throws TrainerError.
void copy_checkpoint(const std::string& from, const std::string& to);

}  // namespace sgd::client
