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
#include "common/job/data_facts.hpp"
#include "common/job/model_size.hpp"
#include "common/json/lenient.hpp"
#include "common/json/schema.hpp"
#include "common/json/words.hpp"

namespace sgd::job {
namespace {

/// Says errors about dotted paths of one job at their places.
class Reporter {
 public:
  Reporter(const json::Place& root, const std::string& source, Diagnostics& diagnostics)
      : root_(root), source_(source), diagnostics_(diagnostics) {}

  void error_at_value(const std::string& path, std::string message) {
    const Spot spot = find_spot(root_, source_, path);
    diagnostics_.error(spot.source, spot.value.line, spot.value.column, std::move(message));
  }
  void error_at_key(const std::string& path, std::string message) {
    const Spot spot = find_spot(root_, source_, path);
    diagnostics_.error(spot.source, spot.key.line, spot.key.column, std::move(message));
  }
  void warn_at_value(const std::string& path, std::string message) {
    const Spot spot = find_spot(root_, source_, path);
    diagnostics_.warn(spot.source, spot.value.line, spot.value.column, std::move(message));
  }

 private:
  const json::Place& root_;
  const std::string& source_;
  Diagnostics& diagnostics_;
};

/// Values of one job that may be compared: present, and without an error of their own.
class Sound {
 public:
  Sound(const nlohmann::json& job, const std::vector<std::string>& rejected) : job_(job), rejected_(rejected) {}

  /// The value at `path`, or null.
  const nlohmann::json* at(const std::string& path) const {
    const nlohmann::json* here = &job_;
    std::string walked;
    for (const std::string& segment : json::split_path(path)) {
      walked = json::joined(walked, segment);
      if (std::find(rejected_.begin(), rejected_.end(), walked) != rejected_.end()) return nullptr;
      if (!here->is_object() || !here->contains(segment)) return nullptr;
      here = &(*here)[segment];
    }
    return here;
  }

  /// True when a value at `path`, or inside it, has an error: a default stands there that says nothing.
  bool is_touched(const std::string& path) const {
    return std::any_of(rejected_.begin(), rejected_.end(), [&](const std::string& rejected) {
      return rejected == path || rejected.starts_with(path + ".");
    });
  }

 private:
  const nlohmann::json& job_;
  const std::vector<std::string>& rejected_;
};

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

void check_counts(const Sound& sound, Reporter& report) {
  const nlohmann::json* num_workers = sound.at("num_workers");
  if (num_workers == nullptr) return;
  const auto workers = num_workers->get<std::int64_t>();
  const nlohmann::json* min_workers = sound.at("min_workers");
  if (min_workers != nullptr && *min_workers > workers) {
    report.error_at_value("min_workers", fmt::format("\"min_workers\" must be at most \"num_workers\" ({}), got {}",
                                                     workers, min_workers->dump()));
  }
  const nlohmann::json* gpus = sound.at("per_worker.gpus");
  if (gpus != nullptr && *gpus > 0 && sound.at("training") != nullptr)
    report.error_at_value("per_worker.gpus",
                          "\"per_worker.gpus\" is for commands: training is computed on the CPU for now, and its "
                          "workers take no GPU: leave it out, or give 0");
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

void check_dataset(const Sound& sound, const nlohmann::json& dataset, const nlohmann::json& model, Reporter& report) {
  if (sound.is_touched("training.dataset")) return;
  auto misfit = dataset_misfit(dataset, model);
  const auto sizes = is_built_in_dataset(dataset) ? told_sizes(dataset) : std::nullopt;
  if (!misfit && sizes) misfit = model_misfit(model, *sizes, learns_classes(dataset));
  if (misfit && sound.at(misfit->path) != nullptr) report.error_at_value(misfit->path, misfit->message);
}

void check_clip(const Sound& sound, Reporter& report) {
  const nlohmann::json* clip = sound.at("training.gradient_clip");
  if (clip == nullptr || clip->contains("norm") != clip->contains("value")) return;
  report.error_at_value("training.gradient_clip", "\"training.gradient_clip\" must have either \"norm\" or \"value\"");
}

/// A plug-in's operator or function makes its own model and loss.
bool has_own_operator(const nlohmann::json& training) {
  if (training.contains("function")) return true;
  return training.contains("operator") && read_or(training["operator"], "type", "") != kSupervised;
}

constexpr std::array kLossesOfClasses = {"cross_entropy", "nll"};
constexpr std::array kLossesOfNumbers = {"mse", "l1", "smooth_l1", "huber", "bce_with_logits"};

template <class Losses>
std::string quoted_losses(const Losses& losses) {
  std::vector<std::string> quoted;
  for (const char* loss : losses) quoted.push_back(json::quote(loss));
  return json::alternatives(quoted);
}

bool is_built_in_loss(const std::string& loss) {
  return std::find(kLossesOfClasses.begin(), kLossesOfClasses.end(), loss) != kLossesOfClasses.end() ||
         std::find(kLossesOfNumbers.begin(), kLossesOfNumbers.end(), loss) != kLossesOfNumbers.end();
}

/// What is learnt of the data set, and by which loss.
void check_loss(const Sound& sound, const std::string& loss, Reporter& report) {
  const nlohmann::json* dataset = sound.at("training.dataset.type");
  if (dataset == nullptr || sound.is_touched("training.dataset.targets")) return;
  if (!is_built_in_dataset(*sound.at("training.dataset")) || !is_built_in_loss(loss)) return;
  const bool numbers = !learns_classes(*sound.at("training.dataset"));
  const bool fits = numbers
                        ? std::find(kLossesOfNumbers.begin(), kLossesOfNumbers.end(), loss) != kLossesOfNumbers.end()
                        : std::find(kLossesOfClasses.begin(), kLossesOfClasses.end(), loss) != kLossesOfClasses.end();
  if (fits) return;
  report.error_at_value("training.loss",
                        fmt::format("\"training.loss\" must be {} with the data set {}, whose targets are {}; got {}",
                                    numbers ? quoted_losses(kLossesOfNumbers) : quoted_losses(kLossesOfClasses),
                                    json::shown(*dataset), numbers ? "numbers" : "classes", json::quote(loss)));
}

/// Targets that the loss leaves out are those that the data set has none for.
void check_ignored(const Sound& sound, Reporter& report) {
  const nlohmann::json* loss = sound.at("training.loss");
  const nlohmann::json* dataset = sound.at("training.dataset");
  if (loss == nullptr || dataset == nullptr || sound.at("training.loss.ignore_index") == nullptr) return;
  if (std::string misfit = misfit_of_ignored("training.loss.ignore_index", *loss, *dataset); !misfit.empty())
    report.error_at_value("training.loss.ignore_index", std::move(misfit));
}

/// Lists with a number for each output of the model.
void check_loss_weights(const Sound& sound, Reporter& report) {
  const nlohmann::json* model = sound.at("training.model");
  const std::int64_t outputs = model == nullptr || sound.is_touched("training.model") ? 0 : model_outputs(*model);
  if (outputs == 0) return;
  for (const std::string path : {"training.loss.weight", "training.loss.pos_weight"}) {
    const nlohmann::json* list = sound.at(path);
    if (list == nullptr || !list->is_array()) continue;
    const auto given = static_cast<std::int64_t>(list->size());
    const bool may_be_one = path == "training.loss.pos_weight";
    if (given == outputs || (may_be_one && given == 1)) continue;
    report.error_at_value(
        path, fmt::format("{} must have {} number{}, one for each output of the model{}; got {}", json::quote(path),
                          outputs, outputs == 1 ? "" : "s", may_be_one ? ", or a single one" : "", given));
  }
}

void check_training(const Sound& sound, Reporter& report) {
  check_clip(sound, report);
  const nlohmann::json* training = sound.at("training");
  const bool is_own = training != nullptr && has_own_operator(*training);
  const nlohmann::json* loss = sound.at("training.loss");
  const nlohmann::json* dataset = sound.at("training.dataset.type");
  if (loss != nullptr && !is_own) {
    check_loss(sound, loss->is_string() ? loss->get<std::string>() : read_or(*loss, "type", ""), report);
    check_loss_weights(sound, report);
    check_ignored(sound, report);
  }
  const nlohmann::json* model = sound.at("training.model");
  const bool is_model_sound = model == nullptr ? is_own : sound.at("training.model.type") != nullptr;
  if (is_model_sound && dataset != nullptr)
    check_dataset(sound, *sound.at("training.dataset"), model == nullptr ? nlohmann::json() : *model, report);
  const nlohmann::json* nesterov = sound.at("training.optimizer.nesterov");
  const nlohmann::json* momentum = sound.at("training.optimizer.momentum");
  const nlohmann::json* dampening = sound.at("training.optimizer.dampening");
  if (nesterov == nullptr || momentum == nullptr || dampening == nullptr || !nesterov->get<bool>()) return;
  if (*momentum <= 0 || *dampening != 0) {
    report.error_at_value("training.optimizer.nesterov",
                          "\"training.optimizer.nesterov\" needs momentum above 0 and dampening 0");
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
  if (every == nullptr || !every->is_object() || sound.at("training.dataset") == nullptr ||
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
  std::vector<Misfit> misfits = metric_misfits(known("training.metrics"), is_own ? kUnknown : known("training.dataset"),
                                               is_own ? kUnknown : model);
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
                          fmt::format("{} {} makes the rate anew, without those before it: put it first",
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

/// A function has its own loop, and may have its own model and data.
void check_function(const nlohmann::json& job, Reporter& report) {
  const nlohmann::json& training = job["training"];
  for (const char* other : {"model", "operator"}) {
    if (training.contains(other))
      report.error_at_key(fmt::format("training.{}", other),
                          fmt::format("\"function\" and \"{}\" exclude each other: remove one", other));
  }
  // With its default a key says nothing, as in a job that is resolved.
  const nlohmann::json defaults = {{"early_stop", nullptr}, {"validate_every", 1}, {"validate_only", false}};
  for (const char* of_operators : {"early_stop", "validate_every", "validate_only"}) {
    if (training.contains(of_operators) && training[of_operators] != defaults[of_operators])
      report.error_at_key(fmt::format("training.{}", of_operators),
                          fmt::format("\"{}\" has no meaning with \"function\", whose loop validates and ends by "
                                      "itself: remove it",
                                      of_operators));
  }
  if (!job.contains("plugins"))
    report.error_at_key("training.function", "a function comes from a library: name it in \"plugins\"");
  check_batch_sizes(job, training.contains("dataset"), report);
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

Spot find_spot(const json::Place& root, const std::string& source, const std::string& path) {
  const json::Place* place = &root;
  Spot spot{root.source.empty() ? source : root.source, root.value, root.value};
  const auto enter = [&place, &spot](const json::Place& inner) {
    place = &inner;
    if (!place->source.empty()) spot.source = place->source;
    spot.key = place->key;
    spot.value = place->value;
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
  return spot;
}

void check_choices(const json::Document& document, const std::string& source, Diagnostics& diagnostics) {
  const nlohmann::json& job = document.value;
  if (!job.is_object()) return;
  Reporter report(document.place, source, diagnostics);
  const bool training = job.contains("training");
  if (training && job.contains("command")) {
    report.error_at_key("command", "\"training\" and \"command\" exclude each other: remove one");
  } else if (!training && !job.contains("command")) {
    report.error_at_value("", "missing key \"training\" or \"command\"");
  }
  if (!training && job.contains("resume_from"))
    report.error_at_key("resume_from", "\"resume_from\" is for \"training\": a command reads its state by itself");
  for (const char* key : {"process", "workdir"})
    if (training && job.contains(key)) report.error_at_key(key, fmt::format("\"{}\" is for \"command\"", key));
  if (!training || !job["training"].is_object()) return;
  if (job["training"].contains("function")) return check_function(job, report);
  if (!job["training"].contains("dataset"))
    report.error_at_value("training", "missing key \"dataset\" in \"training\"");
  if (!job["training"].contains("model") && !has_own_operator(job["training"]))
    report.error_at_value("training", "missing key \"model\" in \"training\"");
  check_batch_sizes(job, true, report);
}

void check_relations(const nlohmann::json& job, const std::vector<std::string>& rejected, const json::Place& root,
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
