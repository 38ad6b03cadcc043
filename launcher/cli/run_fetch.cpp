#include "launcher/cli/run_fetch.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/io_context.hpp>

#include "common/checkpoint/scan.hpp"
#include "common/exit_codes.hpp"
#include "common/json/json_file.hpp"
#include "common/json/lenient.hpp"
#include "launcher/callbacks/fresh_file.hpp"
#include "launcher/cli/cluster_client.hpp"
#include "launcher/cli/scratch_folder.hpp"
#include "launcher/net/client_link.hpp"
#include "launcher/process/own_path.hpp"
#include "launcher/process/random_seed.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::cli {
namespace {
namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr auto kSilenceMax = std::chrono::seconds(60);
constexpr auto kLook = std::chrono::milliseconds(100);
constexpr int kFollowNumber = 1;
constexpr const char* kEvents = "events.jsonl";
constexpr const char* kMetrics = "metrics.jsonl";
constexpr const char* kLogs = "logs/";
constexpr const char* kWhose = "run.json";  // In a folder that --to names: whose files it has.
constexpr std::uint64_t kBeyondAnyFile = std::uint64_t{1} << 50;

/// For writing, made with its folders where it is missing; no link of somebody else's leads root elsewhere.
Result<process::UniqueFd> open_here(const fs::path& path) {
  using process::OwnPath;
  const auto place = OwnPath::find(path.string(), OwnPath::Folders::kAreMade);
  if (!place) return Error{fmt::format("cannot write {}: {}", path.string(), place.error().message), EPERM};
  process::UniqueFd fd = place.value().open(O_WRONLY | O_CREAT, 0644);
  if (!fd) return system_error("cannot write " + path.string());
  return fd;
}

class Fetch {
 public:
  Fetch(const NamedRun& run, Json follow, std::string folder, std::string front,
        std::shared_ptr<const net::TlsContext> tls)
      : run_(run),
        follow_(std::move(follow)),
        folder_(std::move(folder)),
        front_(std::move(front)),
        link_(io_, *run.cluster, core::Random(process::random_seed()), std::move(tls)) {}

  /// Told which run it is before anything of it is written; an error ends the fetch. May be empty.
  std::function<Status(const std::string& run)> on_run = {};

  Result<std::uint64_t> get(const std::function<bool()>& is_given_up) {
    link_.start({[this] { ask(); }, [this](const Json& message) { on_message(message); },
                 [this](const std::string& bytes) { on_part(bytes); },
                 [this](const std::string& reason) { on_lost(reason); }});
    while (!end_) {
      const std::uint64_t before = heard_;
      const auto deadline = std::chrono::steady_clock::now() + kSilenceMax;
      while (!end_ && heard_ == before && std::chrono::steady_clock::now() < deadline) {
        io_.run_one_for(kLook);
        if (is_given_up && is_given_up()) fail(exit_code::kFailed, "it was given up");
      }
      if (!end_ && heard_ == before)
        fail(exit_code::kUnreachable,
             fmt::format("the coordinator at {} has said nothing for {}; the same command goes on where this one ends",
                         to_text(*run_.cluster), format_duration(kSilenceMax)));
    }
    if (!end_->ok()) return end_->error();
    return came_;
  }

 private:
  void fail(int exit_code, std::string message) {
    if (!end_) end_ = Status(Error{std::move(message), exit_code});
  }

  void note_bytes(const fs::path& path, Json& offsets) const {
    std::error_code unknown;
    const std::uintmax_t bytes = fs::is_regular_file(path, unknown) ? fs::file_size(path, unknown) : 0;
    if (!unknown && bytes > 0) offsets[front_ + path.lexically_relative(folder_).string()] = bytes;
  }

  void ask() {
    was_open_ = true;
    ++heard_;
    Json offsets = Json::object();
    if (front_.empty()) {  // The folder may hold anything else.
      note_bytes(folder_ + "/" + kEvents, offsets);
      note_bytes(folder_ + "/" + kMetrics, offsets);
    }
    std::error_code error;
    const std::string root = front_.empty() ? folder_ + "/" + kLogs : folder_;
    for (fs::recursive_directory_iterator at(root, error), end; !error && at != end; at.increment(error))
      note_bytes(at->path(), offsets);
    for (auto& [file, bytes] : here_) bytes = read_or(offsets, file.c_str(), std::uint64_t{0});
    Json whole = {
        {"type", "follow"}, {"id", kFollowNumber}, {"run", id_.empty() ? run_.run : id_}, {"until_now", true}};
    whole.update(follow_);
    for (const auto& [file, bytes] : member(follow_, "offsets").items()) offsets[file] = bytes;
    whole["offsets"] = std::move(offsets);
    link_.send(whole);
  }

  void on_lost(const std::string& reason) {
    // A connection that was there comes again, and the files go on where they are.
    if (!was_open_) fail(exit_code::kUnreachable, no_coordinator(*run_.cluster, reason));
  }

  void on_message(const Json& message) {
    ++heard_;
    const std::string type = read_or(message, "type", "");
    if (type == "answer") return on_answer(message);
    if (type == "part") {
      part_ = read_or(message, "file", "");
      offset_ = read_or(message, "offset", std::uint64_t{0});
    }
    if (type == "end" && !end_) end_ = Status();
  }

  void on_answer(const Json& message) {
    if (!read_or(message, "ok", false)) return fail(exit_code::kNotFound, read_or(message, "error", ""));
    id_ = read_or(message, "run", "");
    const Status accepted = on_run ? on_run(id_) : Status();
    if (!accepted) fail(accepted.error().code, accepted.error().message);
  }

  void on_part(const std::string& bytes) {
    ++heard_;
    if (end_) return;  // It may have been on its way when the run was refused.
    const auto place = place_of_fetched(folder_, front_, part_);
    if (!place)
      return fail(exit_code::kFailed, fmt::format("the coordinator sends a file that nobody asked for: \"{}\"", part_));
    // Not kept open: a run may have more logs than a process may have descriptors.
    const auto opened = open_here(*place);
    if (!opened) return fail(exit_code::kFailed, opened.error().message);
    const process::UniqueFd& fd = opened.value();
    struct stat info {};
    if (::fstat(fd.get(), &info) != 0)
      return fail(exit_code::kFailed, system_error("cannot write " + place->string()).message);
    std::uint64_t& bytes_here = here_.try_emplace(part_, static_cast<std::uint64_t>(info.st_size)).first->second;
    if (offset_ != bytes_here) return;  // Of a follow before.
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t count =
          ::pwrite(fd.get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset_ + done));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return fail(exit_code::kFailed, system_error("cannot write " + place->string()).message);
      done += static_cast<std::size_t>(count);
    }
    bytes_here += bytes.size();
    came_ += bytes.size();
    link_.send({{"type", "got"}, {"id", kFollowNumber}, {"file", part_}, {"offset", bytes_here}});
  }

  const NamedRun& run_;
  Json follow_;
  std::string folder_;
  std::string front_;
  boost::asio::io_context io_{1};
  net::ClientLink link_;
  std::string id_;  ///< Of the run: what was the latest one at first stays so when the connection comes again.
  std::map<std::string, std::uint64_t> here_;  ///< How many bytes of each file.
  std::string part_;                           ///< Whose bytes the next chunk is.
  std::uint64_t offset_ = 0;
  std::uint64_t came_ = 0;
  std::uint64_t heard_ = 0;
  bool was_open_ = false;
  std::optional<Status> end_;
};

/// By the descriptor: what has the file's name may be exchanged meanwhile.
Status copy_file_here(const fs::path& from, const fs::path& to) {
  const auto opened = open_here(to);
  if (!opened) return opened.error();
  std::error_code error;
  fs::copy_file(from, fmt::format("/proc/self/fd/{}", opened.value().get()), fs::copy_options::overwrite_existing,
                error);
  return error ? Status(Error{error.message(), error.value()}) : Status();
}

Status copy_here(const std::string& from, const std::string& to) {
  std::error_code error;
  Status copied;
  if (!fs::is_directory(from, error)) copied = copy_file_here(from, to);
  if (fs::is_directory(from, error)) {
    for (fs::recursive_directory_iterator at(from, error), end; !error && copied && at != end; at.increment(error))
      if (at->is_regular_file()) copied = copy_file_here(at->path(), to / at->path().lexically_relative(from));
    if (copied && error) copied = Error{error.message(), error.value()};
  }
  if (copied) return {};
  return Error{fmt::format("cannot copy {} to {}: {}", from, to, copied.error().message), exit_code::kFailed};
}

/// Notes whose files `folder` has, before `name` comes there. Error: they are another run's, and would be mixed with
/// these, or nobody knows whose.
Status claim(const std::string& folder, const std::string& name, const std::string& run) {
  const std::string note = folder + "/" + kWhose;
  std::error_code ignored;  // What cannot be looked at cannot be written either, and that says it better.
  if (fs::exists(note, ignored)) {
    const std::string other = read_or(json::read_ordered_file(note), "run", "");
    if (other == run) return {};
    return Error{fmt::format("{} has files of {}, and these are of run {}: name another folder, or remove it", folder,
                             other.empty() ? "a run that is not known" : "run " + other, run),
                 exit_code::kFailed};
  }
  if (fs::exists(folder + "/" + name, ignored))
    return Error{fmt::format("{}/{} is there already, and no {} says of which run, and these are of run {}: name "
                             "another folder, or remove it",
                             folder, name, kWhose, run),
                 exit_code::kFailed};
  auto file = callbacks::FreshFile::create(note);
  Status noted = file ? file.value().append(dump_text(Json{{"run", run}}) + "\n") : Status(file.error());
  if (noted) noted = file.value().publish();
  return noted ? noted : Error{noted.error().message, exit_code::kFailed};
}

Result<std::string> manifest_in(const std::string& folder) {
  auto text = json::text_of_file(folder + "/" + checkpoint::kManifestFile);
  return text ? std::move(text) : Error{text.error().message, exit_code::kFailed};
}

/// manifest.json of the run's checkpoint at `path`, of which `like` is a copy, perhaps, and perhaps of another one.
Result<std::string> manifest_of(const NamedRun& run, const std::string& path, const std::string& like,
                                const std::function<bool()>& is_given_up) {
  if (!run.cluster) return manifest_in(run.directory + "/" + path);
  const ScratchFolder scratch("sgd-manifest");
  if (scratch.path().empty()) return Error{"no folder for temporary files can be made: set TMPDIR", exit_code::kFailed};
  Json offsets = Json::object();  // Of a file that is said to be here nothing comes.
  std::error_code error;
  for (fs::directory_iterator at(like, error), end; !error && at != end; at.increment(error))
    if (at->path().filename() != checkpoint::kManifestFile)
      offsets[path + "/" + at->path().filename().string()] = kBeyondAnyFile;
  const std::string folder = scratch.path() + "/checkpoint";
  const auto came =
      fetch_files(run, {{"checkpoint", path}, {"offsets", std::move(offsets)}}, folder, path + "/", is_given_up);
  if (!came) return came.error();
  return manifest_in(folder);
}

/// What is at `whole` has the checkpoint's name, which those of other runs have, too. Error: it is not that checkpoint,
/// or not whole.
Result<std::string> prove_here(const NamedRun& run, const std::string& path, const std::string& whole,
                               const std::function<bool()>& is_given_up) {
  const auto there = manifest_of(run, path, whole, is_given_up);
  if (!there) return there.error();
  const auto here = manifest_in(whole);
  if (here && here.value() != there.value())
    return Error{fmt::format("{} is there already, of another run: name another folder, or remove it", whole),
                 exit_code::kFailed};
  if (const auto proved = checkpoint::verify(whole, checkpoint::Proof::kChecksums); !proved)
    return Error{fmt::format("{} is there already, and not whole: {}; remove it, and the same command fetches it again",
                             whole, proved.error().message),
                 exit_code::kFailed};
  return whole;
}

/// What an interruption has left at `part` is gone on with, unless it is another run's.
Status keep_what_fits(const NamedRun& run, const std::string& path, const std::string& part,
                      const std::function<bool()>& is_given_up) {
  std::error_code ignored;
  if (!fs::exists(part + "/" + checkpoint::kManifestFile, ignored)) return {};  // Then the checksums tell.
  const auto there = manifest_of(run, path, part, is_given_up);
  if (!there) return there.error();
  const auto here = manifest_in(part);
  if (!here || !there.value().starts_with(here.value())) fs::remove_all(part, ignored);
  return {};
}

}  // namespace

std::optional<fs::path> place_of_fetched(const std::string& folder, const std::string& front, const std::string& file) {
  if (!file.starts_with(front)) return std::nullopt;
  if (front.empty() && file != kEvents && file != kMetrics && !file.starts_with(kLogs)) return std::nullopt;
  const fs::path path(file.substr(front.size()));
  if (path.empty() || path.is_absolute() || path != path.lexically_normal()) return std::nullopt;
  for (const fs::path& part : path)
    if (part == ".." || part.empty()) return std::nullopt;
  return fs::path(folder) / path;
}

std::string whole_checkpoint(const Json& checkpoints, std::optional<int> step) {
  for (const Json& one : checkpoints)
    if (read_or(one, "whole", false) && (!step || read_or(one, "step", -1) == *step)) return read_or(one, "path", "");
  return {};
}

Result<std::uint64_t> fetch_files(const NamedRun& run, Json follow, const std::string& folder, const std::string& front,
                                  const std::function<bool()>& is_given_up) {
  auto tls = tls_of(run);
  if (!tls) return Error{tls.error().message, exit_code::kUsage};
  return Fetch(run, std::move(follow), folder, front, std::move(tls).value()).get(is_given_up);
}

int save_files(const NamedRun& run, Json follow, const std::string& name, const std::string& folder) {
  Status saved;
  if (run.cluster) {
    auto tls = tls_of(run);
    if (!tls) return refuse(exit_code::kUsage, tls.error().message);
    Fetch fetch(run, std::move(follow), folder, {}, std::move(tls).value());
    fetch.on_run = [&](const std::string& id) { return claim(folder, name, id); };
    if (const auto came = fetch.get({}); !came) saved = came.error();
  } else {
    std::error_code ignored;  // Then it has its own name.
    const fs::path place = fs::weakly_canonical(run.directory, ignored);
    saved = claim(folder, name, (place.empty() ? fs::path(run.directory) : place).filename().string());
    if (saved) saved = copy_here(run.directory + "/" + name, folder + "/" + name);
  }
  if (!saved) return refuse(saved.error().code, saved.error().message);
  fmt::print("{}/{}\n", folder, name);
  return exit_code::kSucceeded;
}

Result<std::string> fetch_checkpoint(const NamedRun& run, const std::string& path, const std::string& folder,
                                     const std::function<bool()>& is_given_up) {
  const std::string whole = (fs::path(folder) / fs::path(path).filename()).string();
  std::error_code ignored;
  if (fs::exists(whole, ignored)) return prove_here(run, path, whole, is_given_up);
  const std::string part = whole + ".part";
  if (const Status kept = keep_what_fits(run, path, part, is_given_up); !kept) return kept.error();
  if (run.cluster) {
    const auto came = fetch_files(run, {{"checkpoint", path}}, part, path + "/", is_given_up);
    if (!came) return came.error();
  } else if (const Status copied = copy_here(run.directory + "/" + path, part); !copied) {
    return copied.error();
  }
  const auto proved = checkpoint::verify(part, checkpoint::Proof::kChecksums);
  if (!proved) {
    fs::remove_all(part, ignored);
    return Error{fmt::format("{}; it is removed here, and the same command starts again", proved.error().message),
                 exit_code::kFailed};
  }
  if (::rename(part.c_str(), whole.c_str()) != 0)
    return Error{system_error("cannot rename to " + whole).message, exit_code::kFailed};
  return whole;
}

}  // namespace sgd::cli
