#include "launcher/tune/experiment_spec.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "common/json/lenient.hpp"
#include "common/json/words.hpp"
#include "launcher/tune/rungs.hpp"

namespace sgd::tune {
namespace {

using Json = nlohmann::json;

/// The typed form of a completed "tune", value by value: what has a wrong type, which the schema has told, keeps its
/// default.
SchedulerSpec read_scheduler(const Json& given) {
  SchedulerSpec out;
  read_if_fits(given, "type", out.type);
  if (out.type == "hyperband") out.reduction_factor = 3;
  read_if_fits(given, "max_epochs", out.max_epochs);
  read_if_fits(given, "grace_epochs", out.grace_epochs);
  read_if_fits(given, "reduction_factor", out.reduction_factor);
  read_if_fits(given, "brackets", out.brackets);
  out.promotes = read_or(given, "mode", "stop") == "promote";
  read_if_fits(given, "startup_trials", out.startup_trials);
  read_if_fits(given, "warmup_epochs", out.warmup_epochs);
  read_if_fits(given, "interval_epochs", out.interval_epochs);
  read_if_fits(given, "least_trials", out.least_trials);
  read_if_fits(given, "burn_in_epochs", out.burn_in_epochs);
  read_if_fits(given, "quantile", out.quantile);
  read_if_fits(given, "resample_probability", out.resample_probability);
  if (const Json& factors = member(given, "factors"); factors.is_array()) {
    out.factors.clear();
    for (const Json& one : factors)
      if (one.is_number()) out.factors.push_back(one.get<double>());
  }
  if (const Json& mutates = member(given, "mutates"); mutates.is_array())
    for (const Json& one : mutates)
      if (one.is_string()) out.mutates.push_back(one.get<std::string>());
  return out;
}

SearchSpec read_search(const Json& given) {
  SearchSpec out;
  const std::string type = read_or(given, "type", "random");
  if (type == "grid") out.kind = SearchSpec::Kind::kGrid;
  if (type == "exec") out.kind = SearchSpec::Kind::kExec;
  if (const Json& command = member(given, "command"); command.is_array())
    for (const Json& one : command)
      if (one.is_string()) out.command.push_back(one.get<std::string>());
  if (const auto timeout = parse_duration(read_or(given, "timeout", ""))) out.timeout = *timeout;
  return out;
}

ExperimentSpec read_experiment(const Json& given) {
  ExperimentSpec out;
  read_if_fits(given, "samples", out.samples);
  read_if_fits(given, "seed", out.seed);
  read_if_fits(given, "metric", out.metric);
  out.mode = read_or(given, "mode", "min") == "max" ? Mode::kMax : Mode::kMin;
  read_if_fits(given, "concurrent", out.concurrent);
  read_if_fits(given, "max_failures", out.max_failures);
  out.scheduler = read_scheduler(member(given, "scheduler"));
  out.search = read_search(member(given, "search"));
  return out;
}

std::optional<StopBound> read_bound(const std::string& metric, const Json& given, const ExperimentSpec& spec,
                                    const SourceLocation& location, Diagnostics& diagnostics) {
  const std::string subject = json::quote("tune.stop." + metric);
  if (given.is_number()) {
    if (spec.metric.empty()) return std::nullopt;  // That it is missing was said.
    if (metric == spec.metric) return StopBound{metric, spec.mode == Mode::kMax, given.get<double>()};
    location.error(diagnostics, fmt::format("{} must say in which direction, since \"tune.mode\" is that of {}: "
                                            "{{\"at_least\": {}}} or {{\"at_most\": {}}}",
                                            subject, json::quote(spec.metric), given.dump(), given.dump()));
    return std::nullopt;
  }
  if (!given.is_object()) return std::nullopt;
  if (given.size() != 1) {
    location.error(diagnostics, fmt::format("{} must have either \"at_least\" or \"at_most\"", subject));
    return std::nullopt;
  }
  const Json& bound = given.begin().value();
  if (!bound.is_number()) return std::nullopt;
  return StopBound{metric, given.begin().key() == "at_least", bound.get<double>()};
}

void read_stop(const Json& given, ExperimentSpec& spec, const SourceLocation& location, Diagnostics& diagnostics) {
  if (!given.is_object()) return;
  for (const auto& [metric, value] : given.items()) {
    if (metric == "epochs") {
      if (value.is_number_integer() && value.get<std::int64_t>() >= 1 && value.get<std::int64_t>() <= kEpochsLast)
        spec.stop_epochs = value.get<std::int64_t>();
      else
        location.inside(metric).error(
            diagnostics, fmt::format("\"tune.stop.epochs\" must be an integer from 1 to {}, got {}", kEpochsLast,
                                     json::shown(value)));
    } else if (auto bound = read_bound(metric, value, spec, location.inside(metric), diagnostics)) {
      spec.stop.push_back(std::move(*bound));
    }
  }
}

/// All that is to be looked at beyond single values, with its places.
class Checker {
 public:
  /// `is_sound`: nothing has an error so far, so that no value is missing.
  Checker(ExperimentSpec& spec, const Json& job, SourceLocation location, bool is_sound, Diagnostics& diagnostics)
      : spec_(spec), job_(job), location_(std::move(location)), is_sound_(is_sound), diagnostics_(diagnostics) {}

  void check() {
    check_count();
    if (spec_.scheduler.type == "asha" || spec_.scheduler.type == "hyperband") check_halving();
    if (spec_.scheduler.type == "pbt") check_pbt();
    if (needs_checkpoints()) check_checkpoints();
    if (spec_.search.timeout <= Duration::zero())
      error({"search", "timeout"}, "\"tune.search.timeout\" must be above 0");
  }

 private:
  void error(const std::vector<std::string>& keys, std::string message) {
    is_sound_ = false;
    SourceLocation location = location_;
    for (const std::string& key : keys) location = location.inside(key);
    location.error(diagnostics_, std::move(message));
  }

  void check_count() {
    if (spec_.search.kind == SearchSpec::Kind::kExec || spec_.samples > kTrialsMax) return;
    const ListKind kind = spec_.search.kind == SearchSpec::Kind::kGrid ? ListKind::kGrid : ListKind::kRandom;
    if (kind == ListKind::kGrid)
      for (const auto& [path, domain] : spec_.parameters.domains)
        if (!domain.count())
          return error(
              {"parameters", path},
              fmt::format("{} is a {}, whose values cannot be counted: the search \"grid\" takes grid, choice, "
                          "randint and the quantized ones",
                          json::quote("tune.parameters." + path), domain.name()));
    const auto grid = points(spec_.parameters, kind);
    if (grid && *grid <= kTrialsMax / std::max<std::uint64_t>(spec_.samples, 1)) return;
    std::string product;
    for (const auto& [path, domain] : spec_.parameters.domains)
      if (kind == ListKind::kGrid || domain.kind == DomainKind::kGrid)
        product += fmt::format("{}{} ({})", product.empty() ? "" : " x ", *domain.count(), path);
    const double count = trials_as_number(kind);
    error({"parameters"}, fmt::format("the grids make {:.0f} trials: {} x {} (samples); at most {}", count, product,
                                      spec_.samples, kTrialsMax));
  }

  [[nodiscard]] double trials_as_number(ListKind kind) const {
    auto count = static_cast<double>(spec_.samples);
    for (const auto& [path, domain] : spec_.parameters.domains)
      if (kind == ListKind::kGrid || domain.kind == DomainKind::kGrid) count *= static_cast<double>(*domain.count());
    return count;
  }

  void check_halving() {
    SchedulerSpec& scheduler = spec_.scheduler;
    if (scheduler.max_epochs == 0) scheduler.max_epochs = spec_.stop_epochs;
    if (scheduler.max_epochs == 0)
      scheduler.max_epochs =
          read_or(member(job_, "training"), "epochs", std::int64_t{job_.contains("training") ? 1 : 0});
    if (scheduler.max_epochs == 0) {
      scheduler.max_epochs = 1;
      return error({"scheduler"},
                   "missing key \"max_epochs\" in \"tune.scheduler\": a command has no epochs of its own "
                   "(\"stop\": {\"epochs\": N} says it, too)");
    }
    if (scheduler.type != "asha") return;
    if (scheduler.grace_epochs > scheduler.max_epochs)
      return error(
          {"scheduler", "grace_epochs"},
          fmt::format("\"tune.scheduler.grace_epochs\" must be at most the most epochs of a trial ({}), got {}",
                      scheduler.max_epochs, scheduler.grace_epochs));
    if (scheduler.grace_epochs < 1 || scheduler.reduction_factor < 2) return;
    const std::size_t most = rungs(scheduler.grace_epochs, scheduler.max_epochs, scheduler.reduction_factor).size();
    if (scheduler.brackets > 1 && scheduler.promotes)
      error({"scheduler", "brackets"}, "\"tune.scheduler.brackets\" must be 1 with the mode \"promote\"");
    else if (scheduler.brackets > static_cast<int>(most))
      error({"scheduler", "brackets"},
            fmt::format("\"tune.scheduler.brackets\" must be at most {}, the rungs from {} to {} epochs; got {}", most,
                        scheduler.grace_epochs, scheduler.max_epochs, scheduler.brackets));
  }

  void check_pbt() {
    SchedulerSpec& scheduler = spec_.scheduler;
    if (spec_.search.kind == SearchSpec::Kind::kExec)
      error({"search"},
            "\"tune.search\" of type \"exec\" and the scheduler \"pbt\" exclude each other: both choose values");
    const bool is_named = !scheduler.mutates.empty();
    for (const std::string& path : scheduler.mutates)
      if (!spec_.parameters.domains.contains(path) && is_sound_)
        error({"scheduler", "mutates"}, fmt::format("\"tune.scheduler.mutates\" names {}, which is not in "
                                                    "\"tune.parameters\"",
                                                    json::quote(path)));
    if (!is_named)
      for (const auto& [path, domain] : spec_.parameters.domains)
        if (domain.kind != DomainKind::kGrid) scheduler.mutates.push_back(path);
    if (scheduler.mutates.empty() && !spec_.parameters.domains.empty())
      error({"scheduler"},
            "the scheduler \"pbt\" has nothing to change: all parameters are grids, and \"mutates\" names none");
    std::sort(scheduler.mutates.begin(), scheduler.mutates.end());
    scheduler.mutates.erase(std::unique(scheduler.mutates.begin(), scheduler.mutates.end()), scheduler.mutates.end());
    if (is_sound_ && spec_.trials() < 2)
      error({"samples"}, "\"tune.samples\" must be at least 2 with the scheduler \"pbt\": its trials are a population");
  }

  [[nodiscard]] bool needs_checkpoints() const {
    const std::string& type = spec_.scheduler.type;
    return type == "hyperband" || type == "pbt" || (type == "asha" && spec_.scheduler.promotes);
  }

  void check_checkpoints() {
    if (!job_.contains("training") || member(member(job_, "checkpoint"), "every") != "never") return;
    error({"scheduler"},
          fmt::format("the scheduler {} goes on from checkpoints, and \"checkpoint.every\" is \"never\": "
                      "change one of them",
                      json::quote(spec_.scheduler.type)));
  }

  ExperimentSpec& spec_;
  const Json& job_;
  SourceLocation location_;
  bool is_sound_;
  Diagnostics& diagnostics_;
};

}  // namespace

std::uint64_t ExperimentSpec::trials() const {
  if (search.kind == SearchSpec::Kind::kExec) return samples;
  return static_cast<std::uint64_t>(list().size());
}

TrialList ExperimentSpec::list() const {
  SGD_ASSERT(search.kind != SearchSpec::Kind::kExec);
  const ListKind kind = search.kind == SearchSpec::Kind::kGrid ? ListKind::kGrid : ListKind::kRandom;
  return TrialList(parameters, kind, samples, seed);
}

std::optional<ExperimentSpec> parse_experiment(const job::LoadResult& loaded, Diagnostics& diagnostics,
                                               const job::Registered& registered) {
  const Json& job = loaded.job ? *loaded.job->resolved : loaded.given.value;
  if (!job.is_object() || !member(job, "tune").is_object()) return std::nullopt;
  const auto errors = [&] {
    return std::count_if(diagnostics.items.begin(), diagnostics.items.end(),
                         [](const Diagnostic& item) { return !item.warning; });
  };
  const auto before = errors();
  const bool was_sound = before == 0 && !loaded.diagnostics.has_errors();
  const SourceLocation location = SourceLocation{loaded.source, &loaded.given.source_map}.inside("tune");
  const Json& tune = job["tune"];
  ExperimentSpec spec = read_experiment(tune);
  if (tune.contains("parameters")) {
    spec.parameters = parse_parameters(tune["parameters"], location.inside("parameters"), diagnostics);
    check_paths(spec.parameters, loaded, registered, location.inside("parameters"), diagnostics);
  }
  read_stop(member(tune, "stop"), spec, location.inside("stop"), diagnostics);
  Checker(spec, job, location, was_sound && errors() == before, diagnostics).check();
  if (!was_sound || errors() > before) return std::nullopt;
  return spec;
}

std::string bound_reached(const ExperimentSpec& spec, std::int64_t iteration, const Json& metrics) {
  if (spec.stop_epochs > 0 && iteration >= spec.stop_epochs)
    return fmt::format("epoch {} is the last (\"tune.stop.epochs\")", spec.stop_epochs);
  for (const StopBound& stop : spec.stop) {
    const Json* value = find_value(metrics, stop.metric);
    if (value == nullptr || !value->is_number()) continue;
    const auto number = value->get<double>();
    if (stop.is_least ? number >= stop.bound : number <= stop.bound)
      return fmt::format("{} {} is at {} {}", stop.metric, Json(number).dump(), stop.is_least ? "least" : "most",
                         Json(stop.bound).dump());
  }
  return {};
}

}  // namespace sgd::tune
