#include "common/job/cross_checks.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <map>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "common/base/bytes.hpp"
#include "common/base/time.hpp"
#include "common/job/check_command.hpp"
#include "common/job/check_reports.hpp"
#include "common/job/check_training.hpp"
#include "common/job/named_datasets.hpp"
#include "common/job/spec.hpp"
#include "common/json/lenient.hpp"
#include "common/json/schema.hpp"
#include "common/json/words.hpp"

namespace sgd::job {
namespace {

void check_duration(const Sound& sound, const std::string& path, bool zero_allowed, Reporter& report) {
  const nlohmann::json* text = sound.at(path);
  if (text == nullptr) return;
  const std::optional<Duration> duration = parse_duration(text->get<std::string>());
  if (!duration) {
    report.error_at_value(path,
                          fmt::format("{} must be at most ten years, got {}", json::quote(path), json::shown(*text)));
  } else if (*duration == Duration::zero() && !zero_allowed) {
    report.error_at_value(path, fmt::format("{} must be above 0, got {}", json::quote(path), json::shown(*text)));
  }
}

void check_durations(const Sound& sound, Reporter& report) {
  check_duration(sound, "recovery.backoff.first", true, report);
  check_duration(sound, "recovery.cooldown", true, report);
  check_duration(sound, "heartbeat.interval", false, report);
  check_duration(sound, "heartbeat.timeout", false, report);
  check_duration(sound, "heartbeat.stall_timeout", false, report);
  check_duration(sound, "stop.grace", true, report);
  check_duration(sound, "checkpoint.after_save.timeout", false, report);
  check_duration(sound, "placement_timeout", false, report);
  check_duration(sound, "process.shutdown_timeout", true, report);
  const nlohmann::json* interval = sound.at("heartbeat.interval");
  const nlohmann::json* timeout = sound.at("heartbeat.timeout");
  if (interval == nullptr || timeout == nullptr) return;
  const auto between = parse_duration(interval->get<std::string>());
  const auto silent = parse_duration(timeout->get<std::string>());
  if (between && silent && *silent > Duration::zero() && *silent <= *between) {
    report.error_at_value("heartbeat.timeout",
                          fmt::format("\"heartbeat.timeout\" must be longer than \"heartbeat.interval\" ({}), got {}",
                                      json::shown(*interval), json::shown(*timeout)));
  }
}

void check_memory(const Sound& sound, Reporter& report) {
  const nlohmann::json* text = sound.at("per_worker.memory");
  if (text == nullptr) return;
  const std::optional<std::int64_t> bytes = parse_bytes(text->get<std::string>());
  if (!bytes)
    report.error_at_value("per_worker.memory",
                          fmt::format("\"per_worker.memory\" must be at most 8 EiB, got {}", json::shown(*text)));
  else if (*bytes == 0)
    report.error_at_value("per_worker.memory",
                          fmt::format("\"per_worker.memory\" must be above 0, got {}", json::shown(*text)));
}

void check_variables(const Sound& sound, Reporter& report) {
  const nlohmann::json* env = sound.at("env");
  if (env == nullptr) return;
  for (const auto& [name, value] : env->items()) {
    const std::string misfit = misfit_of_variable(name);
    if (!misfit.empty()) report.error_at_value("env", misfit);
  }
}

void check_gpus(const Sound& sound, Reporter& report) {
  const nlohmann::json* gpus = sound.at("per_worker.gpus");
  const nlohmann::json* device = sound.at("training.device");
  if (gpus == nullptr || device == nullptr) return;
  if (*gpus > 0 && *device == "cpu")
    report.error_at_value("per_worker.gpus",
                          "\"per_worker.gpus\" gives workers GPUs, and \"training.device\" is \"cpu\", which uses "
                          "none: leave it out, or set the device to \"cuda\"");
  else if (*gpus == 0 && *device == "cuda")
    report.error_at_value("per_worker.gpus",
                          "\"per_worker.gpus\" is 0, and \"training.device\" is \"cuda\", which needs one: leave it "
                          "out, or give 1");
}

bool computes_on_gpus(const Sound& sound) {
  const nlohmann::json* device = sound.at("training.device");
  const nlohmann::json* gpus = sound.at("per_worker.gpus");
  return device != nullptr && (*device == "cuda" || (*device == "auto" && gpus != nullptr && *gpus > 0));
}

/// On GPUs LibTorch has no deterministic way to enlarge maps of classes (upsample_bilinear2d, backward), nor to take
/// the loss of each pixel (nll_loss2d): such a job would end at its first step.
void check_deterministic(const Sound& sound, Reporter& report) {
  const nlohmann::json* is_on = sound.at("training.deterministic");
  const nlohmann::json* model = sound.at("training.model");
  if (is_on == nullptr || *is_on == false || model == nullptr || !computes_on_gpus(sound)) return;
  if (read_or(*model, "type", "") == "fcn")
    report.error_at_value("training.deterministic",
                          "\"training.deterministic\" is not for the model \"fcn\" on GPUs, where LibTorch has no "
                          "deterministic bilinear interpolation and no such loss of pixels: leave it out, or set "
                          "\"training.device\" to \"cpu\"");
}

/// It is made of LibTorch's operators for the CPU: on a GPU each worker would silently measure its own batches.
void check_sync_batchnorm(const Sound& sound, Reporter& report) {
  const nlohmann::json* is_on = sound.at("training.data_parallel.sync_batchnorm");
  if (is_on != nullptr && *is_on != false && computes_on_gpus(sound))
    report.error_at_value("training.data_parallel.sync_batchnorm",
                          "\"training.data_parallel.sync_batchnorm\" is for the CPU, and this job computes on GPUs: "
                          "leave it out, or set \"training.device\" to \"cpu\"");
}

/// Types whose samples are never images. What the files of others hold is seen when they are read.
bool is_flat(const nlohmann::json& dataset) {
  constexpr std::array kFlat = {"csv", "linear", "tokens"};
  return std::find(kFlat.begin(), kFlat.end(), read_or(dataset, "type", "")) != kFlat.end();
}

void check_memory_format(const Sound& sound, Reporter& report) {
  const nlohmann::json* format = sound.at("training.memory_format");
  if (format == nullptr || *format != "channels_last") return;
  const auto check = [&](const nlohmann::json& dataset) {
    if (!is_flat(dataset)) return true;
    report.error_at_value(
        "training.memory_format",
        fmt::format("\"training.memory_format\" is \"channels_last\", which is for images, and a data "
                    "set of type {} has none: leave it out",
                    json::shown(dataset["type"])));
    return false;
  };
  const nlohmann::json* only = sound.at("training.dataset");
  if (only != nullptr && !check(*only)) return;
  const nlohmann::json* several = sound.at("training.datasets");
  if (several != nullptr) (void)std::all_of(several->begin(), several->end(), check);  // Ignoring: it has been said.
}

void check_counts(const Sound& sound, Reporter& report) {
  const nlohmann::json* num_workers = sound.at("num_workers");
  if (num_workers == nullptr) return;
  const auto workers = num_workers->get<std::int64_t>();
  const nlohmann::json* min_workers = sound.at("min_workers");
  if (min_workers != nullptr && *min_workers > workers) {
    report.error_at_value("min_workers", fmt::format("\"min_workers\" must be at most \"num_workers\" ({}), got {}",
                                                     workers, min_workers->dump()));
  }
  check_gpus(sound, report);
  check_sync_batchnorm(sound, report);
  check_deterministic(sound, report);
  check_memory_format(sound, report);
  const nlohmann::json* batch_size = sound.at("training.batch_size");
  if (batch_size == nullptr) return;
  const auto batch = batch_size->get<std::int64_t>();
  if (batch < workers) {
    report.error_at_value("training.batch_size",
                          fmt::format("\"training.batch_size\" must be at least \"num_workers\" ({}), one sample for "
                                      "each worker; got {}",
                                      workers, batch));
  } else if (batch % workers != 0) {
    report.warn_at_value(
        "training.batch_size",
        fmt::format("Changing batch size from {} to {} to evenly distribute batches across {} workers.", batch,
                    batch / workers * workers, workers));
  }
}

/// The schema asks for no key, so that a misspelt one is told as such.
void check_after_save(const Sound& sound, Reporter& report) {
  const nlohmann::json* rule = sound.at("checkpoint.after_save");
  if (rule != nullptr && !rule->contains("command") && !sound.is_touched("checkpoint.after_save"))
    report.error_at_value("checkpoint.after_save", "missing key \"command\" in \"checkpoint.after_save\"");
}

/// The best checkpoint is known by a line of metrics that has its step.
void check_best(const Sound& sound, Reporter& report) {
  if (sound.at("checkpoint.keep.best") == nullptr) return;
  const nlohmann::json* workers = sound.at("report.workers");
  if (workers != nullptr && *workers == "list")
    report.error_at_value("checkpoint.keep.best",
                          "\"checkpoint.keep.best\" needs values of all workers in a report, and with "
                          "\"report.workers\" \"list\" it has none: use \"all\"");
  const nlohmann::json* every = sound.at("checkpoint.every");
  if (every == nullptr || !every->is_object() || trained_dataset(sound) == nullptr ||
      sound.at("training.function") != nullptr)
    return;
  report.warn_at_value("checkpoint.every",
                       "reports come at the end of an epoch, and checkpoints between have no value of "
                       "\"checkpoint.keep.best\": \"epoch\" saves where there is one");
}

void check_reports(const Sound& sound, Reporter& report) {
  static const nlohmann::json kUnknown;
  const auto known = [&sound](const std::string& path) -> const nlohmann::json& {
    const nlohmann::json* found = sound.is_touched(path) ? nullptr : sound.at(path);
    return found == nullptr ? kUnknown : *found;
  };
  const nlohmann::json* training = sound.at("training");
  const bool is_own = training != nullptr && has_own_operator(*training);
  const nlohmann::json& model = known("training.model");
  const std::string trained = training != nullptr && training->contains("datasets")
                                  ? std::string("training.datasets.") + kTrainSet
                                  : std::string("training.dataset");
  std::vector<Misfit> misfits =
      metric_misfits(known("training.metrics"), is_own ? kUnknown : known(trained), is_own ? kUnknown : model);
  const nlohmann::json* workers = sound.at("num_workers");
  if (workers != nullptr)
    for (Misfit& one : report_misfits(known("report"), workers->get<std::int64_t>())) misfits.push_back(std::move(one));
  for (Misfit& one : misfits) report.error_at_value(one.path, std::move(one.message));
}

/// `one` of a list may not stand there; `path` is its own.
void check_place_in_list(const nlohmann::json& one, std::size_t place, const std::string& path, Reporter& report) {
  const std::string& type = one["type"].get_ref<const std::string&>();
  if (type == "one_cycle" || type == "reduce_on_plateau") {
    report.error_at_value(path + ".type", fmt::format("{} {} cannot be one of several: make it the only scheduler",
                                                      json::quote(path + ".type"), json::quote(type)));
  } else if (type == "cosine_warm_restarts" && place > 0) {
    report.error_at_value(path + ".type",
                          fmt::format("{} {} sets the rate without regard to those before it: put it first",
                                      json::quote(path + ".type"), json::quote(type)));
  }
}

void check_scheduler(const Sound& sound, Reporter& report) {
  const nlohmann::json* given = sound.at("training.scheduler");
  if (given == nullptr) return;
  if (given->is_array()) {
    for (std::size_t i = 0; given->size() > 1 && i < given->size(); ++i) {
      const std::string path = fmt::format("training.scheduler[{}]", i);
      check_place_in_list((*given)[i], i, path, report);
      const nlohmann::json& frequency = (*given)[i]["frequency"];
      if (frequency == given->front()["frequency"]) continue;
      report.error_at_value(
          path + ".frequency",
          fmt::format("{} must be that of the list's first scheduler ({}), got {}", json::quote(path + ".frequency"),
                      json::shown(given->front()["frequency"]), json::shown(frequency)));
    }
  }
  const std::string path = given->is_array() ? "training.scheduler[0]" : "training.scheduler";
  const nlohmann::json& first = given->is_array() ? given->front() : *given;
  const nlohmann::json* optimizer = sound.at("training.optimizer.type");
  if (first["type"] == "one_cycle" && first["cycle_momentum"] == true && optimizer != nullptr &&
      *optimizer == "adagrad") {
    report.error_at_value(path + ".cycle_momentum",
                          fmt::format("{} must be false with the optimizer \"adagrad\", which has no momentum",
                                      json::quote(path + ".cycle_momentum")));
  }
}

void check_batch_sizes(const nlohmann::json& job, bool is_needed, Reporter& report) {
  const bool global = job["training"].contains("batch_size");
  const bool per_worker = job["training"].contains("batch_size_per_worker");
  if (global && per_worker) {
    report.error_at_key("training.batch_size_per_worker",
                        "\"batch_size\" and \"batch_size_per_worker\" exclude each other: remove one");
  } else if (is_needed && !global && !per_worker) {
    report.error_at_value("training",
                          "missing key \"batch_size\" (of all workers) or \"batch_size_per_worker\" in \"training\"");
  }
}

/// With a function nothing is measured that a scheduler could follow. In a list of several none does anyway.
void check_follows_no_metric(const nlohmann::json& training, Reporter& report) {
  const nlohmann::json& given = member(training, "scheduler");
  const bool is_list = given.is_array() && !given.empty();
  if (read_or(is_list ? given.front() : given, "type", "") != "reduce_on_plateau") return;
  report.error_at_value(is_list ? "training.scheduler[0].type" : "training.scheduler.type",
                        "\"reduce_on_plateau\" has no metric to follow with \"function\", whose loop validates by "
                        "itself: set the rate in the optimizer's options where it is to fall");
}

/// A function has its own loop, and may have its own model and data.
void check_function(const nlohmann::json& job, Reporter& report) {
  const nlohmann::json& training = job["training"];
  for (const char* other : {"model", "operator"}) {
    if (training.contains(other))
      report.error_at_key(fmt::format("training.{}", other),
                          fmt::format("\"function\" and \"{}\" exclude each other: remove one", other));
  }
  // With its default a key says nothing, as in a job that is resolved.
  const nlohmann::json defaults = {{"early_stop", nullptr},
                                   {"metrics", nullptr},
                                   {"profile", false},
                                   {"validate_every", 1},
                                   {"validate_only", false}};
  for (const auto& [of_operators, none] : defaults.items()) {
    if (!training.contains(of_operators) || training[of_operators] == none) continue;
    const bool measures = of_operators == "metrics" || of_operators == "profile";
    report.error_at_key(fmt::format("training.{}", of_operators),
                        fmt::format("\"{}\" has no meaning with \"function\", whose loop {} by itself: remove it",
                                    of_operators, measures ? "measures and reports" : "validates and ends"));
  }
  check_follows_no_metric(training, report);
  if (!job.contains("plugins") && !job.contains("worker"))
    report.error_at_key("training.function", "a function comes from a library: name it in \"plugins\"");
  check_dataset_names(training, report);
  check_batch_sizes(job, training.contains("dataset") || training.contains("datasets"), report);
}

/// Why a callback of `type` may not have `file` in the run's folder, whose other files are the run's and its
/// coordinator's; empty: it may.
std::string refusal_in_run_folder(const std::string& type, const std::string& file) {
  if (file == "job.json" || file == "summary.json") return "is a file of the run itself: choose another name";
  if (file.ends_with("." + type)) return "";
  return fmt::format("must end in \".{}\" in the run's folder, where other files are the run's own", type);
}

void check_exec_timeout(const nlohmann::json& callback, const std::string& path, Reporter& report) {
  const std::optional<Duration> timeout = parse_duration(callback["timeout"].get<std::string>());
  if (timeout && *timeout > Duration::zero()) return;
  report.error_at_value(path + ".timeout",
                        fmt::format("{} must be {}, got {}", json::quote(path + ".timeout"),
                                    timeout ? "above 0" : "at most ten years", json::shown(callback["timeout"])));
}

void check_callbacks(const Sound& sound, Reporter& report) {
  const nlohmann::json* callbacks = sound.at("callbacks");
  if (callbacks == nullptr) return;
  std::map<std::string, std::size_t> taken;
  for (std::size_t i = 0; i < callbacks->size(); ++i) {
    const nlohmann::json& callback = (*callbacks)[i];
    const std::string path = fmt::format("callbacks[{}]", i);
    if (callback["type"] == "exec") check_exec_timeout(callback, path, report);
    const bool has_file = callback.contains("file");
    if (!has_file && callback["type"] != "tensorboard") continue;
    const std::string file = has_file ? callback["file"].get<std::string>() : "tensorboard";
    const bool is_in_run = !callback.contains("folder");
    const std::string type = callback["type"].get<std::string>();
    const std::string refusal = has_file && is_in_run ? refusal_in_run_folder(type, file) : "";
    if (!refusal.empty())
      report.error_at_value(path + ".file",
                            fmt::format("{} {} {}", json::quote(path + ".file"), json::quote(file), refusal));
    const std::string place = is_in_run ? file : callback["folder"].get<std::string>() + "/" + (has_file ? file : "");
    const auto [first, is_new] = taken.try_emplace(place, i);
    if (is_new) continue;
    const std::string key = path + (has_file ? ".file" : ".folder");
    report.error_at_value(key, fmt::format("{} is where callbacks[{}] writes, too: give one of them another {}",
                                           json::quote(key), first->second, has_file ? "file" : "folder"));
  }
}

}  // namespace

SourceLocation find_location(const json::SourceMap& root, const std::string& source, const std::string& path) {
  const json::SourceMap* place = &root;
  SourceLocation location{root.source.empty() ? source : root.source, root.value, root.value};
  const auto enter = [&place, &location](const json::SourceMap& inner) {
    place = &inner;
    if (!place->source.empty()) location.source = place->source;
    location.key = place->key;
    location.value = place->value;
  };
  for (const std::string& segment : json::split_path(path)) {
    if (const auto member = place->members.find(segment); member != place->members.end()) {
      enter(member->second);
      continue;
    }
    const std::size_t bracket = segment.find('[');
    const auto list = place->members.find(segment.substr(0, bracket));
    if (bracket == std::string::npos || list == place->members.end()) break;
    enter(list->second);
    std::size_t index = 0;
    const auto read = std::from_chars(segment.data() + bracket + 1, segment.data() + segment.size(), index);
    if (read.ec != std::errc() || index >= place->items.size()) break;
    enter(place->items[index]);
  }
  return location;
}

void check_choices(const json::Document& document, const std::string& source, Diagnostics& diagnostics) {
  const nlohmann::json& job = document.value;
  if (!job.is_object()) return;
  Reporter report(document.source_map, source, diagnostics);
  const bool training = job.contains("training");
  if (training && job.contains("command")) {
    report.error_at_key("command", "\"training\" and \"command\" exclude each other: remove one");
  } else if (!training && !job.contains("command")) {
    report.error_at_value("", "missing key \"training\" or \"command\"");
  }
  if (!training && job.contains("worker"))
    report.error_at_key("worker", "\"worker\" is for \"training\": a command is its own program");
  for (const char* key : {"process", "workdir"})
    if (training && job.contains(key)) report.error_at_key(key, fmt::format("\"{}\" is for \"command\"", key));
  if (!training || !job["training"].is_object()) return;
  if (job["training"].contains("function")) return check_function(job, report);
  check_has_data(job["training"], report);
  if (!job["training"].contains("model") && !has_own_operator(job["training"]))
    report.error_at_value("training", "missing key \"model\" in \"training\"");
  check_batch_sizes(job, true, report);
}

void check_relations(const nlohmann::json& job, const std::vector<std::string>& rejected, const json::SourceMap& root,
                     const std::string& source, Diagnostics& diagnostics) {
  Reporter report(root, source, diagnostics);
  const Sound sound(job, rejected);
  check_counts(sound, report);
  check_durations(sound, report);
  check_memory(sound, report);
  check_variables(sound, report);
  check_training(sound, report);
  check_reports(sound, report);
  check_after_save(sound, report);
  check_best(sound, report);
  check_scheduler(sound, report);
  check_callbacks(sound, report);
}

}  // namespace sgd::job
