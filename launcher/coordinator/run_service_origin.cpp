// RunService: runs that begin with what another run has saved, as its copy (resume) or with its state alone
// ("resume_from"). The other one stays as it is.

#include <cerrno>
#include <filesystem>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "common/json/json_file.hpp"
#include "common/json/lenient.hpp"
#include "launcher/coordinator/run_service.hpp"
#include "launcher/shipping/run_tree.hpp"
#include "launcher/storage/resume_fit.hpp"
#include "launcher/storage/run_origin.hpp"
#include "launcher/storage/run_succession.hpp"

namespace sgd::coordinator {
namespace {

/// Where the files of a run that goes on begin to be its own.
nlohmann::ordered_json offsets_of(const storage::RunHistory& history) {
  return {{"events.jsonl", history.events_end.whole_bytes}, {"metrics.jsonl", history.metrics_end.whole_bytes}};
}

/// Nothing is brought for a run that goes on: it keeps the files that it has.
std::string misfit_of_files(const std::string& from, const job::JobSpec& job) {
  const nlohmann::json was = json::read_file(from + "/job.json");
  if (!was.is_object() || member(was, "files") == member(*job.resolved, "files")) return {};
  return fmt::format("\"files\" of a run that goes on stay as they are: submit a new job, with \"resume_from\": \"{}\"",
                     std::filesystem::path(from).filename().string());
}

}  // namespace

/// All that touches files. Of what fails nothing stays.
Result<RunService::Copy> RunService::made_in(const std::string& runs_dir, const std::string& name,
                                             const std::function<Status(const storage::RunPlace&, Copy&)>& fill) {
  auto place = storage::choose_run_place(name, "", runs_dir);
  if (!place) return place.error();
  place.value().is_lasting = true;
  Copy copy;
  copy.folder = place.value().directory;
  const Status made = fill(place.value(), copy);
  if (made) return Result<Copy>(std::move(copy));
  std::error_code ignored;
  std::filesystem::remove_all(copy.folder, ignored);
  return made.error();
}

Result<RunService::Copy> RunService::copy_of(const std::string& from, job::JobSpec& job, const std::string& runs_dir) {
  return made_in(runs_dir, job.name, [&](const storage::RunPlace& place, Copy& copy) -> Status {
    copy.misfit = misfit_of_files(from, job);
    if (!copy.misfit.empty()) return {};
    if (const Status copied = storage::copy_run(from, copy.folder); !copied) return copied;
    if (const Status kept = shipping::keep_with_run_as(from, copy.folder); !kept) return kept;
    auto history = storage::read_history(copy.folder);
    if (!history) return history.error();
    copy.history = std::move(history).value();
    copy.misfit = storage::fit_to_job(job, copy.history);
    if (!copy.misfit.empty()) return {};
    if (const Status read = storage::add_scores(job, copy.folder, copy.history); !read) return read.error();
    auto directory = storage::RunDirectory::reopen(place, *job.resolved, copy.history);
    if (!directory) return directory.error();
    copy.directory = std::move(directory).value();
    return storage::record_resumption(*copy.directory, copy.history);
  });
}

/// Nothing is made where the job cannot begin from it.
Result<RunService::Copy> RunService::begun_from(const std::string& from, job::JobSpec& job,
                                                const std::string& runs_dir) {
  return made_in(runs_dir, job.name, [&](const storage::RunPlace& place, Copy& copy) -> Status {
    auto origin = storage::read_origin(from);
    copy.misfit = origin ? storage::fit_to_job(job, origin.value().history) : origin.error().message;
    if (!copy.misfit.empty()) {
      copy.misfit.insert(0, "\"resume_from\": ");
      return {};
    }
    auto directory = storage::RunDirectory::create(place, *job.resolved);
    if (!directory) return directory.error();
    copy.directory = std::move(directory).value();
    auto past = storage::begin_from(origin.value(), *copy.directory);
    if (!past) return past.error();
    copy.history.past = std::move(past).value();
    return {};
  });
}

/// Made on the thread of files, and started if nothing stands in its way by then.
void RunService::start_copy(Submission submission, RunId from, CopyMaker make) {
  const auto waiting = std::make_shared<Submission>(std::move(submission));
  const auto go_on = [this, waiting, from](Result<Copy> copy) {
    std::string refusal = copy ? "" : copy.error().message;
    const char* kind = !copy && copy.error().code == ENOENT && !waiting->files.empty() ? "files" : "state";
    if (copy && !copy.value().misfit.empty()) {
      refusal = copy.value().misfit;
      kind = "job";
    } else if (copy) {
      // Others may have been taken while the folder was made.
      refusal = refusal_of_one_more(waiting->who, waiting->verb, waiting->owner, waiting->job);
      kind = "quota";
    }
    if (refusal.empty()) {
      waiting->past = std::move(copy.value().history.past);
      waiting->directory = std::move(copy.value().directory);
      waiting->offsets = offsets_of(copy.value().history);
      return start(std::move(*waiting));
    }
    if (copy) take_away(copy.value().folder);
    audit_.add(waiting->who, waiting->verb, {{"from", from}}, refusal);
    waiting->reply(refused(kind, refusal));
  };
  const auto work = [this, waiting, make = std::move(make), runs_dir = runs_dir_]() -> Result<Copy> {
    auto copy = make(waiting->job, runs_dir);
    if (!copy || !copy.value().misfit.empty() || waiting->files.empty()) return copy;
    const Status kept = keep_files(waiting->who, waiting->files, copy.value().folder);
    if (kept) return copy;
    std::error_code ignored;
    std::filesystem::remove_all(copy.value().folder, ignored);
    return kept.error();
  };
  files_.ask_within(kCopyLimit, work, go_on, [this](Result<Copy> late) {
    if (late) take_away(late.value().folder);
  });
}

/// A run of its own, from "RUN" or "RUN:CHECKPOINT".
void RunService::submit_from(Submission submission) {
  const std::string& named = submission.job.resume_from;
  const std::size_t colon = named.rfind(':');
  Result<RunRow> former = find(named);
  std::string checkpoint;
  if (!former && colon != std::string::npos) {
    checkpoint = named.substr(colon + 1);
    former = find(named.substr(0, colon));
  }
  if (!former) return submission.reply(refused("job", fmt::format("\"resume_from\": {}", former.error().message)));
  const RunId from = former.value().id;
  if (!checkpoint.empty() && !storage::is_checkpoint_name(checkpoint))
    return submission.reply(refused(
        "job",
        fmt::format("\"resume_from\": \"{}\" is no checkpoint's name: sgd-launch checkpoints {}", checkpoint, from)));
  note_read(submission.who, "read_checkpoint", from, former.value().owner);
  submission.job.resume_from = checkpoint.empty() ? from : from + ":" + checkpoint;
  submission.job.resolved.edit()["resume_from"] = submission.job.resume_from;
  start_copy(std::move(submission), from,
             [run_dir = former.value().run_dir, checkpoint](job::JobSpec& job, const std::string& runs_dir) {
               const bool is_run = checkpoint.empty();
               return begun_from(is_run ? run_dir : storage::place_of_checkpoint(run_dir, checkpoint), job, runs_dir);
             });
}

void RunService::name_origin(Json& job, const RunId& run, const std::string& run_dir) {
  const std::string name = storage::name_of_checkpoint(run_dir, read_or(job, "resume_from", ""));
  if (!name.empty()) job["resume_from"] = run + ":" + name;
}

}  // namespace sgd::coordinator
