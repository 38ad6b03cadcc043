#pragma once
// Which checkpoints of a run stay: the newest ones, and the best ones by a value of the reports. Pure; what goes is
// taken away by others (storage/checkpoint_pruner.hpp).
//
// A checkpoint has the value of the line of metrics at its step: those are its weights. One without a line of its step,
// or whose line has no finite number there, has none and is never the best. Of equal ones the newer is the better. The
// newest is always kept, so that there is one to go on from.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/job/spec.hpp"
#include "common/json/nlohmann.hpp"

namespace sgd::core {

/// By step.
using Scores = std::map<std::int64_t, double>;
/// Scores that are remembered beyond those of the checkpoints that are there: a state that is saved once more, after a
/// restart from one before it, still has its own.
inline constexpr std::size_t kScoresMax = 256;

struct ScoredCheckpoint {
  std::string path;
  std::optional<double> score;
};

struct KeptCheckpoints {
  std::vector<std::string> paths;      ///< Oldest first, as they were given.
  std::vector<ScoredCheckpoint> best;  ///< Of them, the best first.
};

/// Of `all`, oldest first.
[[nodiscard]] KeptCheckpoints kept_checkpoints(const std::vector<ScoredCheckpoint>& all,
                                               const job::CheckpointPolicy& policy);

/// Of the directory that `path` ends in; nothing for another name.
[[nodiscard]] std::optional<std::int64_t> step_of(const std::string& path);
[[nodiscard]] std::set<std::int64_t> steps_of(const std::vector<std::string>& paths);
[[nodiscard]] std::vector<ScoredCheckpoint> scored(const std::vector<std::string>& paths, const Scores& scores);

/// The value of a line of metrics; nothing where it has none, or none that is finite.
[[nodiscard]] std::optional<double> score_in(const nlohmann::ordered_json& line, const job::KeepBest& best);
/// Takes the value of `line`, which may be a later one of its step, and forgets what is beyond kScoresMax and of no
/// checkpoint in `paths`. True when one of those has another value now.
bool note_score(const nlohmann::ordered_json& line, const job::KeepBest& best, const std::vector<std::string>& paths,
                Scores& scores);

}  // namespace sgd::core
