// The order of the steps, and what is no step of its own: names, folders, limits, the order of
// errors. Every source of a job (file, command line, resolved job) goes through the same steps.

#include "common/job/load.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "common/job/check_validation.hpp"
#include "common/job/cross_checks.hpp"
#include "common/job/job_schema.hpp"
#include "common/job/overrides.hpp"
#include "common/job/python_command.hpp"
#include "common/job/read_file.hpp"
#include "common/job/to_spec.hpp"
#include "common/json/lenient.hpp"
#include "common/json/reader.hpp"
#include "common/json/words.hpp"

namespace sgd::job {
namespace {

namespace fs = std::filesystem;

constexpr int kTrainingFailuresMax = 3;
constexpr int kCommandFailuresMax = 0;
constexpr std::size_t kNameBytesMax = 40;

struct Input {
  json::Document document;
  std::string source;  ///< For errors.
  fs::path folder;     ///< Relative paths start here.
  std::string name;    ///< When the job has none; any text.
};

/// A job's name from a file's or program's: letters, digits, '.', '_' and '-', beginning with a letter or
/// digit.
std::string name_from(const std::string& text) {
  std::string name;
  for (const char c : text.substr(0, kNameBytesMax)) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter) name.push_back(c);
    if (!letter && !name.empty()) name.push_back(c == '.' || c == '_' ? c : '-');
  }
  while (!name.empty() && name.back() == '-') name.pop_back();
  return name.empty() ? "job" : name;
}

void sort_by_place(const std::string& source, Diagnostics& diagnostics) {
  std::stable_sort(diagnostics.items.begin(), diagnostics.items.end(), [&](const auto& a, const auto& b) {
    return std::tuple(a.source != source, a.line, a.column) < std::tuple(b.source != source, b.line, b.column);
  });
}

/// A metric that is only named is an object without settings, which has its defaults.
void spell_out_metrics(nlohmann::json& job) {
  const auto training = job.find("training");
  if (training == job.end() || !training->is_object()) return;
  const auto metrics = training->find("metrics");
  if (metrics == training->end()) return;
  for (nlohmann::json& one : *metrics)
    if (one.is_string()) one = {{"type", one}};
}

/// A command alone is an object without settings, which has its defaults.
void spell_out_after_save(nlohmann::json& job) {
  const auto checkpoint = job.find("checkpoint");
  if (checkpoint == job.end() || !checkpoint->is_object()) return;
  const auto rule = checkpoint->find("after_save");
  if (rule != checkpoint->end() && rule->is_array()) *rule = nlohmann::json{{"command", *rule}};
}

/// Workers that compute on GPUs have one each where nothing is said.
void give_gpus(nlohmann::json& job) {
  const auto training = job.find("training");
  if (training == job.end() || !training->is_object() || read_or(*training, "device", "") != "cuda") return;
  nlohmann::json& per_worker = job["per_worker"];
  if (per_worker.is_null()) per_worker = nlohmann::json::object();
  if (per_worker.is_object() && !per_worker.contains("gpus")) per_worker["gpus"] = 1;
}

/// Defaults that depend on the kind of job come first, the schema's after them.
void complete(nlohmann::json& job, const Input& input, const json::Schema& schema, Diagnostics& diagnostics) {
  job.erase("$schema");
  if (!job.contains("name")) job["name"] = name_from(input.name);
  nlohmann::json& recovery = job["recovery"];
  if (recovery.is_null()) recovery = nlohmann::json::object();
  if (!recovery.contains("max_failures")) {
    recovery["max_failures"] = job.contains("training") ? kTrainingFailuresMax : kCommandFailuresMax;
  }
  if (job.contains("command") && !job.contains("process")) job["process"] = nlohmann::json::object();
  if (job.contains("command") && job.contains("files") && !job.contains("workdir")) job["workdir"] = ".";
  spell_out_metrics(job);
  spell_out_after_save(job);
  give_gpus(job);
  const auto absolute = [&](const std::string& path) {
    const std::string whole = (input.folder / path).lexically_normal().string();
    if (const Status named = json::check_path("path", whole); !named)
      diagnostics.error(input.source, 0, 0, named.error().message);
    return whole.size() > 1 && whole.back() == '/' ? whole.substr(0, whole.size() - 1) : whole;
  };
  schema.complete(job, absolute);
  // A word without a slash may be a run's name, too: who starts the run looks for both.
  if (const std::string origin = read_or(job, "resume_from", ""); origin.find('/') != std::string::npos)
    job["resume_from"] = absolute(origin);
}

/// `job` without the values that have an error, so that defaults stand in and the rest can still be judged.
void remove_rejected(nlohmann::json& job, const std::vector<std::string>& rejected) {
  for (const std::string& path : rejected) {
    std::vector<std::string> segments = json::split_path(path);
    // Its parameters have dots in their names: such a path leads nowhere.
    if (segments.front() == "tune") segments.resize(1);
    const std::string last = segments.back();
    segments.pop_back();
    nlohmann::json* here = &job;
    for (const std::string& segment : segments) {
      here = here != nullptr && here->is_object() && here->contains(segment) ? &(*here)[segment] : nullptr;
    }
    if (here != nullptr && here->is_object()) here->erase(last);
  }
}

void check_size(nlohmann::json job, const std::string& source, Diagnostics& diagnostics) {
  const auto take = [&job](const char* key) {
    const std::size_t bytes = job.contains(key) ? job[key].dump().size() : 0;
    if (bytes > 0) job.erase(key);
    return bytes;
  };
  const bool is_command = job.contains("command");
  const std::size_t arguments = is_command ? take("command") : 0;
  const std::size_t variables = is_command ? take("env") : 0;
  if (arguments + variables > kCommandBytesMax)
    diagnostics.error(
        source, 0, 0,
        fmt::format("the command has {} bytes with its {}; at most {}: pass what is long in a file that "
                    "the program reads",
                    arguments + variables, arguments > variables ? "arguments" : "\"env\"", kCommandBytesMax));
  const std::size_t bytes = job.dump().size();
  if (bytes <= kResolvedBytesMax) return;
  diagnostics.error(source, 0, 0,
                    fmt::format("the job has {} bytes with its defaults{}; at most {}", bytes,
                                is_command ? ", without its command" : "", kResolvedBytesMax));
}

/// Values that are judged once more when the data is known.
constexpr std::array kPlaced = {"training.dataset.path", "training.dataset.train", "training.dataset.validation",
                                "training.model.type",   "training.model.inputs",  "training.model.outputs",
                                "training.model.hidden", "training.model.weights", "training.model.file"};

/// `so_far` holds the reader's errors.
LoadResult load_by(const json::Schema& schema, Input input, const Overrides& overrides, Diagnostics so_far) {
  LoadResult result{std::nullopt, std::move(so_far), input.source, input.folder.string(), {}};
  Diagnostics& diagnostics = result.diagnostics;
  json::Document& document = input.document;
  apply_overrides(overrides, document, diagnostics);
  const std::vector<std::string> rejected = schema.check(document, input.source, diagnostics);
  check_choices(document, input.source, diagnostics);
  if (document.value.is_object()) {
    nlohmann::json job = document.value;
    remove_rejected(job, rejected);
    complete(job, input, schema, diagnostics);
    check_relations(job, rejected, document.source_map, input.source, diagnostics);
    check_validation(job, rejected, document.source_map, input.source, diagnostics);
    if (!diagnostics.has_errors()) check_size(job, input.source, diagnostics);
    if (!diagnostics.has_errors()) {
      result.job = to_spec(std::move(job));
      std::vector<std::string> placed(kPlaced.begin(), kPlaced.end());
      if (result.job->training)
        for (const auto& [name, one] : result.job->training->datasets) placed.push_back("training.datasets." + name);
      for (const std::string& path : placed) {
        const SourceLocation location = find_location(document.source_map, input.source, path);
        result.job->locations[path] = {location.source, location.value.line, location.value.column};
      }
    }
  }
  sort_by_place(input.source, diagnostics);
  result.given = std::move(document);
  return result;
}

LoadResult load(Input input, const Overrides& overrides, Diagnostics so_far, const Registered& registered) {
  if (registered.is_null()) return load_by(job_schema(), std::move(input), overrides, std::move(so_far));
  return load_by(job_schema_with(registered), std::move(input), overrides, std::move(so_far));
}

LoadResult unreadable_folder(const std::string& path, const std::error_code& error) {
  LoadResult failed;
  failed.diagnostics.error(path, 0, 0, "the current folder cannot be read: " + error.message());
  return failed;
}

LoadResult load_file(const std::string& path, const fs::path& folder, std::string name, const Overrides& overrides,
                     const Registered& registered) {
  const std::string source = path == "-" ? "<stdin>" : path;
  LoadResult failed;
  const Result<std::string> text = read_file(path, kJobFileBytesMax);
  if (!text.ok()) {
    const std::string meant = text.error().code == ENOENT ? did_you_mean_file(path) : std::string();
    failed.diagnostics.error(source, 0, 0, text.error().message + meant);
    return failed;
  }
  std::optional<json::Document> document = json::read(text.value(), source, failed.diagnostics);
  if (!document) return failed;
  return load({std::move(*document), source, folder, std::move(name)}, overrides, std::move(failed.diagnostics),
              registered);
}

}  // namespace

LoadResult load_job_file(const std::string& path, const Overrides& overrides, const Registered& registered) {
  const bool from_stdin = path == "-";
  std::error_code error;
  const fs::path whole = fs::absolute(from_stdin ? fs::path("-") : fs::path(path), error);
  if (error) return unreadable_folder(path, error);
  return load_file(path, whole.parent_path(), from_stdin ? "job" : whole.stem().string(), overrides, registered);
}

LoadResult load_run_job(const std::string& path, const Overrides& overrides, const Registered& registered) {
  std::error_code error;
  const fs::path folder = fs::current_path(error);
  if (error) return unreadable_folder(path, error);
  return load_file(path, folder, "job", overrides, registered);
}

namespace {

/// What a command is about, for its run's name: the script or the module where the program is Python.
std::string subject_of(const std::vector<std::string>& command) {
  const auto python = python_command(command);
  if (!python) return command.empty() ? "" : fs::path(command.front()).filename().string();
  const std::string& first = python->script.front();
  return first == "-m" ? python->script[1] : fs::path(first).stem().string();
}

}  // namespace

LoadResult load_command_job(const std::vector<std::string>& command, const Overrides& overrides) {
  json::Document document;
  document.value = nlohmann::json{{"command", command}};
  std::error_code error;
  return load({std::move(document), "command line", fs::current_path(error), subject_of(command)}, overrides, {}, {});
}

LoadResult load_resolved(const nlohmann::json& resolved, const Registered& registered) {
  json::Document document;
  document.value = resolved;
  return load({std::move(document), "resolved job", "/", "job"}, {}, {}, registered);
}

LoadResult load_given(const nlohmann::json& given, const std::string& folder, const Overrides& overrides,
                      const Registered& registered) {
  json::Document document;
  document.value = given;
  return load({std::move(document), "job", folder, "job"}, overrides, {}, registered);
}

LoadResult load_changed(const nlohmann::json& resolved, const Overrides& overrides, const Registered& registered) {
  json::Document document;
  document.value = resolved;
  std::error_code error;
  return load({std::move(document), "job of the run", fs::current_path(error), "job"}, overrides, {}, registered);
}

}  // namespace sgd::job
