#include "launcher/storage/run_succession.hpp"

#include <filesystem>

#include <fmt/format.h>

#include "common/checkpoint/scan.hpp"
#include "launcher/storage/sync_names.hpp"

namespace sgd::storage {
namespace fs = std::filesystem;

Status copy_run(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::create_directories(to, error);
  for (const char* file : {"events.jsonl", "metrics.jsonl"})
    if (!error && fs::exists(fs::path(from) / file, error))
      fs::copy_file(fs::path(from) / file, fs::path(to) / file, error);
  const fs::path saved = fs::path(from) / checkpoint::kDirectory;
  if (!error && fs::exists(saved, error))
    fs::copy(saved, fs::path(to) / checkpoint::kDirectory,
             fs::copy_options::recursive | fs::copy_options::create_hard_links, error);
  if (error) return Error{fmt::format("cannot copy {} to {}: {}", from, to, error.message()), error.value()};
  for (const char* file : {"/events.jsonl", "/metrics.jsonl"})
    if (fs::exists(to + file, error))
      if (const Status synced = sync_path(to + file); !synced) return synced;
  return sync_names(to);
}

Status record_resumption(RunDirectory& directory, const RunHistory& history) {
  const core::RunPast& past = history.past;
  nlohmann::ordered_json resumed = {
      {"event", "run_resumed"}, {"run", directory.id()}, {"from_generation", past.generation}};
  if (history.id != directory.id()) resumed["of"] = history.id;
  resumed["checkpoint"] = past.checkpoints.empty()
                              ? nullptr
                              : nlohmann::ordered_json(past.checkpoints.front().substr(directory.path().size() + 1));
  resumed["step"] = history.newest.step;
  Status written = directory.append_event(resumed);
  for (const DamagedCheckpoint& damaged : history.damaged)
    if (written.ok())
      written = directory.append_event(
          {{"event", "checkpoint_rejected"}, {"path", damaged.path}, {"reason", damaged.reason}});
  return written;
}

}  // namespace sgd::storage
