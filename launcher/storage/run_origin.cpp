#include "launcher/storage/run_origin.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "common/messages/transfer.hpp"
#include "launcher/storage/ahead_checkpoints.hpp"
#include "launcher/storage/sync_names.hpp"

namespace sgd::storage {
namespace fs = std::filesystem;
namespace {

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

bool is_checkpoint(const std::string& folder) {
  std::error_code error;
  return checkpoint::parse_directory_name(fs::path(folder).filename().string()).has_value() ||
         fs::exists(folder + "/" + checkpoint::kManifestFile, error);
}

/// The newest whole one of a run; `damaged` gets those that are newer.
Result<std::string> newest_whole(const std::string& run, std::vector<DamagedCheckpoint>& damaged) {
  const std::string folder = run + "/" + checkpoint::kDirectory;
  std::error_code error;
  if (!fs::exists(folder, error))
    return Error{fmt::format("{} is neither a checkpoint nor a run: it has no {} and no {}/", run,
                             checkpoint::kManifestFile, checkpoint::kDirectory)};
  const auto found = checkpoint::list_checkpoints(folder, checkpoint::Proof::kChecksums);
  if (!found) return found.error();
  for (const checkpoint::Found& one : found.value()) {
    if (one.damage.empty()) return one.path;
    damaged.push_back({one.path, one.damage});
  }
  if (damaged.empty()) return Error{fmt::format("run {} has no checkpoint", run)};
  return Error{fmt::format("run {} has no whole checkpoint: {}", run, damaged.front().reason)};
}

/// The same file under another name, or where the disk or the owner is another one a copy, which is on the disk then.
Status take_file(const fs::path& from, const fs::path& to) {
  std::error_code error;
  // A link would lead out of the run, to what may change.
  if (!fs::is_regular_file(fs::symlink_status(from, error)))
    return Error{fmt::format("{} is not a regular file", from.string())};
  fs::create_hard_link(from, to, error);
  if (!error) return {};
  fs::copy_file(from, to, error);
  if (error) return Error{fmt::format("cannot copy {} to {}: {}", from.string(), to.string(), error.message())};
  return sync_path(to.string());
}

/// Under a hidden name until it is whole, as its writer does it.
Status take_checkpoint(const std::string& from, const fs::path& folder, const std::string& name,
                       checkpoint::Manifest manifest) {
  const fs::path part = folder / fmt::format(".{}.part", name);
  std::error_code error;
  fs::create_directories(part, error);
  if (error) return Error{fmt::format("cannot create {}: {}", part.string(), error.message())};
  for (const checkpoint::ManifestFile& file : manifest.files)
    if (const Status taken = take_file(fs::path(from) / file.name, part / file.name); !taken) return taken;
  manifest.generation = 0;
  const std::string last = (part / checkpoint::kManifestFile).string();
  std::ofstream text(last, std::ios::binary);
  text << checkpoint::encode(manifest) << std::flush;
  if (!text) return system_error("cannot write " + last);
  for (const std::string& path : {last, part.string()})
    if (const Status synced = sync_path(path); !synced) return synced;
  fs::rename(part, folder / name, error);
  if (error) return Error{fmt::format("cannot rename {} to {}: {}", part.string(), name, error.message())};
  return sync_path(folder.string());
}

/// "taken.0001.step-..." is in taken/0001; a run's id and a checkpoint's name make one word without slashes.
std::string place_aside(const std::string& run, const std::string& name) {
  const std::size_t first = name.find('.');
  const std::size_t last = name.rfind('.');
  if (first == last) return {};
  const std::string folder = name.substr(0, first);
  const std::string number = name.substr(first + 1, last - first - 1);
  const std::string one = name.substr(last + 1);
  const bool is_known = folder == transfer::kTakenFolder || folder == transfer::kBestFolder;
  if (!is_known || !transfer::is_part(number) || !checkpoint::parse_directory_name(one)) return {};
  return fmt::format("{}/{}/{}/{}", run, folder, number, one);
}

}  // namespace

std::string name_of_checkpoint(const std::string& run, const std::string& path) {
  if (!path.starts_with(run + "/")) return {};
  const std::string below = path.substr(run.size() + 1);
  const std::string own = fmt::format("{}/", checkpoint::kDirectory);
  std::string name = below.starts_with(own) ? below.substr(own.size()) : below;
  std::replace(name.begin(), name.end(), '/', '.');
  return name;
}

bool is_checkpoint_name(const std::string& name) {
  return checkpoint::parse_directory_name(name) || !place_aside({}, name).empty();
}

std::string place_of_checkpoint(const std::string& run, const std::string& name) {
  if (!checkpoint::parse_directory_name(name)) return place_aside(run, name);
  const std::string own = fmt::format("{}/{}/{}", run, checkpoint::kDirectory, name);
  std::error_code ignored;
  if (fs::is_directory(own, ignored)) return own;
  for (const char* folder : {transfer::kTakenFolder, transfer::kBestFolder}) {
    std::error_code error;
    fs::directory_iterator number(fs::path(run) / folder, error);
    for (; !error && number != fs::directory_iterator(); number.increment(error))
      if (fs::is_directory(number->path() / name, ignored)) return number->path() / name;
  }
  return own;
}

Result<RunOrigin> read_origin(const std::string& folder) {
  RunOrigin origin;
  std::error_code error;
  const std::string path = without_slash(folder);
  if (!fs::exists(path, error)) return Error{fmt::format("{} does not exist", path)};
  if (!fs::is_directory(path, error)) return Error{fmt::format("{} is not a folder", path)};
  if (is_checkpoint(path)) {
    origin.checkpoint = path;
  } else {
    auto newest = newest_whole(path, origin.history.damaged);
    if (!newest) return newest.error();
    origin.checkpoint = std::move(newest).value();
  }
  auto manifest = checkpoint::verify(origin.checkpoint, checkpoint::Proof::kChecksums);
  if (!manifest) return manifest.error();
  RunHistory& history = origin.history;
  history.newest = std::move(manifest).value();
  history.past.checkpoints = {origin.checkpoint};
  history.past.epochs = history.newest.epoch;
  history.past.steps = history.newest.step;
  history.succeeded = true;  // A new run of as many epochs would have nothing to do.
  read_place(history, run_of_checkpoint(origin.checkpoint));
  return origin;
}

Result<core::RunPast> begin_from(const RunOrigin& origin, RunDirectory& directory) {
  const checkpoint::Manifest& manifest = origin.history.newest;
  const std::string name = checkpoint::directory_name(manifest.step, 0);
  const fs::path folder = fs::path(directory.path()) / checkpoint::kDirectory;
  if (const Status taken = take_checkpoint(origin.checkpoint, folder, name, manifest); !taken) return taken.error();
  Status written = directory.append_event({{"event", "run_begun_from"},
                                           {"run", directory.id()},
                                           {"from", origin.checkpoint},
                                           {"checkpoint", fmt::format("{}/{}", checkpoint::kDirectory, name)},
                                           {"step", manifest.step},
                                           {"epoch", manifest.epoch}});
  for (const DamagedCheckpoint& damaged : origin.history.damaged)
    if (written.ok())
      written = directory.append_event(
          {{"event", "checkpoint_rejected"}, {"path", damaged.path}, {"reason", damaged.reason}});
  if (!written) return written.error();
  core::RunPast past;
  past.checkpoints = {(folder / name).string()};
  past.epochs = manifest.epoch;
  past.steps = manifest.step;
  past.is_same_job = origin.history.past.is_same_job;
  return past;
}

}  // namespace sgd::storage
