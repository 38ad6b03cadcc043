#pragma once
// What a run left behind in its folder, for a launcher that goes on with it. Reads only. What a
// killed launcher left half written is measured here and cut off by RunDirectory::reopen.
//
// The folder may have been moved: everything is found relative to it.

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/checkpoint/made_by.hpp"
#include "common/checkpoint/manifest.hpp"
#include "common/checkpoint/scan.hpp"
#include "common/json/nlohmann.hpp"
#include "launcher/core/coordinator_io.hpp"

namespace sgd::storage {

/// Where the last whole line of a file of lines ends.
struct LinesEnd {
  std::string file;  ///< "events.jsonl"
  std::uint64_t whole_bytes = 0;
  std::uint64_t bytes = 0;  ///< More than `whole_bytes`: the end is torn.
};

struct DamagedCheckpoint {
  std::string path;  ///< Relative to the run directory.
  std::string reason;
};

struct RunHistory {
  RunId id;  ///< As first recorded; without a record the folder's name.
  core::RunPast past;
  checkpoint::Manifest newest;             ///< Of past.checkpoints.front(), if there is one.
  checkpoint::PlaceInEpoch place;          ///< Where `newest` stands.
  nlohmann::json made_by;                  ///< And with which settings: see checkpoint::order_conflict().
  nlohmann::json optimizers;               ///< Whose state it holds: [{"name", "type", ...}]; null: not said.
  std::vector<DamagedCheckpoint> damaged;  ///< The newest first.
  std::vector<std::string> ahead;          ///< Whole, but of epochs without a line in metrics.jsonl; relative paths.
  bool succeeded = false;                  ///< The end was recorded, and it was a success.
  nlohmann::ordered_json finished;         ///< Its event; null: no end was recorded.
  nlohmann::ordered_json failure;          ///< The event of the last failure; null: there was none.
  LinesEnd events_end;
  LinesEnd metrics_end;
};

/// A checkpoint that does not stand `proof` counts as damaged.
[[nodiscard]] Result<RunHistory> read_history(const std::string& directory,
                                              checkpoint::Proof proof = checkpoint::Proof::kChecksums);

/// Of past.checkpoints.front(), which is whole and of the run in `directory`: where it stands, and with which settings
/// it was made.
void read_place(RunHistory& history, const std::string& directory);

/// Of the lines of metrics.jsonl: those of the steps of `checkpoints`, and the newest others. A torn end is left out.
[[nodiscard]] Result<core::Scores> read_scores(const std::string& directory, const job::KeepBest& best,
                                               const std::vector<std::string>& checkpoints);

}  // namespace sgd::storage
